"""Run code in a real sandbox and return the result as a trajectory."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from vtune.sandbox import Sandbox
from vtune.schema.message import Message, Picture
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call, Trajectory
from vtune.tools.observation import recorded
from vtune.tools.python import run_python


class Sessions:
    """A sandbox that stays open, and its event loop."""

    def __init__(self, runner: asyncio.Runner, sandbox: Sandbox) -> None:
        self._runner = runner
        self._sandbox = sandbox

    def trajectories(self, jobs: Sequence[tuple[Sample, Sequence[str]]]) -> list[Trajectory]:
        """One trajectory per sample, with the code of its calls."""

        async def all_of_them() -> list[Trajectory]:
            return [await _trajectory(self._sandbox, sample, codes) for sample, codes in jobs]

        return self._runner.run(all_of_them())


@contextmanager
def opened() -> Iterator[Sessions]:
    """A sandbox, until the block ends."""
    with asyncio.Runner() as runner:
        sandbox = runner.run(Sandbox().__aenter__())
        try:
            yield Sessions(runner, sandbox)
        finally:
            runner.run(sandbox.__aexit__(None, None, None))


async def _trajectory(sandbox: Sandbox, sample: Sample, codes: Sequence[str]) -> Trajectory:
    pictures = list(sample.images)
    calls = []
    async with await sandbox.open([picture.data or b"" for picture in pictures], seed=0) as session:
        for k, code in enumerate(codes):
            seen = await run_python(session, code)
            first = len(pictures)
            pictures += [Picture(data, origin=f"call:{k}") for data in seen.images]
            calls.append(
                Call(
                    tool="python",
                    arguments=json.dumps({"code": code}),
                    status=seen.status,
                    error=seen.error,
                    output=seen.output,
                    images=tuple(range(first, len(pictures))),
                    crops=recorded(seen.crops, first),
                )
            )
    return Trajectory(
        sample_id=sample.id,
        source=sample.source,
        messages=(Message("user", "?"), Message("assistant", "<think>I see.</think><answer>B</answer>")),
        images=tuple(pictures),
        calls=tuple(calls),
    )
