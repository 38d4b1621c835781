"""The servers engine against fake servers; tests/vllm has real ones."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
import torch
from safetensors.torch import load_file

from tests.models.rows import ragged
from vtune.errors import RecipeError, RunFailed
from vtune.models.policy import Policy
from vtune.rollout import fleet as fleets
from vtune.rollout import servers
from vtune.rollout.adapters import Adapters
from vtune.rollout.engine import Request, Sampling
from vtune.rollout.fleet import CUT_OFF, Fleet
from vtune.rollout.sending import adapters_sender, files_sender
from vtune.rollout.server_calls import PATIENCE
from vtune.rollout.servers import ServersEngine
from vtune.rollout.transfer import trainer_address


@dataclass
class Play:
    """Fake servers by name: each returns a status, an exception or its text, a body, or the label of its
    weights."""

    policy: Policy
    troubles: dict[str, str | int | bytes | httpx2.RequestError] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    certain: float = 0.0
    asked: list[tuple[str, str]] = field(default_factory=list)
    loaded: dict[str, list[str]] = field(default_factory=dict)
    resets: bool = True
    """Whether a prefix cache can be reset."""

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        name, path = request.url.host, request.url.path
        self.asked.append((name, path))
        trouble = self.troubles.get(name)
        if isinstance(trouble, str):
            raise httpx2.ConnectError(trouble)
        if isinstance(trouble, httpx2.RequestError):
            raise trouble
        if isinstance(trouble, bytes):
            return httpx2.Response(200, content=trouble)
        if trouble is not None:
            return httpx2.Response(trouble, text="no")
        body = json.loads(request.content or b"{}")
        if path == "/update_weights":
            self.loaded.setdefault(name, []).extend(load_file(body["update_info"]["path"]))
        if path == "/finish_weight_update":
            self.labels[name] = body["weight_version"]
        if path == "/update_weight_version":
            self.labels[name] = body["new_version"]
        if path == "/weight_info":
            return httpx2.Response(200, json={"weight_version": self.labels.get(name, "default")})
        if path == "/inference/v1/generate":
            if body["token_ids"] == [0]:
                self.asked[-1] = (name, "the check")
            return httpx2.Response(200, json=self.answer(name, body))
        if path == "/reset_prefix_cache":
            return httpx2.Response(200, json={"success": self.resets})
        if path == "/reset_encoder_cache":
            return httpx2.Response(200)  # an empty reply
        return httpx2.Response(200, json={})

    def answer(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        image = self.policy.chat.image_id
        sizes = iter(pixels.tokens for pixels in ragged(self.policy)[0].pixels)
        prompt = [t for i in body["token_ids"] for t in ([i] * next(sizes) if i == image else [i])]
        choice = {
            "token_ids": [5],
            "logprobs": {"content": [{"token_id": 5, "logprob": self.certain}]},
            "finish_reason": "length",
            "stop_reason": None,
            "weight_versions": [{"version": self.labels.get(name, "default"), "start": 0, "end": 1}],
        }
        return {"prompt_token_ids": prompt, "choices": [choice]}

    def turns(self) -> list[str]:
        return [name for name, path in self.asked if path == "/inference/v1/generate"]


def engine(policy: Policy, play: Play, folder: Path, names: str = "ab") -> ServersEngine:
    found = ServersEngine(policy, [f"http://{name}" for name in names], files_sender(folder, first=True))
    found._http = httpx2.AsyncClient(transport=httpx2.MockTransport(play))
    return found


def turn(policy: Policy, group: int, rollout: int = 0) -> Request:
    row = ragged(policy)[0]
    sampling = Sampling(temperature=1.0, max_new_tokens=1)
    return Request(
        token_ids=row.token_ids, pixels=row.pixels, sampling=sampling, key=(0, 0, group, rollout, 0)
    )


def weights() -> Iterator[tuple[str, torch.Tensor]]:
    yield "a.weight", torch.ones(2)
    yield "b.weight", torch.ones(3)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Skip waits, and return the skipped durations."""
    waits: list[float] = []
    clock, others_go_on = [1000.0], asyncio.sleep

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock[0] += seconds
        await others_go_on(0)

    monkeypatch.setattr(servers.asyncio, "sleep", sleep)
    # Not in the module `time` itself, which the tests' time limits use.
    for module in (servers, fleets):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    return waits


