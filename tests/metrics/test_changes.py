import random

import pytest

from vtune.metrics.changes import changes, direction, telling


def verdict(name: str, values: list[float]) -> str:
    (one,) = changes({"lens": {name: {"steps": list(range(len(values))), "values": values}}})
    return one.verdict


def noisy(levels: list[float], seed: int = 0) -> list[float]:
    draw = random.Random(seed)
    return [level + draw.gauss(0, 0.02) for level in levels]


RISE = [at / 60 for at in range(60)]


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        pytest.param("accuracy", noisy(RISE), "better", id="a rise of what should rise"),
        pytest.param("red_flags", noisy(RISE), "worse", id="a rise of what should fall"),
        pytest.param("entropy", noisy(RISE), "higher", id="a rise of what has no better side"),
        pytest.param("entropy", noisy(RISE[::-1]), "lower", id="a fall of what has no better side"),
        pytest.param("accuracy", noisy([0.5] * 60), "no clear change", id="noise"),
        pytest.param("accuracy", noisy([*RISE, *RISE[::-1]]), "fell back", id="up and down again"),
        pytest.param("accuracy", [0.2, 0.9], "no clear change", id="two steps tell nothing"),
        pytest.param("accuracy", [0.5] * 20, "no clear change", id="a constant"),
    ],
)
def test_a_change_is_distinguished_from_noise(name: str, values: list[float], said: str) -> None:
    assert verdict(name, values) == said


def test_noise_alone_is_seldom_a_change() -> None:
    said = [verdict("accuracy", noisy([0.5] * 60, seed)) for seed in range(200)]
    assert said.count("no clear change") > 180


def test_the_best_stretch_is_found_with_its_step() -> None:
    values = [0.0] * 20 + [1.0] * 10 + [0.0] * 10
    (one,) = changes({"lens": {"accuracy": {"steps": list(range(100, 140)), "values": values}}})
    assert (one.best, one.best_step, one.verdict) == (1.0, 129, "fell back")


def test_each_number_has_the_right_direction() -> None:
    assert [direction(name) for name in ("iou@50", "reward_own", "seconds_rollout", "entropy")] == [
        1,
        1,
        -1,
        0,
    ]


def test_regressions_come_first_and_a_single_source_is_listed_once() -> None:
    steps = list(range(60))
    curves = {
        "reward": {"steps": steps, "values": RISE},
        "accuracy": {"steps": steps, "values": RISE[::-1]},
        "learning_rate": {"steps": steps, "values": RISE},
    }
    told = telling(changes({"all": curves, "lens": curves}))
    assert [(one.source, one.name, one.verdict) for one in told] == [
        ("lens", "accuracy", "worse"),
        ("lens", "reward", "better"),
    ]
    both = telling(changes({"all": curves, "lens": curves, "charts": curves}))
    assert [one.source for one in both] == ["lens", "charts"] * 2


def test_the_loss_is_reported_for_sft_and_not_for_rl() -> None:
    steps = list(range(60))
    loss = {"steps": steps, "values": noisy(RISE[::-1])}
    (one,) = telling(changes({"all": {"loss": loss}}))
    assert (one.name, one.verdict) == ("loss", "better")
    rewarded = {"loss": loss, "reward": {"steps": steps, "values": noisy(RISE)}}
    assert [one.name for one in telling(changes({"all": rewarded}))] == ["reward"]
