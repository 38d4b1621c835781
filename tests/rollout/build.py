"""A fake sandbox, and the jobs, engines and conversations of rollout tests."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from tests.models.rows import picture
from tests.rollout.scripted import ScriptedEngine
from vtune.errors import ServiceError
from vtune.models.policy import Policy
from vtune.rollout.agent import Agent, Job
from vtune.rollout.engine import Completion, Engine, Request
from vtune.rollout.recipe import Rollout
from vtune.sandbox import Execution, ShownCrop
from vtune.sandbox.turns import Turns
from vtune.schema.message import Message, Picture
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

PHOTO, CROP = picture(56, 56), picture(40, 30, seed=1)
SAMPLE = Sample(
    id="signs/1",
    source="signs",
    prompt=(Message("user", "<image>Which digit is on the red sign?", (0,)),),
    images=(Picture(data=PHOTO),),
    ground_truth="7",
    verifier="exact",
    tools=("python",),
)
LOOK = '<think>I look closer.\n<code>\n```python\nimage.crop((8,8,48,38)).save("look.png")\n```\n</code>'
ANSWER = "<think>It is 7.</think>\n<answer>7</answer>"
SEEN = Execution(
    status="ok",
    output="look.png",
    images=(CROP,),
    names=("look.png",),
    crops=(ShownCrop(bbox=(8.0, 8.0, 48.0, 38.0), image=0, shown=0),),
)


class FakeSession:
    def __init__(self, execution: Execution, images: Sequence[bytes]) -> None:
        self.image_names = tuple(f"image_{number}.png" for number in range(len(images)))
        self.execution = execution
        self.codes: list[str] = []
        self.closed = False

    async def run(self, code: str) -> Execution:
        await asyncio.sleep(0)
        self.codes.append(code)
        return self.execution

    async def close(self) -> None:
        self.closed = True


class FakeSandbox:
    """A sandbox in which every call has the same result; None: no session can be opened."""

    tier = "flat"

    def __init__(self, execution: Execution | None = SEEN, *, capacity: int = 64) -> None:
        self.execution = execution
        self.capacity = capacity
        self.turns = Turns()
        self.sessions: list[FakeSession] = []
        self.seeds: list[int] = []
        self.most_open = 0

    async def open(self, images: Sequence[bytes], *, seed: int) -> FakeSession:
        if self.execution is None:
            raise ServiceError("no process can be started")
        self.seeds.append(seed)
        self.sessions.append(FakeSession(self.execution, images))
        self.most_open = max(self.most_open, sum(not session.closed for session in self.sessions))
        return self.sessions[-1]


class Recording:
    """An engine that records its requests and answers."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.cohorts = engine.cohorts
        self.asked: list[tuple[Request, Completion]] = []
        self.running = 0

    def join(self, cohort: int) -> None:
        self.running += 1
        self.engine.join(cohort)

    def leave(self, cohort: int) -> None:
        self.running -= 1
        self.engine.leave(cohort)

    async def generate(self, request: Request) -> Completion:
        completion = await self.engine.generate(request)
        self.asked.append((request, completion))
        return completion


def recipe(**changes: Any) -> Rollout:
    values: dict[str, Any] = {
        "prompt": "plain",
        "temperature": 1.0,
        "max_turns": 3,
        "max_new_tokens": 100,
        "max_tokens": 500,
        "max_batch": 8,
    }
    return Rollout(**(values | changes))


def job(sample: Sample = SAMPLE, *, rollout: int = 0) -> Job:
    images = tuple(image.data or b"" for image in sample.images)
    return Job(
        sample=sample, images=images, group=3, rollout=rollout, policy_version=2, key=(0, 1, 3, rollout)
    )


def roll_out(
    policy: Policy,
    script: Sequence[str],
    *,
    sandbox: FakeSandbox | None = None,
    jobs: Sequence[Job] | None = None,
    engine: Engine | None = None,
    observation_transform: Callable[[bytes], bytes] | None = None,
    **changes: Any,
) -> list[Trajectory]:
    """Run conversations in which the policy follows a script."""
    agent = Agent(
        engine or ScriptedEngine(policy.chat, script),
        sandbox or FakeSandbox(),  # type: ignore[arg-type]
        policy.chat,
        policy.pictures,
        recipe(**changes),
        observation_transform,
    )
    return asyncio.run(agent.run(jobs or [job()]))
