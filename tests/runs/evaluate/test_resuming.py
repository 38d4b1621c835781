"""What an evaluation interrupted within a part generates again, and what it does not."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pytest

import vtune.runs.agent.engines as vtune_engines
from tests.data.benchmarks import make_vstar
from tests.judge.server import FakeJudge, serve
from tests.runs.commands import HANGS, Ended, in_fork, setting, vtune
from tests.runs.evaluate.scripted import Saying
from tests.runs.evaluate.test_suites import SMALL
from vtune.config import find
from vtune.data.formats.table import FORMATS
from vtune.errors import RecipeError, RunFailed
from vtune.rollout import prompts
from vtune.rollout.engine import Completion, Request
from vtune.rollout.transformers import TransformersEngine
from vtune.runs.evaluate import asked_before
from vtune.schema.message import Message
from vtune.schema.parquet import read_trajectories
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

QUESTIONS, AT_ONCE = 12, 2
KILLED_AT = 7
"""Number of the request at which the process is killed."""


def said(body: dict[str, Any]) -> str:
    """An answer that depends on the question."""
    return "ABCD"[crc32(json.dumps(body["messages"]).encode()) % 4]


def asked(model: FakeJudge) -> int:
    """Questions sent to a model, without the greeting."""
    return sum("What is the colour" in json.dumps(body) for body in model.requests)


def test_after_a_kill_only_unfinished_conversations_are_generated_again(tmp_path: Path) -> None:
    data = make_vstar(tmp_path / "vstar_bench", QUESTIONS, (60, 40), (10, 10, 20, 20))
    reached, gone = threading.Event(), threading.Event()
    waiting: list[dict[str, Any]] = []

    def answer(body: dict[str, Any]) -> str:
        if asked(model) >= KILLED_AT and not gone.is_set():
            # Once all possible requests are waiting, no more can be counted after the kill.
            waiting.append(body)
            if len(waiting) == AT_ONCE:
                reached.set()
            gone.wait(HANGS)
        return said(body)

    def words(out: str) -> list[str]:
        named = ["--suite", "vstar", "--agent", "direct", "--data", str(data), "--out", str(tmp_path / out)]
        url = f"openai:http://127.0.0.1:{model.port}/v1#model"
        more = setting(openai__api_key_env="null", rollout__max_batch=AT_ONCE, published__md5="null")
        return ["eval", *named, "--model", url, *more]

    with serve(answer, greets=True) as model:
        said_to_us = tmp_path / "said.txt"
        process = in_fork(said_to_us, lambda: vtune(*words("out")))
        try:
            assert reached.wait(HANGS), said_to_us.read_text()
        finally:
            process.kill()
            process.join()
        sent, held = asked(model), len(list((tmp_path / "out/ended").glob("[0-9]*")))
        assert sent - AT_ONCE <= held < sent
        gone.set()
        assert not list((tmp_path / "out/trajectories").glob("*"))
        model.requests.clear()
        ended = vtune(*words("out"), "--resume")
        assert ended.code == 0, ended.err
        assert asked(model) == QUESTIONS - held
        ended = vtune(*words("whole"))
        assert ended.code == 0, ended.err
    names = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    for name in ("trajectories.parquet", "items.jsonl"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_resumed_evaluation_generates_what_it_would_have_without_the_interruption(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At temperature 1, where every token is random, and with fewer rollouts in the batch."""
    data = make_vstar(tmp_path / "vstar_bench", 6, (60, 40), (10, 10, 20, 20))
    drawn = 0

    class Breaking(TransformersEngine):
        async def generate(self, request: Request) -> Completion:
            nonlocal drawn
            found = await super().generate(request)
            drawn += 1
            if drawn == 2:
                raise RunFailed("the engine broke")
            return found

    named = ["--suite", "vstar", "--agent", "direct", "--model", tiny, "--data", data]
    more = [*SMALL, *setting(published__md5="null", rollout__temperature=1.0, rollout__max_batch=4)]

    def evaluated(out: str, *resume: str) -> Ended:
        return vtune("eval", *named, *more, "--out", tmp_path / out, *resume)

    assert evaluated("whole").code == 0
    with monkeypatch.context() as patch:
        patch.setattr(vtune_engines, "TransformersEngine", Breaking)
        assert evaluated("out").code == 1
    held = len(list((tmp_path / "out/ended").glob("[0-9]*")))
    assert 0 < held < 6
    alone = ["eval", "--resume", "--out", tmp_path / "out"]
    other = vtune(*alone, "--limit", "3")
    assert (other.code, "it differs in limit" in other.err) == (2, True), other.err
    assert vtune(*alone).code == 0
    again = vtune(*alone)
    assert (again.code, "nothing is left to do" in again.err) == (0, True), again.err
    replies = [
        [(one.sample_id, one.token_ids) for one in read_trajectories(tmp_path / out / "trajectories.parquet")]
        for out in ("whole", "out")
    ]
    assert replies[0] == replies[1]
    assert len({tuple(ids) for _, ids in replies[0]}) == 6


