"""Scores each conversation as it ends, while the others still run."""

import asyncio
from collections.abc import Callable, Sequence

from vtune.reward.score import Scorer
from vtune.rollout.agent import Agent, Job
from vtune.rollout.stopwatch import Stopwatch
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory


async def draw_and_score(
    agent: Agent,
    scorer: Scorer,
    jobs: Sequence[Job],
    samples: Sequence[Sample],
    *,
    iou: Sequence[float],
    done: Callable[[], None] = lambda: None,
    ended: Callable[[Job, Trajectory], None] = lambda job, trajectory: None,
    waiting: Stopwatch | None = None,
) -> list[Trajectory]:
    """The scored trajectories, in the order of the jobs.

    Scoring overlaps with the conversations that are still running: after the last one ends, only its own
    scores and those still queued have to be waited for.

    Args:
        agent: Generates.
        scorer: Scores.
        jobs: Conversations; their keys are distinct.
        samples: The samples of the jobs, in any order.
        iou: As for `Scorer.score`.
        done: Called after each conversation.
        ended: Called with each conversation before it is scored.
        waiting: Stopwatch that runs while only scores are waited for, and no conversation.

    Raises:
        DataError: If a job answers none of the samples.
        RunFailed: If nothing is left that could generate, or a user's part is broken.
    """
    scores: dict[tuple[int, ...], asyncio.Task[Trajectory]] = {}
    waiting = waiting or Stopwatch()
    with waiting:
        async with scorer.scoring(samples, iou=iou) as begin:

            def score(job: Job, trajectory: Trajectory) -> None:
                ended(job, trajectory)
                scores[job.key] = begin(trajectory)

            with waiting.covered():
                await agent.run(jobs, done, score)
    return [scores[job.key].result() for job in jobs]
