"""Benchmarks with model-graded answers: scores, costs, and what happens without the model."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.judge.batch_server import BatchServer, serve_batches
from tests.judge.server import FakeJudge
from tests.judge.server import serve as serve_any
from tests.runs.commands import vtune
from tests.runs.evaluate.reading import JUDGED, reads
from tests.runs.evaluate.rereading import reread
from tests.runs.evaluate.test_suites import SMALL, evaluated
from vtune.config import find, load_recipe
from vtune.data.formats.table import FORMATS
from vtune.errors import RunFailed
from vtune.judge.client import JudgeClient
from vtune.runs.evaluate.judged import BATCH, CACHE, Grader
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.evaluate.unjudged import UNJUDGED
from vtune.schema.parquet import read_trajectories

TABLE = [(suite, protocol) for suite, (_, protocols) in JUDGED.items() for protocol in protocols]
SUITE, ASKED = "mathverse", 5
"""A suite with three replies: three answers are extracted, and two of them compared."""
NOWHERE = "http://127.0.0.1:9/v1"
serve = partial(serve_any, greets=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file, or folder, in the shape of each benchmark."""
    found = {}
    for suite in JUDGED:
        specimen = FORMATS[load_recipe(find(suite, "eval_suites"), EvalSuite).format].specimen
        assert specimen is not None
        found[suite] = specimen(tmp_path_factory.mktemp("data")).path
    return found


@pytest.fixture
def judge() -> Iterator[FakeJudge]:
    with serve(reads) as running:
        yield running


def grader(judge: FakeJudge | BatchServer | str, **more: Any) -> list[str]:
    """The arguments that name the grader."""
    url = judge if isinstance(judge, str) else getattr(judge, "url", None) or judge.endpoint().base_url  # type: ignore[union-attr]
    values = {"base_url": url, "model": "judge", "api_key_env": None, "retries": 3, "concurrency": 2} | more
    return ["--set", f"grader={json.dumps(values)}"]


def words(suite: str, protocol: str, tiny: Path, data: Path, out: Path) -> list[str | Path]:
    named = ["--suite", suite, "--agent", "direct", "--protocol", protocol, "--model", tiny]
    return ["eval", *named, "--data", data, "--out", out, *SMALL, "--json"]


def stable(folder: Path) -> dict[str, Any]:
    """The parts of a result that must be the same in two evaluations."""
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    del found["seconds"], found["suite"]["grader"]
    found["grader"].pop("by_batch", None)
    found["rewards"] = [t.reward for t in read_trajectories(folder / "trajectories.parquet")]
    found["items"] = (folder / "items.jsonl").read_text()
    return found


@pytest.mark.parametrize(("suite", "protocol"), TABLE)
def test_a_scripted_policy_and_grader_get_the_protocols_score(
    suite: str,
    protocol: str,
    tiny: Path,
    data: dict[str, Path],
    saying: list[str],
    judge: FakeJudge,
    tmp_path: Path,
) -> None:
    replies, protocols = JUDGED[suite]
    saying += replies
    found = evaluated(suite, protocol, tiny, data[suite], tmp_path / "out", *grader(judge))
    score, unreadable = protocols[protocol]
    assert found["samples"] == len(replies)
    assert found["score"]["score"] == pytest.approx(score)
    assert (found["score"]["unreadable"], found["score"]["unscored"]) == (unreadable, 0)
    assert found["score"]["facets"]
    # Only protocols that use the model ask it, and only then is it named.
    assert ("grader" in found) == bool(judge.requests) == (tmp_path / "out" / CACHE).exists()
    if judge.requests:
        facts = found["grader"]
        assert (facts["model"], facts["unscored"], len(facts["prompts"])) == ("judge", [], 64)
        assert facts["input_tokens"] == 10 * len(judge.requests)


def test_without_a_grader_only_rules_count_or_the_suite_is_refused(
    tiny: Path, data: dict[str, Path], saying: list[str], tmp_path: Path
) -> None:
    saying += JUDGED["mathvista"][0]
    found = evaluated("mathvista", "official", tiny, data["mathvista"], tmp_path / "out")
    assert (found["score"]["score"], found["score"]["unreadable"]) == (0.0, 4)
    for suite in ("mathverse", "charxiv-descriptive"):
        ended = vtune(*words(suite, "vlmevalkit", tiny, data[suite], tmp_path / suite))
        assert ended.code == 2
        assert "has a model grade these questions, but the suite names none" in ended.err
        assert not (tmp_path / suite).exists()


