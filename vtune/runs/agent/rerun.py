"""What audits and rewards share that regenerate the last turn of a conversation."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from vtune.rollout.engine import Completion, Sampling
from vtune.rollout.recipe import Rollout
from vtune.rollout.regeneration import Regeneration, last_turn
from vtune.runs.agent.exchanges import answers_differ, lends
from vtune.schema.message import Message
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.tools.calls import read_calls
from vtune.tools.python import CODE
from vtune.tools.python import NAME as PYTHON
from vtune.verifiers.tags import answer, tagged


def others_of(
    sample: Sample, samples: Mapping[str, Sample], portion: Sequence[Trajectory]
) -> list[tuple[Sample, Trajectory]]:
    """Other questions of the source that have a different right answer and a target to lend, ordered by id.

    Each is listed once, with its first rollout that can lend the target.

    Args:
        sample: The sample whose pictures are to be exchanged.
        samples: All samples, by id.
        portion: Trajectories whose questions may lend their targets.
    """
    found: dict[str, tuple[Sample, Trajectory]] = {}
    for trajectory in portion:
        other = samples[trajectory.sample_id]
        if other.source == sample.source and lends(other, trajectory) and answers_differ(sample, other):
            found.setdefault(other.id, (other, trajectory))
    return [found[name] for name in sorted(found)]


def sampling_of(rollout: Rollout, sample: Sample, trajectory: Trajectory) -> Sampling:
    """How the last turn was sampled: up to the limit of a turn, and the room left in the conversation."""
    room = max(1, rollout.max_tokens - last_turn(trajectory))
    return Sampling(
        temperature=rollout.temperature,
        max_new_tokens=min(rollout.max_new_tokens, room),
        stop=(f"</{CODE}>",) if PYTHON in sample.tools else (),
    )


def turn_number(sample: Sample, trajectory: Trajectory) -> int:
    """The number of the last turn, as sampling keys count turns: without those that the prompt has."""
    return _written(trajectory.messages) - _written(sample.prompt) - 1


def asks_again(text: str, sample: Sample, completion: Completion) -> bool:
    """Whether a turn asks for another look instead of answering."""
    if PYTHON in sample.tools and completion.finish == "stop" and tagged(text, CODE) is not None:
        return True
    offered = [name for name in sample.tools if name != PYTHON]
    return bool(offered) and "</answer>" not in text and bool(read_calls(text, offered))


def ended_with(trajectory: Trajectory, again: Regeneration, text: str) -> Trajectory:
    """The conversation with another last turn, so that its answer can be judged."""
    ended = replace(trajectory, messages=(*again.kept, Message("assistant", text)), calls=(), reward=None)
    return replace(ended, answer=answer(ended.reply))


def _written(messages: Sequence[Message]) -> int:
    return sum(message.role == "assistant" for message in messages)
