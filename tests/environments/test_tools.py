"""Our tools environment: conversations with code and calls are the same as before it was an environment."""

import asyncio
import gc
import hashlib
import io
import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import NoReturn, cast

import pytest
from PIL import Image

from tests.rollout.build import ANSWER, LOOK, SAMPLE, job
from tests.rollout.test_tool_calls import ALL, ASKING, PICTURE, QUERY, ZOOM, call, converse, turn
from vtune.environments import DEFAULT
from vtune.environments.environment import Services, Start
from vtune.environments.tools import open_tools
from vtune.errors import ServiceError
from vtune.models.policy import Policy
from vtune.rollout.agent import black
from vtune.schema.trajectory import Trajectory
from vtune.tools import python, zoom

WORDS = (
    LOOK,
    turn(ZOOM),
    turn(QUERY),
    turn(PICTURE, ZOOM),
    turn(QUERY, QUERY, ZOOM),
    turn(call(zoom.NAME, bbox_2d=[0, 0, 600, 1000], img_idx=1)),
    turn(call(zoom.NAME, bbox_2d=[9, 9, 1, 1])),
    turn("<tool_call>ferry</tool_call>"),
    f"{LOOK} {turn(ZOOM)}",
    "<think>I wonder.</think>",
    ANSWER,
    f"{ANSWER} {ZOOM}",
)
"""Turns of the policy to choose from."""


def told(policy: Policy, found: Trajectory) -> str:
    """A trajectory's content without timings and picture compression."""
    pictures = [
        (Image.open(io.BytesIO(one.data or b"")).convert("RGB").tobytes(), one.origin, one.seen)
        for one in found.images
    ]
    calls = [replace(one, seconds=0.0) for one in found.calls]
    facts = (
        found.messages,
        [(hashlib.sha256(data).hexdigest(), *rest) for data, *rest in pictures],
        [
            (
                one.tool,
                one.arguments,
                one.status,
                one.error,
                one.output,
                one.images,
                [(crop.image, crop.bbox, crop.shown, crop.matrix) for crop in one.crops],
                policy.chat.tokenizer.decode(list(found.token_ids[one.span[0] : one.span[1]])),
            )
            for one in calls
        ],
        found.loss_mask.count(True) > 0,
        found.answer,
        found.stop_reason,
        found.sandbox,
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def test_conversations_with_tools_are_unchanged(policy: Policy, golden: Callable[[str, str], None]) -> None:
    chance = random.Random(0)
    lines = []
    for number in range(40):
        script = chance.choices(WORDS, k=4)
        tools = (python.NAME, *ALL) if number % 3 else ALL
        transform = black if number % 4 == 0 else None
        asked = replace(ASKING, tools=tools)
        (found,) = converse(
            policy,
            *script,
            jobs=[job(asked)],
            observation_transform=transform,
            max_turns=4,
            max_tokens=chance.choice((4000, 700)),
        )
        said = " ".join(f"{one.tool}:{one.status}" for one in found.calls)
        lines.append(f"{number} {found.stop_reason} {told(policy, found)} {said}".rstrip())
    golden("tool_conversations.txt", "\n".join(lines) + "\n")


def test_a_row_may_name_our_environment(policy: Policy) -> None:
    (plain,) = converse(policy, turn(ZOOM), ANSWER)
    (named,) = converse(policy, turn(ZOOM), ANSWER, jobs=[job(replace(ASKING, environment=DEFAULT))])
    assert told(policy, named) == told(policy, plain)


def test_a_session_being_opened_is_closed_if_another_part_fails_to_open() -> None:
    class Shut:
        async def open(self, *_: object, **__: object) -> NoReturn:
            raise ServiceError("no session")

    class Broken:
        def names(self, _: object) -> NoReturn:
            raise RuntimeError("these do not open")

    unseen: list[str] = []

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context["message"]))
        ending: set[asyncio.Task[None]] = set()
        services = cast(
            Services,
            SimpleNamespace(
                sandbox=Shut(),
                tools=Broken(),
                lost=lambda: None,
                later=lambda work: ending.add(asyncio.create_task(work)),
            ),
        )
        sample = replace(SAMPLE, tools=(python.NAME,))
        with pytest.raises(RuntimeError, match="these do not open"):
            await open_tools(Start(sample=sample, images=(), seed=0, group=0, services=services))
        await asyncio.gather(*ending)

    asyncio.run(story())
    gc.collect()
    assert unseen == []