def test_a_judge_that_fails_a_fifth_of_its_requests_gives_the_same_scores(
    tiny: Path, data: dict[str, Path], saying: list[str], judge: FakeJudge, tmp_path: Path
) -> None:
    saying += JUDGED[SUITE][0]
    evaluated(SUITE, "official", tiny, data[SUITE], tmp_path / "whole", *grader(judge))
    count = 0

    def fails(body: dict[str, Any]) -> str | int:
        nonlocal count
        count += 1
        return 500 if count % 5 == 2 else reads(body)

    with serve(fails) as busy:
        evaluated(SUITE, "official", tiny, data[SUITE], tmp_path / "busy", *grader(busy))
    assert len(busy.requests) > len(judge.requests) == ASKED
    assert stable(tmp_path / "busy") == stable(tmp_path / "whole")


def test_a_dead_judge_leaves_replies_ungraded_and_the_run_can_resume(
    tiny: Path, data: dict[str, Path], saying: list[str], judge: FakeJudge, tmp_path: Path
) -> None:
    saying += JUDGED[SUITE][0]
    out = tmp_path / "out"
    asked = words(SUITE, "official", tiny, data[SUITE], out)
    with serve(500) as dead:  # after it has answered the greeting
        ended = vtune(*asked, *grader(dead, retries=0))
    assert ended.code == 1
    assert "3 of 3 replies have no grade: mathverse/1, mathverse/2, mathverse/3" in ended.err
    assert "continue with --resume" in ended.err
    rows = [json.loads(line) for line in (out / UNJUDGED).read_text().splitlines()]
    assert [row["sample_id"] for row in rows] == ["mathverse/1", "mathverse/2", "mathverse/3"]
    assert all("no reply" in row["why"] for row in rows)
    assert not (out / "results.json").exists()

    saying.clear()  # a repeated generation would have no reply
    ended = vtune(*asked, *grader(judge), "--resume")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["score"]["score"] == 1.0
    assert not (out / UNJUDGED).exists()


