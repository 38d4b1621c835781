"""Processes that share a vLLM: turns over a socket, synchronisation, and group membership."""

import asyncio
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
import torch
from PIL import Image

from tests.update.pair import both_end_well
from vtune.config import find, load_recipe
from vtune.errors import RecipeError, RunFailed
from vtune.models.shape import known_shapes, shape_of
from vtune.rollout.engine_thread import EngineThread
from vtune.rollout.submission import Answer
from vtune.rollout.tensor_parallel import Turn, TurnClient, TurnServer, socket_folder
from vtune.runs.agent.kinds import check_devices, check_tensor_parallel
from vtune.runs.train.rl_recipe import RLRecipe, check_sizes


def turn(name: str, *shows: str) -> Turn:
    """A turn with two-pixel pictures of these names."""
    images = tuple(((2, 1), show.encode() * 2) for show in shows)
    return Turn(name, [1, 2], images, shows, {"max_tokens": 3})


def answer(name: str) -> Answer:
    return Answer([1, 2], [int(name)], [-0.5], "length", None, [("vtune-1", 1)])


def asked(address: Path, draw: Any, names: list[str]) -> list[Any]:
    """The results of turns requested concurrently."""

    async def run() -> list[Any]:
        server, client = TurnServer(address, draw), TurnClient(address)
        await server.open()
        await client.open()
        found = await asyncio.gather(*(client.ask(turn(name)) for name in names), return_exceptions=True)
        await client.close()
        await server.close()
        return found

    return asyncio.run(run())


def test_turns_are_generated_concurrently_and_each_gets_its_own_answer(tmp_path: Path) -> None:
    drawn: list[str] = []

    async def draw(asked: Turn, images: list[Image.Image]) -> Answer:
        assert (asked, images) == (turn(asked.name), [])
        drawn.append(asked.name)
        while len(drawn) < 5:
            await asyncio.sleep(0.001)
        return answer(asked.name)

    names = [str(number) for number in range(5)]
    assert asked(tmp_path / "s", draw, names) == [answer(name) for name in names]


def test_a_failed_turn_raises_where_it_was_requested(tmp_path: Path) -> None:
    async def draw(asked: Turn, images: list[Image.Image]) -> Answer:
        if asked.name == "1":
            raise RunFailed("the vLLM has died", fix="--resume")
        return answer(asked.name)

    first, second = asked(tmp_path / "s", draw, ["0", "1"])
    assert first == answer("0")
    assert isinstance(second, RunFailed)
    assert "has died" in str(second)


@pytest.mark.filterwarnings("ignore")
def test_a_bug_leaves_no_request_waiting(tmp_path: Path) -> None:
    async def draw(asked: Turn, images: list[Image.Image]) -> Answer:
        raise KeyError(asked.name)

    for found in asked(tmp_path / "s", draw, ["0", "1"]):
        assert isinstance(found, RunFailed)
        assert "is gone" in str(found)


def shown_by(address: Path, turns: list[Turn], *, room: int, at_once: bool) -> list[tuple[list[bytes], int]]:
    """The pictures that each turn was generated with, and how many were sent along with it."""

    async def run() -> list[tuple[list[bytes], int]]:
        drawn: dict[str, tuple[list[bytes], int]] = {}

        async def draw(asked: Turn, images: list[Image.Image]) -> Answer:
            came = sum(image is not None for image in asked.images)
            drawn[asked.name] = ([image.tobytes() for image in images], came)
            return answer(asked.name)

        server, client = TurnServer(address, draw, room=room), TurnClient(address)
        await server.open()
        await client.open()
        if at_once:
            await asyncio.gather(*map(client.ask, turns))
        else:
            for one in turns:
                await client.ask(one)
        await client.close()
        await server.close()
        return [drawn[one.name] for one in turns]

    return asyncio.run(run())


@pytest.mark.parametrize("at_once", [False, True])
def test_a_picture_is_sent_once(at_once: bool, tmp_path: Path) -> None:
    turns = [turn("0", "RGB"), turn("1", "RGB", "rgb"), turn("2", "rgb", "RGB")]
    found = shown_by(tmp_path / "s", turns, room=100, at_once=at_once)
    assert found == [([b"RGB" * 2], 1), ([b"RGB" * 2, b"rgb" * 2], 1), ([b"rgb" * 2, b"RGB" * 2], 0)]


def test_an_evicted_picture_is_sent_again(tmp_path: Path) -> None:
    turns = [turn("0", "RGB"), turn("1", "rgb"), turn("2", "RGB", "rgb"), turn("3", "rgb")]
    found = shown_by(tmp_path / "s", turns, room=8, at_once=False)  # for one picture
    assert [came for _, came in found] == [1, 1, 2, 0]
    assert [pictures for pictures, _ in found] == [
        [b * 2 for b in map(str.encode, one.names)] for one in turns
    ]


