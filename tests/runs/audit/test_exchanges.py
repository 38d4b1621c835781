import random
from dataclasses import replace

import pytest

from tests.reward.build import TARGET, looks, sample
from vtune.runs.agent.exchanges import Scene, Shown, of_another
from vtune.runs.agent.rerun import others_of
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory


def choice(name: str, truth: str, *options: str) -> Sample:
    return sample(TARGET, id=name, ground_truth=truth, choices=options)


@pytest.mark.parametrize(
    ("own", "other", "gold"),
    [
        (("A", "red", "blue"), ("B", "green", "blue"), "B"),
        (("A", "red", "blue"), ("B", "Red", "Blue"), "B"),
        (("A", "red", "blue"), ("A", "blue", "red"), "B"),
        (("A", "red", "blue"), ("B", "red", "green"), None),  # its B has another text here
        (("A", "red", "blue"), ("B", "blue", "red"), "same"),
        (("red",), ("green",), "green"),
        (("red",), ("B", "red", "green"), "green"),
    ],
)
def test_another_questions_option_is_an_answer_here_if_it_is_among_the_options(
    own: tuple[str, ...], other: tuple[str, ...], gold: str | None
) -> None:
    mine, theirs = choice("a", *own), choice("b", *other)
    trajectory = looks(TARGET)
    portion = [replace(trajectory, sample_id=name) for name in ("a", "b")]
    found = others_of(mine, {"a": mine, "b": theirs}, portion)
    if gold == "same":  # the same text is right under another letter
        assert found == []
        return
    assert [one.id for one, _ in found] == ["b"]
    shown = of_another(Scene(mine, portion[0], found, random.Random(0)))
    assert isinstance(shown, Shown)
    assert shown.images
    assert shown.gold == gold


def test_a_question_without_a_box_lends_a_rollout_that_looked_or_nothing() -> None:
    names = ("a", "blind", "looked", "boxed")
    samples = {name: sample(TARGET, id=name, ground_truth=name, evidence=()) for name in names}
    samples["boxed"] = sample(TARGET, id="boxed", ground_truth="boxed")
    trajectory = looks(TARGET)

    def rollout(name: str, number: int, *, looked: bool) -> Trajectory:
        seen = trajectory if looked else replace(trajectory, calls=(), images=trajectory.images[:1])
        return replace(seen, sample_id=name, rollout=number)

    blind = [rollout(name, 0, looked=False) for name in names[1:]]
    portion = [rollout("a", 0, looked=True), *blind, rollout("looked", 1, looked=True)]
    found = others_of(samples["a"], samples, portion)
    assert [(one.id, done.rollout) for one, done in found] == [("boxed", 0), ("looked", 1)]
    for seed in range(16):
        assert isinstance(of_another(Scene(samples["a"], portion[0], found, random.Random(seed))), Shown)