def test_a_groups_turns_go_to_one_server_and_groups_are_distributed(policy: Policy, tmp_path: Path) -> None:
    async def run() -> list[str]:
        play = Play(policy)
        draws = engine(policy, play, tmp_path)
        await draws.take(weights, 0)
        play.asked.clear()
        for group in range(4):
            for rollout in range(3):
                await draws.generate(turn(policy, group, rollout))
        return play.turns()

    assert "".join(asyncio.run(run())) == "aaabbbaaabbb"


def test_every_server_gets_all_weights_and_nothing_stays_on_disk(policy: Policy, tmp_path: Path) -> None:
    play = Play(policy)
    asyncio.run(engine(policy, play, tmp_path).take(weights, 7))
    assert play.loaded == {"a": ["a.weight", "b.weight"], "b": ["a.weight", "b.weight"]}
    assert play.labels == {"a": "vtune-7", "b": "vtune-7"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "trouble",
    ["refused", 503, httpx2.DecodingError("not gzip"), b"<html>", b"[" * 200_000 + b"]" * 200_000],
    ids=["refused", "503", "not packed as it says", "no JSON", "nested without end"],
)
def test_a_server_that_fails_gives_its_turns_to_the_others(
    policy: Policy, tmp_path: Path, trouble: str | int | bytes | httpx2.RequestError
) -> None:
    async def run() -> tuple[int, ...]:
        play = Play(policy)
        draws = engine(policy, play, tmp_path)
        await draws.take(weights, 1)
        play.troubles["a"] = trouble
        return (await draws.generate(turn(policy, 0))).weight_versions

    assert asyncio.run(run()) == (1,)


