"""Feedback on looks: a judge's verdict on a look, added to the observation that the policy reads."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from vtune.environments.environment import Act
from vtune.rollout.call_record import call_of, recorded_as
from vtune.rollout.transcript import Transcript
from vtune.schema.message import Picture
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

Feedback = Callable[[Sample, Trajectory, int], Awaitable[str]]
"""(sample, the conversation so far, index of a call) -> what the policy is told about it; empty: nothing.
Raises ServiceError if the judge fails: the conversation ends, unscored."""


async def with_verdicts(
    feedback: Feedback, acts: Sequence[Act], sample: Sample, book: Transcript
) -> list[Act]:
    """The acts of a turn, each with the judge's verdict after its result.

    Args:
        feedback: The judge.
        acts: Of the latest turn; not in the transcript yet.
        sample: The question.
        book: The conversation before these acts.
    """
    calls, images = list(book.calls), list(book.images)
    for act in acts:
        call = call_of(act.tool or recorded_as(sample), act.arguments, act.seen, (0, 0), len(images))
        numbers = tuple(range(len(images), len(images) + len(act.seen.images)))
        images += [
            Picture(data=data, origin=f"call:{len(calls)}", seen=book.shown_size(data))
            for data in act.seen.images
        ]
        calls.append(replace(call, images=numbers))
    so_far = Trajectory(sample_id=sample.id, source=sample.source, images=tuple(images), calls=tuple(calls))
    answered = []
    for k, act in enumerate(acts, start=len(book.calls)):
        said = await feedback(sample, so_far, k)
        seen = replace(act.seen, text=f"{act.seen.text}\n{said}") if said else act.seen
        answered.append(replace(act, seen=seen))
    return answered
