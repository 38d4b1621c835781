"""Pictures are decoded, resized and split into patches in worker threads, never in the event loop."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from PIL import Image

import vtune.models.pictures as eyes
from tests.models.rows import picture
from tests.rollout.build import ANSWER, LOOK, SAMPLE, SEEN, FakeSandbox, job, recipe
from tests.rollout.scripted import ScriptedEngine
from vtune.errors import DataError
from vtune.models.pictures import PictureReader, Pixels
from vtune.models.policy import Policy
from vtune.rollout.agent import Agent, black
from vtune.rollout.engine import Completion, Request
from vtune.rollout.picture_prefetch import PrefetchedPictures
from vtune.schema.message import Picture
from vtune.schema.pixels import decode_picture
from vtune.schema.trajectory import Trajectory

LARGE, CROP, TINY = picture(400, 300), picture(300, 320, seed=1), picture(40, 30)


class Noted:
    """A processor that records in which threads it runs, and how often."""

    def __init__(self, processor: Any) -> None:
        self._processor = processor
        self.side = processor.side
        self.threads: list[int] = []
        self.held = threading.Event()
        self.held.set()

    def levels(self, image: Image.Image, least: int, most: int) -> Any:
        self.threads.append(threading.get_ident())
        self.held.wait(60)
        return self._processor.levels(image, least, most)

    def patches(self, levels: Any) -> Any:
        return self._processor.patches(levels)

    def shown(self, levels: Any, grid: Any) -> Image.Image:
        self.threads.append(threading.get_ident())
        found: Image.Image = self._processor.shown(levels, grid)
        return found


@pytest.fixture
def noted(policy: Policy) -> Noted:
    return Noted(policy.pictures._processor)


@pytest.fixture
def reader(policy: Policy, noted: Noted) -> PictureReader:
    return PictureReader(noted, policy.pictures.budget)


class ByTurn(ScriptedEngine):
    """Looks in the first turn and answers in the second, in any order of conversations."""

    async def generate(self, request: Request) -> Completion:
        said = ANSWER if request.key[-1] else LOOK
        return await ScriptedEngine(self._chat, [said]).generate(request)


def conversations(
    policy: Policy, reader: PictureReader, transform: Callable[[bytes], bytes] | None = None
) -> list[Trajectory]:
    """Run four rollouts that look at a large picture and get a large crop."""
    sample = replace(SAMPLE, images=(Picture(data=LARGE),))
    sandbox = FakeSandbox(replace(SEEN, images=(CROP,)))
    agent = Agent(
        ByTurn(policy.chat, ["never said"]),
        sandbox,  # type: ignore[arg-type]
        policy.chat,
        reader,
        recipe(max_tokens=4000),
        transform,
    )
    return asyncio.run(agent.run([job(sample, rollout=number) for number in range(4)]))


def test_the_event_loop_neither_decodes_nor_splits_pictures(
    policy: Policy, reader: PictureReader, noted: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoding: list[int] = []

    def decode(data: bytes) -> Image.Image:
        decoding.append(threading.get_ident())
        return decode_picture(data)

    monkeypatch.setattr(eyes, "decode_picture", decode)
    found = conversations(policy, reader)
    assert [len(t.images) for t in found] == [2] * 4
    assert len(noted.threads) == len(decoding) == 2, "a picture of a group is processed once"
    assert threading.get_ident() not in {*noted.threads, *decoding}


def test_the_event_loop_does_not_blacken_hidden_pictures_either(
    policy: Policy, reader: PictureReader
) -> None:
    blackening: list[int] = []

    def hide(data: bytes) -> bytes:
        blackening.append(threading.get_ident())
        return black(data)

    conversations(policy, reader, hide)
    assert len(blackening) == 4
    assert threading.get_ident() not in blackening


def test_records_match_those_of_sequential_reading(
    policy: Policy, reader: PictureReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = conversations(policy, reader)

    async def at_once(self: PictureReader, images: Any) -> list[Pixels]:
        return [self.read(data) for data in images]

    monkeypatch.setattr(PictureReader, "load", at_once)
    assert found == conversations(policy, reader)


def test_a_picture_requested_while_it_is_read_is_read_once(reader: PictureReader, noted: Noted) -> None:
    async def story() -> list[list[Pixels]]:
        noted.held.clear()
        waiting = [asyncio.create_task(reader.load([LARGE, CROP])) for _ in range(5)]
        await asyncio.sleep(0)
        # A cancelled waiter does not cancel the picture for the others.
        waiting[0].cancel()
        await asyncio.sleep(0)
        noted.held.set()
        return list(await asyncio.gather(*waiting[1:]))

    found = asyncio.run(story())
    assert len(noted.threads) == 2
    assert all(one[0] is found[0][0] and one[1] is found[0][1] for one in found)
    assert reader.read(LARGE) is found[0][0]


def test_a_small_picture_needs_no_thread(reader: PictureReader, noted: Noted) -> None:
    asyncio.run(reader.load([TINY]))
    assert noted.threads == [threading.get_ident()]


def test_a_bad_picture_is_a_data_error_for_all_who_wait_for_it(reader: PictureReader) -> None:
    damaged = LARGE[: len(LARGE) // 2]

    async def story() -> list[Any]:
        loads = [PrefetchedPictures(reader).load([damaged]) for _ in range(3)]
        return list(await asyncio.gather(*loads, return_exceptions=True))

    found = asyncio.run(story())
    assert [type(error) for error in found] == [DataError] * 3


def test_a_conversation_keeps_its_pictures_even_if_the_cache_drops_them(policy: Policy, noted: Noted) -> None:
    reader = PictureReader(noted, policy.pictures.budget, keep_bytes=1)
    loaded = PrefetchedPictures(reader)
    asyncio.run(loaded.load([LARGE, CROP]))
    first = loaded.read(LARGE)
    assert loaded.shown_size(LARGE) == reader.shown(first).size
    assert loaded.read(LARGE) is first
    assert len(noted.threads) == 3, "two readings, and one picture shown"


def test_names_distinguish_pictures_and_their_sizes(policy: Policy) -> None:
    eyes_of_two = [policy.pictures, policy.pictures.within(policy.pictures.budget)]
    names = [reader.read(data).name for reader in eyes_of_two for data in (LARGE, CROP)]
    assert names[:2] == names[2:]
    smaller = policy.pictures.budget.model_copy(update={"max_pixels": policy.pictures.budget.max_pixels // 4})
    assert len({*names, policy.pictures.within(smaller).read(LARGE).name}) == 3
