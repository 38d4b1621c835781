from dataclasses import replace

import pytest

from vtune.judge.feedback_texts import HELPFUL, UNHELPFUL, called_unhelpful
from vtune.schema.message import Message, Picture
from vtune.schema.trajectory import Call, Trajectory

CALLS = tuple(
    Call(tool="python", arguments="", status="ok", output="", images=images)
    for images in ((1,), (), (2,), (3,))
)


def told(first: str, second: str) -> Trajectory:
    """Two turns: the first with three calls, two of which show a picture, and the second with one call."""
    turns = (
        Message("user", "<image>Which?", (0,)),
        Message("assistant", "I look."),
        Message("user", first, (1, 2)),
        Message("assistant", f"{UNHELPFUL} I look again."),
        Message("user", second, (3,)),
    )
    pictures = tuple(Picture(data=b"", origin=origin) for origin in ("input", "call:0", "call:2", "call:3"))
    return Trajectory(sample_id="q", source="q", messages=turns, images=pictures, calls=CALLS)


@pytest.mark.parametrize(
    ("first", "second", "called"),
    [
        (f"<image>\n{HELPFUL}\n<image>\n{UNHELPFUL}", HELPFUL, {2}),
        (f"<image>{UNHELPFUL}<image>{UNHELPFUL}", f"<image>{UNHELPFUL}", {0, 2, 3}),
        ('<image>{"is_helpful": false, "reasons": ""}<image>{"is_helpful": true}', "", {0}),
        ("<image><image>", "<image>", set()),
    ],
)
def test_verdicts_are_read_from_the_feedback_to_the_policy(first: str, second: str, called: set[int]) -> None:
    assert called_unhelpful(told(first, second)) == called


def test_a_verdict_that_fits_several_calls_is_ignored() -> None:
    assert called_unhelpful(told(UNHELPFUL, UNHELPFUL)) == {3}
    # Text by the policy itself is not a verdict.
    silent = told("", "")
    assert called_unhelpful(replace(silent, messages=silent.messages[:2])) == set()