def test_a_run_killed_during_grading_resumes_to_the_same_file(
    tiny: Path,
    data: dict[str, Path],
    saying: list[str],
    judge: FakeJudge,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saying += JUDGED[SUITE][0]
    evaluated(SUITE, "official", tiny, data[SUITE], tmp_path / "whole", *grader(judge))
    judge.requests.clear()
    keep, left = JudgeClient._keep, 3  # the first one answers the greeting

    def dies(self: JudgeClient, *given: Any, **named: Any) -> None:
        nonlocal left
        if not left:
            raise RunFailed("killed")
        left -= 1
        keep(self, *given, **named)

    asked = words(SUITE, "official", tiny, data[SUITE], tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(JudgeClient, "_keep", dies)
        assert vtune(*asked, *grader(judge, concurrency=1)).code == 1
    cache = tmp_path / "out" / CACHE
    assert len(cache.read_text().splitlines()) == 2
    cache.write_text(cache.read_text() + '{"key": "cut sh')
    judge.requests.clear()
    ended = vtune(*asked, *grader(judge, concurrency=1), "--resume")
    assert ended.code == 0, ended.err
    assert len(judge.requests) == ASKED - 2
    assert stable(tmp_path / "out") == stable(tmp_path / "whole")


@pytest.mark.parametrize(
    ("budget", "prices"),
    [
        ({"tokens": 4000}, None),
        ({"money": 0.004}, {"input": 1.0, "cached_input": 0.1, "output": 1.0, "currency": "EUR"}),
    ],
)
def test_a_budget_is_not_exceeded_and_unasked_questions_are_reported(
    budget: dict[str, Any],
    prices: dict[str, Any] | None,
    tiny: Path,
    data: dict[str, Path],
    saying: list[str],
    tmp_path: Path,
) -> None:
    saying += JUDGED[SUITE][0]
    out = tmp_path / "out"
    asked = words(SUITE, "official", tiny, data[SUITE], out)
    limits = {"budget": budget, "prices": prices, "max_tokens": 1000, "concurrency": 1}

    with serve(reads) as judge:
        ended = vtune(*asked, *grader(judge, **limits))
        assert ended.code == 0, ended.err  # five questions of 15 tokens are cheap
    asked = words(SUITE, "official", tiny, data[SUITE], tmp_path / "poor")
    with serve(reads) as judge:
        small = {"tokens": 1200} if prices is None else {"money": 0.0012}
        ended = vtune(*asked, *grader(judge, **limits | {"budget": small}))
    assert ended.code == 1
    assert "may exceed" in ended.err
    assert not judge.requests
    assert (
        json.loads((tmp_path / "poor" / UNJUDGED).read_text().splitlines()[0])["sample_id"] == "mathverse/1"
    )
    with serve(reads) as judge:
        ended = vtune(*asked, *grader(judge, **limits), "--resume")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)["grader"]
    assert (found["input_tokens"], found["output_tokens"]) == (10 * ASKED, 5 * ASKED)
    wanted = None if prices is None else {"amount": pytest.approx(15 * ASKED / 1e6), "currency": "EUR"}
    assert found["cost"] == wanted


def test_money_without_prices_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`budget.money` needs `prices`"):
        Grader(base_url=NOWHERE, model="judge", budget={"money": 1.0})


def test_graded_batches_match_single_questions(
    tiny: Path, data: dict[str, Path], saying: list[str], judge: FakeJudge, tmp_path: Path
) -> None:
    saying += JUDGED[SUITE][0]
    evaluated(SUITE, "official", tiny, data[SUITE], tmp_path / "whole", *grader(judge))
    with serve_batches(reads) as server:
        more = grader(server, batch=True, batch_poll_s=0.01)
        evaluated(SUITE, "official", tiny, data[SUITE], tmp_path / "batch", *more)
    # What is read, its first request separately, and what is compared from that; then other comparisons.
    assert [len(file.splitlines()) for file in server.files] == [3, 1]
    assert len(server.single) == 1
    assert stable(tmp_path / "batch") == stable(tmp_path / "whole")
    assert json.loads((tmp_path / "batch/results.json").read_text())["grader"]["by_batch"] == 4
    assert not (tmp_path / "batch" / BATCH).exists()
    with serve_batches(reads, left_out=2) as server:
        more = grader(server, batch=True, batch_poll_s=0.01)
        evaluated(SUITE, "official", tiny, data[SUITE], tmp_path / "lossy", *more)
    assert len(server.single) > 1
    assert stable(tmp_path / "lossy") == stable(tmp_path / "whole")


def test_a_batch_is_sent_without_refused_settings(
    tiny: Path, data: dict[str, Path], saying: list[str], tmp_path: Path
) -> None:
    saying += JUDGED[SUITE][0]
    with serve_batches(reads, refuses="temperature") as server:
        more = grader(server, batch=True, batch_poll_s=0.01)
        evaluated(SUITE, "official", tiny, data[SUITE], tmp_path / "batch", *more)
    sent = [json.loads(line)["body"] for file in server.files for line in file.splitlines()]
    assert len(sent) == ASKED - 1
    assert not any("temperature" in body for body in sent)


def test_a_missing_grader_is_found_before_generation(
    tiny: Path, data: dict[str, Path], saying: list[str], judge: FakeJudge, tmp_path: Path
) -> None:
    asked = words(SUITE, "official", tiny, data[SUITE], tmp_path / "out")
    for more in ([], ["--dry-run"]):
        ended = vtune(*asked, *grader(NOWHERE, retries=0), *more)  # generating would find nothing to say
        assert ended.code == 1
        assert "check the model that `grader` names" in ended.err
        assert not (tmp_path / "out").exists()
    ended = vtune(*asked, *grader(judge), "--dry-run")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["rollouts"] == 3
    # A protocol without a model does not greet one.
    plain = words(SUITE, "vtune", tiny, data[SUITE], tmp_path / "out")
    ended = vtune(*plain, *grader(NOWHERE, retries=0), "--dry-run")
    assert ended.code == 0
    assert "`grader` is not asked: protocol `vtune`" in ended.err
    assert not (tmp_path / "out").exists()


def test_an_unset_grader_key_is_reported_by_name(
    tiny: Path, data: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    asked = words(SUITE, "official", tiny, data[SUITE], tmp_path / "out")
    more = ["--set", f"grader={{base_url: {NOWHERE}, model: judge}}"]
    ended = vtune(*asked, *more, "--dry-run")
    assert ended.code == 2
    assert "the grader's key is not set: no environment variable OPENAI_API_KEY" in ended.err
    assert "`api_key_env` of `grader` can name another variable, or be null for no key" in ended.err


def test_a_batch_in_progress_is_awaited_and_not_sent_again(
    tiny: Path,
    data: dict[str, Path],
    saying: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saying += JUDGED[SUITE][0]
    asked = words(SUITE, "official", tiny, data[SUITE], tmp_path / "out")

    async def dies(*_: Any) -> None:
        raise RunFailed("killed")

    with serve_batches(reads) as server:
        more = grader(server, batch=True, batch_poll_s=0.01)
        with monkeypatch.context() as patch:
            patch.setattr("vtune.judge.batches.Batches._ended", dies)
            assert vtune(*asked, *more).code == 1
        assert (tmp_path / "out" / BATCH).exists()
        assert len(server.files) == 1
        ended = vtune(*asked, *more, "--resume")
    assert ended.code == 0, ended.err
    assert len(server.files) == 1
    assert len(server.single) == 2  # the first request of each session; that of the second is also its last
    assert json.loads(ended.out)["score"]["score"] == 1.0


def test_a_failed_batch_and_its_replies_are_reported(
    tiny: Path, data: dict[str, Path], saying: list[str], tmp_path: Path
) -> None:
    saying += JUDGED[SUITE][0]
    asked = words(SUITE, "official", tiny, data[SUITE], tmp_path / "out")
    with serve_batches(reads, status="expired") as server:
        ended = vtune(*asked, *grader(server, batch=True, batch_poll_s=0.01))
    assert ended.code == 1
    assert "ended as expired without a reply" in ended.err
    assert "mathverse/1" in ended.err
    # Asking one by one afterwards finishes a folder that no longer names the batch.
    stale = [tmp_path / "out" / BATCH, tmp_path / "out" / "judge.batch.json"]
    for path in stale:
        path.write_text('{"of": "elsewhere", "batches": []}')
    with serve_batches(reads) as server:
        ended = vtune(*asked, *grader(server), "--resume")
    assert ended.code == 0, ended.err
    assert len(server.single) == ASKED - 1
    assert not any(path.exists() for path in stale)


def test_an_unreadable_grader_leaves_few_replies_unscored_and_many_stop_the_run(
    tiny: Path, data: dict[str, Path], saying: list[str], tmp_path: Path
) -> None:
    saying += JUDGED["charxiv-reasoning"][0]

    def mumbles(body: dict[str, Any]) -> str:
        text = body["messages"][-1]["content"][0]["text"]
        return "hm" if "P-101" in text else reads(body)

    asked = words("charxiv-reasoning", "official", tiny, data["charxiv-reasoning"], tmp_path / "out")
    with serve(mumbles) as judge:
        ended = vtune(*asked, *grader(judge))
        assert ended.code == 1
        assert "1 of 2 replies have no grade: charxiv-reasoning/0" in ended.err
        assert "asked twice" in ended.err
        # Asked again, it would say the same: the remedy works without the grade.
        remedy = "--set reward.max_unscored=0.5 --resume"
        assert remedy in ended.err
        again = vtune(*asked, *grader(judge), *remedy.split())
        assert again.code == 0, again.err
        assert json.loads(again.out)["score"]["unscored"] == 1
        more = ["--set", "reward.max_unscored=0.5"]
        out = tmp_path / "lenient"
        found = evaluated(
            "charxiv-reasoning", "official", tiny, data["charxiv-reasoning"], out, *grader(judge), *more
        )
    assert (found["score"]["score"], found["score"]["unscored"]) == (1.0, 1)
    assert found["grader"]["unscored"] == ["charxiv-reasoning/0"]


def test_stored_replies_are_regraded_from_earlier_answers(
    tiny: Path, data: dict[str, Path], saying: list[str], judge: FakeJudge, tmp_path: Path
) -> None:
    saying += JUDGED[SUITE][0]
    out = tmp_path / "out"
    evaluated(SUITE, "official", tiny, data[SUITE], out, *grader(judge))
    judge.requests.clear()
    # VLMEvalKit asks the same.
    for protocol in ("official", "vlmevalkit"):
        again = reread(out, protocol)
        assert (again.score, again.items) == (1.0, 0)
    # lmms-eval compares whole replies, two of which were not compared before.
    assert "2 of 3 replies have no grade" in reread(out, "lmms-eval").why
    assert not judge.requests
    evaluated(SUITE, "vtune", tiny, data[SUITE], tmp_path / "plain")
    assert "has a model grade" in reread(tmp_path / "plain", "official").why