def test_a_judge_that_dies_midway_loses_no_reply(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = ["pale", "White.", "grey", "cream", "snow", "milk"]
    monkeypatch.setattr(vtune_engines, "TransformersEngine", lambda policy, **_: Saying(policy.chat, replies))
    write = FORMATS["visual_probe"].specimen
    assert write is not None
    file = write(tmp_path).path
    (row,) = json.loads(file.read_text())
    file.write_text(json.dumps([row | {"doc_id": str(number)} for number in range(len(replies))]))
    lives = 3

    def answer(_: dict[str, Any]) -> str | int:
        return "TRUE" if len(judge.requests) <= lives else 500

    with serve(answer, greets=True) as judge:
        endpoint = judge.endpoint(concurrency=1, retries=0).model_dump_json()
        named = ["--suite", "visual-probe", "--agent", "direct", "--model", tiny, "--data", file]
        words = ["eval", *named, "--out", tmp_path / "out", *SMALL, *setting(reward__judge=endpoint)]
        ended = vtune(*words)
        assert ended.code == 1
        assert "2 of 6 replies have no grade" in ended.err
        assert not (tmp_path / "out/results.json").exists()
        (portion,) = (tmp_path / "out/trajectories").iterdir()
        stored = [(t.reply, t.reward and t.reward.total) for t in read_trajectories(portion)]
        assert [reply for reply, _ in stored] == replies
        assert [total for _, total in stored].count(None) == 2  # and no other one is 0
        assert {total for _, total in stored} == {None, 1.0}

        replies.clear()  # generating again would find nothing to say
        judge.requests.clear()
        lives = 1000
        ended = vtune(*words, "--resume", "--json")
        assert ended.code == 0, ended.err
    assert len(judge.requests) == 2
    assert json.loads(ended.out)["score"]["score"] == 1.0
    assert not (tmp_path / "out/ended").exists()


def test_a_judge_may_get_a_higher_limit_for_unscored_replies(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = ["pale"]
    monkeypatch.setattr(vtune_engines, "TransformersEngine", lambda policy, **_: Saying(policy.chat, replies))
    write = FORMATS["visual_probe"].specimen
    assert write is not None
    file = write(tmp_path).path

    def answer(request: dict[str, Any]) -> str:
        return "<think>Pale may be" if request["max_tokens"] < 100 else "<think>Pale is white.</think>TRUE"

    with serve(answer, greets=True) as judge:

        def evaluate(room: int, *more: str) -> Ended:
            endpoint = judge.endpoint(max_tokens=room).model_dump_json()
            named = ["--suite", "visual-probe", "--agent", "direct", "--model", tiny, "--data", file]
            words = ["eval", *named, "--out", tmp_path / "out", *SMALL, *setting(reward__judge=endpoint)]
            return vtune(*words, *more)

        assert "are unscored" in evaluate(8).err
        replies.clear()  # generating again would find nothing to say
        assert "it differs in suite.reward.judge.max_tokens" in evaluate(4, "--resume").err
        ended = evaluate(100, "--resume", "--json")
        assert ended.code == 0, ended.err
    assert json.loads(ended.out)["score"]["score"] == 1.0


def test_all_suites_are_checked_first_and_a_failing_one_does_not_stop_the_rest(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_vstar(tmp_path / "vstar_bench", 2, (60, 40), (10, 10, 20, 20))
    files = []
    for name in ("first", "second", "third"):
        file = tmp_path / f"{name}.yaml"
        file.write_text(find("vstar", "eval_suites").read_text().replace("data/vstar_bench]", f"{data}]"))
        files.append(str(file))
    out, broken = tmp_path / "out", True

    class Dying(Saying):
        """Fails while the second suite is generated."""

        async def generate(self, request: Request) -> Completion:
            if broken and (out / "second").exists() and not (out / "third").exists():
                raise RunFailed("the engine broke")
            return await super().generate(request)

    replies = ["A", "D"]
    monkeypatch.setattr(vtune_engines, "TransformersEngine", lambda policy, **_: Dying(policy.chat, replies))
    more = ["--agent", "direct", "--model", tiny, "--out", out, *SMALL, *setting(published__rows="null")]
    second = Path(files[1]).read_text()
    Path(files[1]).write_text(second.replace(str(data), str(tmp_path / "nowhere")))
    ended = vtune("eval", "--suite", ",".join(files), *more)
    assert ended.code == 2
    assert "1 of 3 suites cannot be evaluated, so none was started:\n  second: " in ended.err
    assert not out.exists()

    Path(files[1]).write_text(second)
    ended = vtune("eval", "--suite", ",".join(files), *more, "--json")
    assert ended.code == 1
    assert "1 of 3 suites failed:\n  second: the engine broke" in ended.err
    found = json.loads(ended.out)
    assert (list(found["evaluations"]), list(found["failed"])) == (["first", "third"], ["second"])

    broken = False
    ended = vtune("eval", "--suite", ",".join(files), *more, "--resume", "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert (list(found["evaluations"]), found["failed"]) == (["first", "second", "third"], {})


def test_earlier_turns_of_the_assistant_belong_to_the_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = (Message("user", "1+1?"), Message("assistant", "2"), Message("user", "2+2?"))
    sample = Sample(id="sums", source="sums", prompt=turns, ground_truth="4", verifier="exact")
    seen = Trajectory(
        sample_id="sums", source="sums", group=0, rollout=0, messages=(*turns, Message("assistant", "4"))
    )
    for name, found in (("read_records", [sample]), ("stored", [seen]), ("kept_rollouts", [])):
        monkeypatch.setattr(asked_before, name, lambda *_, found=found: iter(found))
    suite: Any = SimpleNamespace(seed=0)
    same: Any = SimpleNamespace(asked=lambda job: turns)
    asked_before.check_asked_before(suite, tmp_path, tmp_path, same)
    other: Any = SimpleNamespace(asked=lambda job: (*turns[:2], Message("user", "3+3?")))
    with pytest.raises(RecipeError, match="began with other prompts"):
        asked_before.check_asked_before(suite, tmp_path, tmp_path, other)


def test_an_evaluation_that_began_with_other_prompts_is_not_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an update of vtune between the two commands: the settings are the same."""
    data = make_vstar(tmp_path / "vstar_bench", 6, (60, 40), (10, 10, 20, 20))
    down = True

    def answer(body: dict[str, Any]) -> str | int:
        return 500 if down and len(model.requests) > 3 else said(body)

    def words(*more: str) -> list[str]:
        named = ["--suite", "vstar", "--agent", "codev", "--data", str(data), "--out", str(tmp_path / "out")]
        url = f"openai:http://127.0.0.1:{model.port}/v1#model"
        single = setting(rollout__max_batch=1, openai__retries=0, openai__api_key_env="null", offers=[])
        return ["eval", *named, "--model", url, *single, *more]

    with serve(answer, greets=True) as model:
        ended = vtune(*words())
        assert ended.code == 1, ended.err
        down = False
        model.requests.clear()
        with monkeypatch.context() as patch:
            patch.setattr(prompts, "CODEV_FORMAT", prompts.CODEV_FORMAT.replace("required", "needed"))
            ended = vtune(*words("--resume"))
            assert ended.code == 2, ended.err
            assert "began with other prompts" in ended.err
            assert "adherence required" in ended.err
            assert "adherence needed" in ended.err
            assert asked(model) == 0
        ended = vtune(*words("--resume"))
        assert ended.code == 0, ended.err
        with monkeypatch.context() as patch:  # nothing is left to ask, so nothing is mixed
            patch.setattr(prompts, "CODEV_FORMAT", "")
            assert vtune(*words("--resume")).code == 0
