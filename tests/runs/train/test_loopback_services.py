import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from vtune.config import find, load_recipe
from vtune.errors import RecipeError
from vtune.reward.recipe import RewardRecipe
from vtune.runs.train.loopback_services import check_services_here
from vtune.runs.train.rl import idle_judge
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.schema.parquet import read_samples, write_samples
from vtune.update.ranks import Ranks

NEXT = Ranks(rank=8, world=16, local=0)
"""The first process of the second machine."""


def never(_: str) -> bool:
    return False


@pytest.fixture
def port() -> Iterator[int]:
    """A port on which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_service_on_a_loopback_address_must_run_on_every_machine(port: int) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        silent = probe.getsockname()[1]
    here = {"reward": {"judge": {"base_url": f"http://localhost:{port}/v1"}}}
    gone = {"reward": {"service": {"urls": [f"http://127.0.0.1:{port}", f"http://127.0.0.1:{silent}"]}}}
    check_services_here(here, {"lens": here}, NEXT, idle_judge=never)
    with pytest.raises(RecipeError) as refused:
        check_services_here(gone, {"lens": here}, NEXT, idle_judge=never)
    assert f"reward.service.urls is http://127.0.0.1:{silent}, and nothing listens there on" in str(
        refused.value
    )
    assert refused.value.fix.endswith(
        f"that all of them reach, e.g. http://HOST:{silent}"
    )  # not all of the list
    for ranks in (Ranks(0, 16, 0), Ranks(9, 16, 1)):
        check_services_here(gone, {"lens": gone}, ranks, idle_judge=never)


def test_rollout_servers_are_the_same_for_all_machines(port: int) -> None:
    """They get weights from one process: those of another machine would never have them."""
    there = {"rollout": {"servers": ["http://node-3:8000", f"http://localhost:{port}"]}}
    with pytest.raises(
        RecipeError, match=rf"rollout.servers is http://localhost:{port}, and the run"
    ) as refused:
        check_services_here(there, {}, NEXT, idle_judge=never)
    assert refused.value.fix.endswith(f"e.g. http://HOST:{port}")
    check_services_here(there, {}, Ranks(1, 8, 1), idle_judge=never)


def test_other_addresses_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy may be between; the first process has asked them."""
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("asked"))
    values = {
        "tools": {"text_search": {"url": "https://search.example.org"}, "image_search": None},
        "rollout": {"servers": ["http://node-3:8000"]},
        "model": "owner/model",
    }
    check_services_here(values, {}, NEXT, idle_judge=never)


@pytest.mark.parametrize(
    ("recipe", "suite", "port", "said"),
    [
        ({"judge": {"url": "https://localhost/v1"}}, {}, 443, "--set judge.url=https://HOST/v1"),
        ({"judge": {"url": "http://[::1]/v1"}}, {}, 80, "--set judge.url=http://HOST/v1"),
        ({"judge": {"url": "http://0.0.0.0:8000/v1"}}, {}, 8000, "--set judge.url=http://HOST:8000/v1"),
        ({"judge": {"url": "http://[::]:8000/v1"}}, {}, 8000, "--set judge.url=http://HOST:8000/v1"),
        ({"parts": [{"url": "http://127.0.0.1:9"}]}, {}, 9, "parts.url is http://127.0.0.1:9, and"),
        (
            {},
            {"judge": {"url": "http://LOCALHOST:9"}},
            9,
            "judge.url of eval suite lens is http://LOCALHOST:9",
        ),
        ({}, {"judge": {"url": "http://LOCALHOST:9"}}, 9, "reach, e.g. http://HOST:9"),
    ],
)
def test_an_address_without_a_listener_is_reported_with_its_key(
    recipe: dict[str, object],
    suite: dict[str, object],
    port: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def refuse(address: tuple[str, int], **_: object) -> None:
        asked.append(address[1])
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(RecipeError) as refused:
        check_services_here(recipe, {"lens": suite}, NEXT, idle_judge=never)
    assert asked == [port]
    assert said in str(refused.value)


def test_an_unused_judge_need_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", refuse)
    judged = {"reward": {"judge": {"base_url": "http://localhost:9/v1"}}}
    asked: list[str] = []

    def idle(suite: str) -> bool:
        asked.append(suite)
        return suite != "chart"

    check_services_here(judged, {"lens": judged}, NEXT, idle_judge=idle)
    assert asked == ["", "lens"]
    with pytest.raises(
        RecipeError, match="of eval suite chart is http://localhost:9/v1, and nothing listens"
    ):
        check_services_here({}, {"chart": judged}, NEXT, idle_judge=idle)


def test_the_rows_determine_whether_the_judge_is_used(lens: Path, tmp_path: Path) -> None:
    values = load_recipe(find("codev-tiny", "recipes.rl"), RLRecipe, [f"data=[{lens / 'train.parquet'}]"])
    assert idle_judge(values, [], "")
    free = [replace(one, verifier="judge") for one in read_samples(lens / "train.parquet")]
    write_samples(tmp_path / "free.parquet", free)
    judge = {"base_url": "http://localhost:9/v1", "model": "m", "api_key_env": None, "concurrency": 1}
    judge |= {"retries": 0, "timeout_s": 1, "temperature": 0.0, "max_tokens": 8}
    reward = RewardRecipe.model_validate(values.reward.model_dump(mode="json") | {"judge": judge})
    asked = values.model_copy(update={"data": (str(tmp_path / "free.parquet"),), "reward": reward})
    assert not idle_judge(asked, [], "")
    assert idle_judge(values.model_copy(update={"reward": reward}), [], "")
    # A service asks a judge of its own, but regenerated answers are judged here.
    away = asked.model_copy(update={"reward": _with(reward, service=["http://h:1"])})
    assert idle_judge(away, [], "")
    part = {"weight": 0.5, "share": 1.0}
    away = asked.model_copy(update={"reward": _with(reward, service=["http://h:1"], counterfactual=part)})
    assert not idle_judge(away, [], "")


def test_looks_that_are_judged_for_feedback_use_the_judge(lens: Path, tmp_path: Path) -> None:
    values = load_recipe(find("codev-tiny", "recipes.rl"), RLRecipe)
    levels = values.reward.evidence.model_copy(update={"search_abilities": ("free",)})
    unboxed = [replace(one, evidence=(), ability="free") for one in read_samples(lens / "train.parquet")]
    write_samples(tmp_path / "free.parquet", unboxed)
    judge = {"base_url": "http://localhost:9/v1", "model": "m", "api_key_env": None, "concurrency": 1}
    judge |= {"retries": 0, "timeout_s": 1, "temperature": 0.0, "max_tokens": 8}
    reward = _with(values.reward, judge=judge, evidence=levels, tool=0.0)
    asked = values.model_copy(update={"data": (str(tmp_path / "free.parquet"),), "reward": reward})
    assert idle_judge(asked, [], "")
    for service in (None, ["http://h:1"]):
        told = asked.rollout.model_copy(update={"feedback": True})
        rules = _with(reward, service=service)
        assert not idle_judge(asked.model_copy(update={"rollout": told, "reward": rules}), [], "")


def _with(reward: RewardRecipe, **changes: object) -> RewardRecipe:
    return RewardRecipe.model_validate(reward.model_dump() | changes)