GROUP = """
import asyncio
from datetime import timedelta
import torch
from vtune.errors import RecipeError, RunFailed
from vtune.rollout.tensor_parallel import TensorParallelGroup
from vtune.update.ranks import Ranks

torch.distributed.init_process_group("gloo")
ranks = Ranks.of_this_process()
try:
    TensorParallelGroup.formed(ranks.rank, ranks.world, 4, patience=timedelta(seconds=60))
except RecipeError:
    pass
tp_group = TensorParallelGroup.formed(ranks.rank, ranks.world, 2, patience=timedelta(seconds=60))
assert (tp_group.index, tp_group.first) == (ranks.rank, ranks.rank == 0)
assert tp_group.address.parent.is_dir()

async def fails():
    if tp_group.first:
        raise RunFailed("no memory", fix="less")

async def meetings():
    await tp_group.barrier()
    try:
        await tp_group.barrier(fails())
    except RunFailed as error:
        return str(error)

assert "no memory" in asyncio.run(meetings())
torch.distributed.barrier()
tp_group.close()
torch.distributed.barrier()
assert not tp_group.address.parent.exists()
"""


@pytest.mark.slow
def test_a_group_fails_together(tmp_path: Path) -> None:
    both_end_well(GROUP, tmp_path, imports="import torch, vtune.rollout.tensor_parallel")


def test_a_long_temporary_folder_does_not_break_the_socket_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("t" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    address = socket_folder() / "turns"
    assert asked(address, AsyncMock(return_value=answer("3")), ["3"]) == [answer("3")]
    shutil.rmtree(address.parent)


def test_an_engine_in_another_thread_continues_while_this_loop_is_blocked() -> None:
    began, ended = threading.Event(), threading.Event()

    class Engine:
        async def rest(self) -> None:
            began.set()
            await asyncio.sleep(0.01)
            ended.set()

        async def generate(self, request: Any) -> Any:
            raise RunFailed("died", fix="--resume")

        async def aclose(self) -> None:
            """Does nothing: there is nothing to close."""

    async def run() -> None:
        apart = EngineThread(Engine, torch.device("cpu"))  # type: ignore[arg-type]
        resting = asyncio.create_task(apart.rest())
        await asyncio.sleep(0)
        assert began.wait(10)  # blocks the loop
        assert ended.wait(10)
        await resting
        with pytest.raises(RunFailed, match="died"):
            await apart.generate(None)  # type: ignore[arg-type]
        await apart.aclose()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("name", "gpus", "said"),
    [
        ("Qwen2.5-VL-7B", 4, None),
        ("Qwen2.5-VL-32B", 8, None),
        ("Qwen2.5-VL-3B", 4, None),  # two key heads, each replicated on two GPUs
        ("Qwen2.5-VL-7B", 8, "does not divide the model's 28 attention heads"),
        ("Qwen2.5-VL-32B", 3, "40 attention heads and 8 key heads"),
    ],
)
def test_a_model_must_split_over_the_gpus_that_share_it(name: str, gpus: int, said: str | None) -> None:
    shape = shape_of(known_shapes()[name])
    if said is None:
        check_tensor_parallel(gpus, shape, kind="vllm")
        return
    with pytest.raises(RecipeError, match=said):
        check_tensor_parallel(gpus, shape, kind="vllm")


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (
            lambda: check_tensor_parallel(2, None, kind="transformers"),
            "transformers does not generate",
        ),
        (lambda: check_devices(64), "tensor_parallel is 64, and this machine has"),
        (
            lambda: check_sizes(orsta("rollout.tensor_parallel=4"), 6),
            "6 processes do not split",
        ),
        (
            lambda: check_sizes(orsta("rollout.tensor_parallel=2", servers=True), 8),
            r"split over GPUs when they are started\n  fix +set rollout.servers to \[\]",
        ),
    ],
)
def test_settings_that_prevent_sharing_are_reported(act: Callable[[], None], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        act()


def orsta(*settings: str, servers: bool = False) -> RLRecipe:
    given = [] if servers else ["rollout.servers=[]"]
    return load_recipe(find("orsta-32b", "recipes.rl"), RLRecipe, [*given, *settings])


def test_a_single_gpu_is_not_written_into_recipes() -> None:
    """So run and evaluation folders look the same as before the key existed."""
    assert "tensor_parallel" not in orsta().model_dump(mode="json")["rollout"]
    assert orsta("rollout.tensor_parallel=4").model_dump(mode="json")["rollout"]["tensor_parallel"] == 4
