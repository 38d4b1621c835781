"""Whether an evaluation that continues asks the rest of its questions in the words of those before."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from vtune.environments import DEFAULT, name_of
from vtune.errors import RecipeError
from vtune.rollout.agent import Agent
from vtune.runs.evaluate.drawing import job_of
from vtune.runs.evaluate.questions import read_records
from vtune.runs.evaluate.rollout_files import kept_rollouts
from vtune.runs.evaluate.shown import example
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.evaluate.windows import parts, stored
from vtune.schema.message import Picture
from vtune.schema.trajectory import Trajectory

MOST = 200
"""Questions compared at most; ours: words change for all questions of a kind."""


def check_asked_before(suite: EvalSuite, out: Path, portions: Path, agent: Agent) -> None:
    """Check that stored rollouts were shown the prompts that the agent would write today.

    Templates, protocols and tools may be worded differently in another version of vtune, with the same
    settings. The first `MOST` questions are compared. Samples of an environment of your own are not: their
    prompt is known once it is opened.

    Args:
        suite: The suite that is evaluated.
        out: The evaluation's folder.
        portions: Folder of its portions.
        agent: Generates the rest.

    Raises:
        RecipeError: At the first question whose prompt differs.
    """
    samples = {sample.id: sample for sample in read_records(suite) if name_of(sample) == DEFAULT}
    found = _first_rollouts(chain(stored(parts(portions)), kept_rollouts(out)))
    for trajectory in islice(found, MOST):
        sample = samples.get(trajectory.sample_id)
        if sample is None or not trajectory.messages:
            continue
        shown = [picture for picture in trajectory.images if picture.origin == "input"]
        images = tuple(picture.data or b"" for picture in shown)
        sample = replace(sample, images=tuple(Picture(data=data) for data in images))
        job = job_of(suite, sample, images, trajectory.group, trajectory.rollout)
        now = tuple((message.role, message.content) for message in agent.asked(job))
        before = tuple((message.role, message.content) for message in trajectory.messages[: len(now)])
        if now != before:
            raise _other_words(out, example(sample.id, now, before))


def _first_rollouts(trajectories: Iterator[Trajectory]) -> Iterator[Trajectory]:
    """One rollout of each question, as all are shown the same."""
    seen: set[str] = set()
    for trajectory in trajectories:
        if trajectory.sample_id not in seen:
            seen.add(trajectory.sample_id)
            yield trajectory


def _other_words(out: Path, shown: Mapping[str, str]) -> RecipeError:
    return RecipeError(
        f"{out} began with other prompts: there, question {shown['id']!r} was asked with "
        f"{shown['theirs']!r}, and now it would be with {shown['ours']!r}",
        fix="continue with the version of vtune that it began with, or start a new one with another --out: "
        "rollouts of both together would be one score of two prompts",
    )
