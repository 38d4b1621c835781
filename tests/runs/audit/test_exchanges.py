import random
from dataclasses import replace

import pytest

from tests.reward.build import TARGET, looks, sample
from vtune.runs.agent.exchanges import Scene, Shown, of_another
from vtune.runs.agent.rerun import others_of
from vtune.schema.sample import Sample


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