def test_a_server_that_recovers_in_time_is_used_again(
    policy: Policy, tmp_path: Path, hurried: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> list[str]:
        play = Play(policy)
        draws = engine(policy, play, tmp_path, "a")
        await draws.take(weights, 1)
        await draws.generate(turn(policy, 0))
        play.troubles["a"] = "refused"
        play.asked.clear()
        sleep = servers.asyncio.sleep

        async def back_after_a_while(seconds: float) -> None:
            await sleep(seconds)
            if len(hurried) == 2:
                play.troubles.clear()

        monkeypatch.setattr(servers.asyncio, "sleep", back_after_a_while)
        await draws.generate(turn(policy, 0))
        return play.turns()

    assert asyncio.run(run()) == ["a"] * 3
    assert hurried == [0.5, 1.0]


def test_without_a_server_the_run_stops_and_says_why(
    policy: Policy, tmp_path: Path, hurried: list[float]
) -> None:
    async def run() -> None:
        play = Play(policy)
        draws = engine(policy, play, tmp_path)
        await draws.take(weights, 1)
        play.troubles |= {"a": "refused", "b": 500}
        await draws.generate(turn(policy, 0))

    with pytest.raises(RunFailed, match="no vLLM server is left") as failed:
        asyncio.run(run())
    assert "http://a: ConnectError refused" in str(failed.value)
    assert "http://b: HTTP 500" in str(failed.value)
    assert 0 < sum(hurried) < 30


def test_a_restarted_server_is_not_used_before_it_has_the_weights(policy: Policy, tmp_path: Path) -> None:
    async def run() -> tuple[list[str], list[str]]:
        play = Play(policy)
        draws = engine(policy, play, tmp_path)
        await draws.take(weights, 1)
        await draws.generate(turn(policy, 0))
        del play.labels["a"]
        play.asked.clear()
        for _ in range(2):
            await draws.generate(turn(policy, 0))
        before = play.turns()
        await draws.take(weights, 2)
        play.asked.clear()
        await draws.generate(turn(policy, 0))
        return before, play.turns()

    before, after = asyncio.run(run())
    assert (before, after) == (["a", "b", "b"], ["a"])


def test_a_server_that_dies_before_the_weights_arrive_is_left_out(policy: Policy, tmp_path: Path) -> None:
    play = Play(policy, troubles={"a": "refused"})
    asyncio.run(engine(policy, play, tmp_path).take(weights, 3))
    assert play.labels == {"b": "vtune-3"}


def test_a_refused_request_stops_the_run_at_once(policy: Policy, tmp_path: Path) -> None:
    play = Play(policy, troubles={"a": 403, "b": 403})
    with pytest.raises(RunFailed, match="HTTP 403"):
        asyncio.run(engine(policy, play, tmp_path).take(weights, 0))


def test_log_probabilities_of_another_distribution_are_refused(policy: Policy, tmp_path: Path) -> None:
    async def run() -> None:
        draws = engine(policy, Play(policy, certain=-4.0), tmp_path)
        await draws.take(weights, 0)
        await draws.generate(turn(policy, 0))

    with pytest.raises(RunFailed, match="processed_logprobs"):
        asyncio.run(run())


def test_pictures_are_sent_without_loss(policy: Policy, tmp_path: Path) -> None:
    import base64
    import io

    import numpy as np
    from PIL import Image

    pixels = ragged(policy)[0].pixels[0]
    url = engine(policy, Play(policy), tmp_path)._encoded(pixels)
    sent = Image.open(io.BytesIO(base64.b64decode(url.removeprefix("data:image/png;base64,"))))
    assert np.array_equal(np.asarray(sent), np.asarray(policy.pictures.shown(pixels)))


def test_a_pause_drops_the_prefix_cache_but_no_processed_picture(policy: Policy, tmp_path: Path) -> None:
    urls: list[str] = []
    play = Play(policy)

    def noted(request: httpx2.Request) -> httpx2.Response:
        urls.append(request.url.raw_path.decode())
        return play(request)

    draws = engine(policy, play, tmp_path, "a")
    asyncio.run(Fleet(httpx2.AsyncClient(transport=httpx2.MockTransport(noted)), draws._servers).pause())
    assert urls == [
        "/pause?mode=keep&clear_cache=false",
        "/reset_prefix_cache?reset_running_requests=true&reset_external=true",
        "/reset_encoder_cache",
    ]


def test_a_server_that_cannot_reset_its_prefix_cache_is_given_up(policy: Policy, tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="it could not reset its prefix cache"):
        asyncio.run(engine(policy, Play(policy, resets=False), tmp_path, "a").take(weights, 1))


def test_a_process_that_does_not_send_still_takes_part_in_gathering(policy: Policy, tmp_path: Path) -> None:
    passes: list[str] = []

    def gathered() -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in weights():
            passes.append(name)
            yield name, tensor

    play = Play(policy)
    draws = ServersEngine(policy, ["http://a"], files_sender(tmp_path, first=False))
    draws._http = httpx2.AsyncClient(transport=httpx2.MockTransport(play))
    asyncio.run(draws.take(gathered, 1))
    assert passes == ["a.weight", "b.weight"]
    assert play.loaded == {}


def test_all_servers_are_asked_to_join_before_any_answers(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with NCCL, where each waits until the group is complete."""
    joined: list[tuple[str, int]] = []

    async def run() -> None:
        whole = asyncio.Barrier(3)

        async def answer(request: httpx2.Request) -> httpx2.Response:
            if request.url.path == "/get_world_size":
                return httpx2.Response(200, json={"world_size": {"a": 4, "b": 2, "c": 1}[request.url.host]})
            joined.append((request.url.host, json.loads(request.content)["init_info"]["rank_offset"]))
            await whole.wait()
            return httpx2.Response(200, json={})

        draws = engine(policy, Play(policy), tmp_path, "abc")
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
        fleet = Fleet(http, draws._servers)
        assert await fleet.workers() == 7
        async with asyncio.timeout(5):
            await fleet.init_weight_transfer_engine({"rank_offset": 1, "world_size": 8})

    asyncio.run(run())
    assert sorted(joined) == [("a", 1), ("b", 5), ("c", 7)]


def test_a_server_that_fails_during_group_setup_ends_the_run(policy: Policy, tmp_path: Path) -> None:
    async def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/get_world_size":
            return httpx2.Response(200, json={"world_size": 1})
        if request.url.host == "b":
            return httpx2.Response(500, text="no NCCL")
        await asyncio.Event().wait()
        return httpx2.Response(200)

    async def run() -> None:
        draws = engine(policy, Play(policy), tmp_path)
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
        await Fleet(http, draws._servers).init_weight_transfer_engine({"rank_offset": 1})

    with pytest.raises(RunFailed, match="no NCCL"):
        asyncio.run(run())


def test_the_address_is_that_of_the_route_to_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine's name resolves to; the loopback if all servers are on this machine."""
    monkeypatch.setattr("socket.gethostname", lambda: pytest.fail("asked for the machine's name"))
    routes = {"127.0.0.1": "127.0.0.1", "10.1.2.3": "10.1.0.9"}

    class Probe:
        def __init__(self, *kind: object) -> None:
            pass

        def __enter__(self) -> "Probe":
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def connect(self, there: tuple[str, int]) -> None:
            if there[0] not in routes:
                raise OSError(101, "Network is unreachable")
            self.here = routes[there[0]]

        def getsockname(self) -> tuple[str, int]:
            return self.here, 40000

    monkeypatch.setattr("vtune.models.network.socket.socket", Probe)
    here, there = "http://127.0.0.1:8000", "http://10.1.2.3:8000"
    assert trainer_address([here]) == "127.0.0.1"
    assert trainer_address([here, there]) == trainer_address([there, here]) == "10.1.0.9"
    # vLLM's side of NCCL listens only on IPv4, whatever a name resolves to first.
    both = [(10, 2, 17, "", ("::1", 9, 0, 0)), (2, 2, 17, "", ("127.0.0.1", 9))]
    with monkeypatch.context() as patch:
        patch.setattr("socket.getaddrinfo", lambda *_, family, **__: [b for b in both if family in (0, b[0])])
        assert trainer_address(["http://localhost:8000"]) == "127.0.0.1"
    with pytest.raises(RunFailed, match=r"no route to the vLLM server http://10\.9\.9\.9: Network"):
        trainer_address(["http://10.9.9.9"])


def test_a_turn_interrupted_by_new_weights_records_both_versions(policy: Policy, tmp_path: Path) -> None:
    """And by no older weights: those belong to a server that was restarted or has missed an update."""

    class Slow(Play):
        spans: list[dict[str, Any]]

        def answer(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
            found = super().answer(name, body)
            (choice,) = found["choices"]
            choice |= {"token_ids": [5] * 3, "weight_versions": self.spans}
            choice["logprobs"]["content"] *= 3
            return found

    async def run(*versions: int) -> tuple[int, ...]:
        play = Slow(policy)
        play.spans = [
            {"version": f"vtune-{version}", "start": number, "end": number + 1}
            for number, version in enumerate(versions)
        ]
        draws = engine(policy, play, tmp_path, "a")
        await draws.take(weights, 4)
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def held(request: httpx2.Request) -> httpx2.Response:
            if request.url.path == "/inference/v1/generate":
                asked.set()
                await go_on.wait()
            return play(request)

        draws._http = httpx2.AsyncClient(transport=httpx2.MockTransport(held))
        turn_of = asyncio.create_task(draws.generate(turn(policy, 0)))
        await asked.wait()
        for version in (5, 6):
            await draws.take(weights, version)
        go_on.set()
        return (await turn_of).weight_versions

    assert asyncio.run(run(4, 5, 6)) == (4, 5, 6)
    assert asyncio.run(run(6, 6, 6)) == (6, 6, 6)
    with pytest.raises(RunFailed, match="not those that it was given"):
        asyncio.run(run(3, 5, 6))


def test_adapters_replace_earlier_ones_and_turns_name_them(policy: Policy, tmp_path: Path) -> None:
    adapters = Adapters(rank=3, alpha=6, targets=("q_proj",))
    loaded: dict[str, dict[str, Any]] = {}
    said: list[str] = []

    class Adapting(Play):
        def __call__(self, request: httpx2.Request) -> httpx2.Response:
            path, body = request.url.path, json.loads(request.content or b"{}")
            if path == "/v1/models":
                return httpx2.Response(200, json={"data": [{"id": "base"}, *({"id": n} for n in loaded)]})
            if path == "/v1/unload_lora_adapter":
                del loaded[body["lora_name"]]
            if path == "/v1/load_lora_adapter":
                assert body["lora_name"] not in loaded, "vLLM refuses it"
                folder = Path(body["lora_path"])
                loaded[body["lora_name"]] = json.loads((folder / "adapter_config.json").read_text())
                assert set(load_file(folder / "adapter_model.safetensors")) == {"a.weight", "b.weight"}
            if path == "/update_weight_version":
                self.labels[request.url.host] = body["new_version"]
            if path == "/inference/v1/generate":
                said.append(body.get("model", ""))
            if path.startswith("/v1/"):
                return httpx2.Response(200, text="Success: done.")
            return super().__call__(request)

    async def run() -> tuple[int, ...]:
        send = adapters_sender(tmp_path, adapters, first=True)
        draws = ServersEngine(policy, ["http://a"], send, model="vtune")
        draws._http = httpx2.AsyncClient(transport=httpx2.MockTransport(Adapting(policy)))
        for version in (1, 2):
            await draws.take(weights, version)
        return (await draws.generate(turn(policy, 0))).weight_versions

    assert asyncio.run(run()) == (2,)
    assert said == ["", "vtune"]  # the first request checks the server
    assert loaded["vtune"] == {
        "peft_type": "LORA", "r": 3, "lora_alpha": 6, "lora_dropout": 0.0, "target_modules": ["q_proj"],
        "bias": "none", "base_model_name_or_path": None, "inference_mode": True,
    }  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_a_restarted_server_is_left_out_until_it_gets_adapters(policy: Policy, tmp_path: Path) -> None:
    there: set[str] = set()

    class Adapting(Play):
        def __call__(self, request: httpx2.Request) -> httpx2.Response:
            name, path = request.url.host, request.url.path
            if path == "/v1/models":
                return httpx2.Response(200, json={"data": [{"id": "vtune"}] if name in there else []})
            if path == "/v1/load_lora_adapter":
                there.add(name)
            if path == "/update_weight_version":
                self.labels[name] = json.loads(request.content)["new_version"]
            answer = super().__call__(request)
            if path == "/inference/v1/generate" and b'"model"' in request.content and name not in there:
                return httpx2.Response(404, json={"error": {"message": "no such model: vtune"}})
            return answer

    async def run() -> tuple[list[str], list[str]]:
        send = adapters_sender(tmp_path, Adapters(rank=3, alpha=6, targets=("q_proj",)), first=True)
        play = Adapting(policy)
        draws = ServersEngine(policy, ["http://a", "http://b"], send, model="vtune")
        draws._http = httpx2.AsyncClient(transport=httpx2.MockTransport(play))
        await draws.take(weights, 1)
        there.remove("a")
        play.asked.clear()
        drawn = await draws.generate(turn(policy, 0))
        assert drawn.weight_versions == (1,)
        before = play.turns()
        await draws.take(weights, 2)
        play.asked.clear()
        await draws.generate(turn(policy, 0))
        return before, play.turns()

    before, after = asyncio.run(run())
    assert (before[-1], set(before[:-1]), after) == ("b", {"a"}, ["a"])


def test_the_adapter_rank_is_rounded_up_to_one_that_vllm_supports() -> None:
    ranks = (1, 8, 9, 300, 512)
    found = [Adapters(rank=rank, alpha=1, targets=("q_proj",)).room for rank in ranks]
    assert found == [8, 8, 16, 320, 512]
    with pytest.raises(RecipeError, match="takes adapters of 512 at most"):
        _ = Adapters(rank=513, alpha=1, targets=("q_proj",)).room


def test_a_recovered_server_gets_no_turn_before_it_has_the_weights(policy: Policy, tmp_path: Path) -> None:
    async def run() -> list[str]:
        play = Play(policy)
        draws = engine(policy, play, tmp_path)
        await draws.take(weights, 1)
        draws._servers[0].give_up("it was not there")
        send, turns = draws._send, []

        async def while_a_turn_is_asked_for(*given: Any) -> None:
            turns.append(asyncio.create_task(draws.generate(turn(policy, 0))))
            play.labels["b"] = "vtune-1"
            async with asyncio.timeout(5):
                while not play.turns():
                    await asyncio.to_thread(lambda: None)
            await send(*given)

        draws._send = while_a_turn_is_asked_for
        play.asked.clear()
        await draws.take(weights, 2)
        await turns[0]
        await draws.generate(turn(policy, 0))
        return play.turns()

    assert asyncio.run(run()) == ["b", "a"]


def test_a_restarted_server_does_not_belong_to_an_earlier_weight_group(
    policy: Policy, tmp_path: Path
) -> None:
    """Also if no turn has noticed the restart."""
    members: list[tuple[tuple[str, int], ...]] = []

    async def run() -> None:
        play = Play(policy)
        draws = engine(policy, play, tmp_path)
        send = draws._send

        async def noted(given: Any, fleet: Fleet, label: str) -> None:
            await send(given, fleet, label)
            members.append(fleet.members)

        draws._send = noted
        for version in range(4):
            if version == 2:
                del play.labels["b"]
            await draws.take(weights, version)
            await draws.generate(turn(policy, 1))
        assert [name for name, what in play.asked if what == "the check"] == ["b", "b"]

    asyncio.run(run())
    assert members[0] == members[1] != members[2] == members[3]


def test_a_server_with_a_partial_weight_update_gets_no_others_until_restarted(
    policy: Policy, tmp_path: Path
) -> None:
    """The partial weights stay in its layers, also for the next run, which would mix with them."""

    async def run() -> Play:
        play = Play(policy)
        draws = engine(policy, play, tmp_path)
        await draws.take(weights, 0)
        update = play.labels | {}

        def fails(request: httpx2.Request) -> httpx2.Response:
            if (request.url.host, request.url.path) == ("a", "/update_weights"):
                return httpx2.Response(500, text="no such file")
            return play(request)

        draws._http = httpx2.AsyncClient(transport=httpx2.MockTransport(fails))
        await draws.take(weights, 1)
        assert play.labels == {"a": CUT_OFF, "b": "vtune-1"} != update
        draws._http = httpx2.AsyncClient(transport=httpx2.MockTransport(play))
        await draws.take(weights, 2)
        assert play.labels == {"a": CUT_OFF, "b": "vtune-2"}
        with pytest.raises(RunFailed, match="interrupted; it is running, but has to be restarted"):
            await engine(policy, play, tmp_path, "a").take(weights, 0)
        del play.labels["a"]
        await draws.take(weights, 3)
        return play

    assert asyncio.run(run()).labels == {"a": "vtune-3", "b": "vtune-3"}


def test_a_server_stuck_in_a_killed_runs_hand_over_is_reported_at_once(
    policy: Policy, tmp_path: Path
) -> None:
    def active(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/start_weight_update":
            return httpx2.Response(500, text="a weight update is already active. Call finish_weight_update")
        return Play(policy)(request)

    draws = engine(policy, Play(policy), tmp_path, "a")
    draws._http = httpx2.AsyncClient(transport=httpx2.MockTransport(active))
    with pytest.raises(RunFailed, match="has to be restarted"):
        asyncio.run(draws.take(weights, 0))


def test_a_server_stuck_in_a_broadcast_without_sender_is_asked_once_and_named(
    policy: Policy, tmp_path: Path
) -> None:
    """It accepts the request, but its loop never handles it."""
    asked: list[Any] = []

    def stands(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.extensions["timeout"]["read"])
        raise httpx2.ReadTimeout("timed out")

    draws = engine(policy, Play(policy), tmp_path, "a")
    draws._http = httpx2.AsyncClient(transport=httpx2.MockTransport(stands), timeout=PATIENCE)
    with pytest.raises(RunFailed, match=r"no answer to GET /weight_info in time.*has to be restarted"):
        asyncio.run(draws.take(weights, 0))
    assert asked == [60.0]


def test_a_turn_on_a_server_given_up_while_paused_moves_to_another(policy: Policy, tmp_path: Path) -> None:
    async def run() -> tuple[int, ...]:
        play = Play(policy)
        draws = engine(policy, play, tmp_path)
        await draws.take(weights, 4)
        await draws.generate(turn(policy, 0))
        asked = asyncio.Event()

        async def paused(request: httpx2.Request) -> httpx2.Response:
            if (request.url.host, request.url.path) == ("a", "/inference/v1/generate"):
                asked.set()
                await asyncio.Event().wait()  # frozen, as with `mode=keep`
            if (request.url.host, request.url.path) == ("a", "/update_weights"):
                return httpx2.Response(500, text="no")
            return play(request)

        draws._http = httpx2.AsyncClient(transport=httpx2.MockTransport(paused))
        drawn = asyncio.create_task(draws.generate(turn(policy, 0)))
        await asked.wait()
        await draws.take(weights, 5)
        async with asyncio.timeout(5):
            return (await drawn).weight_versions

    assert asyncio.run(run()) == (5,)


def test_a_finished_turn_does_not_restore_a_server_that_missed_weights(
    policy: Policy, tmp_path: Path
) -> None:
    async def run() -> list[str]:
        play = Play(policy)
        draws = engine(policy, play, tmp_path)
        await draws.take(weights, 0)
        server = draws._servers[0]
        server.give_up("it could not pause")
        server.worked()
        assert server.given_up
        play.asked.clear()
        await Fleet(draws._http, draws._servers).resume()
        return [name for name, _ in play.asked]

    assert asyncio.run(run()) == ["b"]


@pytest.mark.parametrize(
    ("path", "trouble", "comes"),
    [
        ("/pause", 503, True),
        ("/resume", 503, True),
        ("/update_weights", "refused", True),
        ("/update_weights", 503, False),
        ("/finish_weight_update", 503, False),
    ],
)
def test_only_idempotent_calls_are_retried(
    path: str, trouble: str | int, comes: bool, policy: Policy, tmp_path: Path
) -> None:
    once = [trouble]

    async def run() -> dict[str, str]:
        play = Play(policy)
        draws = engine(policy, play, tmp_path)

        def fails_once(request: httpx2.Request) -> httpx2.Response:
            if once and (request.url.host, request.url.path) == ("a", path):
                said = once.pop()
                if isinstance(said, str):
                    raise httpx2.ConnectError(said)
                return httpx2.Response(said, text="busy")
            return play(request)

        draws._http = httpx2.AsyncClient(transport=httpx2.MockTransport(fails_once))
        await draws.take(weights, 1)
        return play.labels

    assert asyncio.run(run()) == {"a": "vtune-1" if comes else CUT_OFF, "b": "vtune-1"}
    assert not once


def test_a_process_that_sends_no_weights_still_sees_which_server_missed_them(
    policy: Policy, tmp_path: Path, hurried: list[float]
) -> None:
    """Nothing reports the failure to this process: the server runs, paused, and would keep its turns."""

    async def run() -> Play:
        play = Play(policy)
        other = ServersEngine(policy, ["http://a", "http://b"], files_sender(tmp_path, first=False))
        first = engine(policy, play, tmp_path)

        def fails(request: httpx2.Request) -> httpx2.Response:
            if (request.url.host, request.url.path) == ("a", "/update_weights"):
                return httpx2.Response(500, text="no such file")
            return play(request)

        first._http = httpx2.AsyncClient(transport=httpx2.MockTransport(fails))
        other._http = httpx2.AsyncClient(transport=httpx2.MockTransport(play))
        await first.take(weights, 1)
        await other.take(weights, 1)
        for group in range(4):
            await other.generate(turn(policy, group))
        assert not hurried, "others are asked at once"
        assert not other._servers[0].given_up
        hurried_by(other, seconds=121.0)
        await other.generate(turn(policy, 0))
        hurried_by(other, seconds=121.0)
        await other.generate(turn(policy, 0))
        assert "did not get the newest weights" in other._servers[0].why
        return play

    assert set(asyncio.run(run()).turns()) == {"b"}


def hurried_by(draws: ServersEngine, *, seconds: float) -> None:
    """Let time pass."""
    for server in draws._servers:
        server.again = 0.0
        if server.late is not None:
            server.late -= seconds


def test_no_first_turn_waits_for_a_server_that_was_given_up(policy: Policy, tmp_path: Path) -> None:
    async def run() -> list[tuple[int, ...]]:
        play = Play(policy)
        draws = engine(policy, play, tmp_path)
        await draws.take(weights, 1)
        asked = asyncio.Event()

        async def frozen(request: httpx2.Request) -> httpx2.Response:
            if (request.url.host, request.url.path) == ("a", "/inference/v1/generate"):
                asked.set()
                await asyncio.Event().wait()
            return play(request)

        draws._http = httpx2.AsyncClient(transport=httpx2.MockTransport(frozen))
        turns = [asyncio.create_task(draws.generate(turn(policy, 0, n))) for n in range(4)]
        await asked.wait()
        draws._servers[0].give_up("it could not pause")
        async with asyncio.timeout(5):
            return [(await one).weight_versions for one in turns]

    assert asyncio.run(run()) == [(1,)] * 4
