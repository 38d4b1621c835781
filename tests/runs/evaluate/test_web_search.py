"""`vtune eval --record` and `--replay`: an agent searches the web, and is replayed without it."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import vtune.runs.agent.engines as vtune_engines
import vtune.tools.web as web_search
from tests.judge.server import FakeJudge, serve
from tests.runs.commands import Ended, setting, vtune
from tests.runs.evaluate.scripted import Saying
from tests.runs.evaluate.search_sets import judge, mars_rows
from tests.runs.evaluate.test_suites import SMALL
from tests.tools.web_server import FACT, FakeWeb, serve_web
from vtune.models.chat import Chat
from vtune.rollout.engine import Completion, Request
from vtune.schema.parquet import read_trajectories
from vtune.schema.trajectory import Trajectory
from vtune.tools.calls import CLOSE, OPEN
from vtune.tools.tool import SOURCES


def call(name: str, **arguments: str) -> str:
    asked = json.dumps({"name": name, "arguments": arguments})
    return f"<think>I look it up.</think>\n{OPEN}\n{asked}\n{CLOSE}"


TURNS = [
    call("text_search_tool", query="tower"),
    call("image_search_tool"),
    "<think>So.</think>\n<answer>Eiffel</answer>",
]


class Searching(Saying):
    """Searches by text, then by picture, then answers."""

    def __init__(self, chat: Chat) -> None:
        super().__init__(chat, TURNS)
        self._turns: Counter[Any] = Counter()

    async def generate(self, request: Request) -> Completion:
        turn = self._turns[request.key[:4]]
        self._turns[request.key[:4]] += 1
        return await super().generate(replace(request, key=(0, 0, turn, 0)))


@pytest.fixture
def searching(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vtune_engines, "TransformersEngine", lambda policy, **_: Searching(policy.chat))


@pytest.fixture
def web() -> Iterator[FakeWeb]:
    with serve_web(tower=["http://huggingface.co/answers", "/good"], picture=["/other"]) as found:
        yield found


@pytest.fixture
def grader() -> Iterator[FakeJudge]:
    with serve(judge) as fake:
        yield fake


def evaluated(tiny: Path, data: Path, out: Path, web: FakeWeb, grader: FakeJudge, *more: str | Path) -> Ended:
    summariser = grader.endpoint(model="sums").model_dump_json().replace('"', "'")
    words = setting(
        images__min_pixels=3136,
        rollout__max_turns=4,
        rollouts=1,
        tools__text_search__pages__engine="searxng",
        tools__text_search__pages__url=web.url("/search"),
        tools__text_search__pages__api_key_env="null",
        tools__text_search__pages__limits=f"{{private: ['{web.host}'], timeout_s: 60.0}}",
        tools__text_search__patience__retries=0,
        tools__text_search__summariser=summariser,
        tools__image_search__web=f"{{url: '{web.url('/lens')}', api_key_env: null}}",
        tools__image_search__patience__retries=0,
        reward__judge=grader.endpoint(retries=0).model_dump_json().replace('"', "'"),
    )
    shared = ["--suite", "infoseek", "--agent", "search-web", "--model", tiny, "--data", data, "--out", out]
    return vtune("eval", *shared, *SMALL, *setting(rollout__max_new_tokens=200), *words, *more, "--json")


def drawn(out: Path) -> list[Trajectory]:
    """The trajectories without the durations of calls."""
    return [
        replace(one, calls=tuple(replace(call, seconds=0.0) for call in one.calls))
        for one in read_trajectories(out / "trajectories.parquet")
    ]


def test_an_evaluation_is_replayed_without_the_web(
    tiny: Path, searching: None, web: FakeWeb, grader: FakeJudge, tmp_path: Path
) -> None:
    data, kept = mars_rows(tmp_path, "infoseek", 3), tmp_path / "web.jsonl"
    first = evaluated(tiny, data, tmp_path / "first", web, grader, "--record", kept)
    assert first.code == 0, first.err
    found = json.loads(first.out)
    assert found["score"]["score"] == 1.0
    before = drawn(tmp_path / "first")
    text, picture = before[0].calls
    assert (text.status, picture.status) == ("ok", "ok")
    # Every address that was read is in the trajectory; the benchmark's own pages are nowhere.
    assert f"{SOURCES}\n{web.url('/good')} (read, " in text.output
    assert web.url("/other") in picture.output
    assert "huggingface" not in text.output
    # Three pictures, one text search, one page, one summary.
    kinds = Counter(json.loads(line)["kind"] for line in kept.read_text().splitlines())
    assert kinds == {"picture": 3, "search": 1, "page": 1, "summary": 1}
    shown = [request for request in grader.requests if request["model"] == "sums"]
    assert any(FACT in request["messages"][1]["content"][0]["text"] for request in shown)

    record, sent, summed = kept.read_bytes(), len(web.asked), len(shown)
    again = evaluated(tiny, data, tmp_path / "again", web, grader, "--replay", kept)
    assert again.code == 0, again.err
    assert drawn(tmp_path / "again") == before
    assert json.loads(again.out)["score"] == found["score"]
    assert (len(web.asked), kept.read_bytes()) == (sent, record)
    assert sum(request["model"] == "sums" for request in grader.requests) == summed


def test_an_agent_that_sees_only_snippets_is_also_recorded_and_replayed(
    tiny: Path,
    searching: None,
    web: FakeWeb,
    grader: FakeJudge,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, kept = mars_rows(tmp_path, "infoseek", 3), tmp_path / "web.jsonl"
    monkeypatch.setattr(web_search, "SERPER", replace(web_search.SERPER, url=web.url("/serper")))
    monkeypatch.setenv("SERPER_API_KEY", "secret")
    summariser = grader.endpoint(model="sums").model_dump_json().replace('"', "'")

    def run(name: str, *more: str | Path) -> Ended:
        words = setting(
            images__min_pixels=3136,
            rollout__max_turns=4,
            rollouts=1,
            tools__text_search__summariser=summariser,
            reward__judge=grader.endpoint(retries=0).model_dump_json().replace('"', "'"),
        )
        shared = ["--suite", "infoseek", "--model", tiny, "--data", data, "--out", tmp_path / name]
        return vtune("eval", *shared, *SMALL, *setting(rollout__max_new_tokens=200), *words, *more, "--json")

    first = run("first", "--record", kept)
    assert first.code == 0, first.err
    text = drawn(tmp_path / "first")[0].calls[0]
    assert (text.status, "huggingface" in text.output) == ("ok", False)
    kinds = Counter(json.loads(line)["kind"] for line in kept.read_text().splitlines())
    assert kinds == {"search": 1, "summary": 1}
    assert "secret" not in kept.read_text()

    sent, summed = len(web.asked), sum(one["model"] == "sums" for one in grader.requests)
    monkeypatch.delenv("SERPER_API_KEY")
    again = run("again", "--replay", kept)
    assert again.code == 0, again.err
    assert drawn(tmp_path / "again") == drawn(tmp_path / "first")
    assert len(web.asked) == sent
    assert sum(one["model"] == "sums" for one in grader.requests) == summed
    kept.write_text("")
    missing = run("missing", "--replay", kept)
    assert (missing.code, "the search 'tower' is not on record" in missing.err) == (1, True)


def test_unrecorded_searches_are_unscored_exit_with_1_and_can_resume(
    tiny: Path, searching: None, web: FakeWeb, grader: FakeJudge, tmp_path: Path
) -> None:
    data, kept = mars_rows(tmp_path, "infoseek", 2), tmp_path / "web.jsonl"
    web.engine_status = 503
    down = evaluated(tiny, data, tmp_path / "out", web, grader, "--record", kept)
    assert (down.code, "unscored" in down.err, "search engine searxng" in down.err) == (1, True, True)
    web.engine_status = 200
    resumed = evaluated(tiny, data, tmp_path / "out", web, grader, "--record", kept, "--resume")
    assert resumed.code == 0, resumed.err
    whole = tmp_path / "whole.jsonl"
    assert evaluated(tiny, data, tmp_path / "whole", web, grader, "--record", whole).code == 0
    assert kept.read_bytes() == whole.read_bytes()
    lines = kept.read_text().splitlines(keepends=True)
    kept.write_text("".join(line for line in lines if '"search"' not in line))
    missing = evaluated(tiny, data, tmp_path / "replayed", web, grader, "--replay", kept)
    assert (missing.code, "the search 'tower' is not on record" in missing.err) == (1, True)


def test_replays_and_agents_without_web_access_record_nothing(tiny: Path, tmp_path: Path) -> None:
    words = ["eval", "--suite", "infoseek", "--model", tiny, "--data", mars_rows(tmp_path, "infoseek", 1)]
    both = vtune(*words, "--agent", "search-web", "--record", "a.jsonl", "--replay", "b.jsonl")
    assert (both.code, "there is nothing to record" in both.err) == (2, True)
    none = vtune(*words, "--agent", "direct", "--record", "a.jsonl", "--out", tmp_path / "out")
    assert (none.code, "nothing to record or to replay" in none.err) == (2, True)
