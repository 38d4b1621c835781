"""The judge of a suite's reward in batches: the same numbers, and the effect of a broken batch."""

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.judge.batch_server import BatchServer, serve_batches
from tests.judge.server import serve
from tests.models.rows import picture
from tests.runs.commands import HANGS, Ended, in_fork, rl, setting, vtune
from tests.runs.evaluate import search_sets
from tests.runs.evaluate.rereading import reread
from tests.runs.evaluate.scripted import evaluate, write_script
from vtune.config import dump_recipe, find, load_recipe
from vtune.errors import RecipeError
from vtune.judge.prompts import ANSWER_SYSTEM, EVIDENCE_SYSTEM, TARGET_SYSTEM
from vtune.runs.evaluate.rejudged import BATCH, CACHE
from vtune.runs.evaluate.unjudged import UNJUDGED
from vtune.runs.serve.rewards import read_reward
from vtune.runs.train.online_recipe import OnlineEval
from vtune.runs.train.online_suites import load_suites
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.schema.parquet import read_trajectories

ANSWERS = ["pale", "White.", "grey", "cream", "snow", "milk"]
"""The second is the exact truth; the judge accepts two of the others."""
LOOKS = 6
"""Number of calls, one per question; the judge calls two of them a miss."""
SUITE = "visual-probe"


def judge(body: dict[str, Any]) -> str | int:
    """A judge of answers, looks and levels."""
    system = body["messages"][0]["content"]
    text, *pictures = body["messages"][-1]["content"]
    if system.startswith(ANSWER_SYSTEM):
        return "TRUE" if '"cream"' in text["text"] or '"milk"' in text["text"] else "FALSE"
    assert len(pictures) == 1
    number = int(text["text"].partition("sign ")[2][0])
    if system.startswith(TARGET_SYSTEM):
        return "0" if number in (1, 2) else "1"
    assert system.startswith(EVIDENCE_SYSTEM)
    return "0.25" if number in (1, 2) else "1"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Open questions about pictures without boxes: a model judges answers and looks."""
    here = tmp_path / "VisualProbe_Hard"
    (here / "images").mkdir(parents=True)
    rows = []
    for number in range(len(ANSWERS)):
        (here / f"images/{number}.png").write_bytes(picture(300, 200 + number))
        rows.append(
            {
                "problem": f"<image>\nWhat is the colour of sign {number}?",
                "images": [f"images/{number}.png"],
                "solution": "white",
                "doc_id": str(number),
            }
        )
    (here / "val.json").write_text(json.dumps(rows))
    return here / "val.json"


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Looks once, then answers."""
    look = {"bbox_2d": [20, 20, 150, 150], "label": "sign", "img_idx": 0}
    call = json.dumps({"name": "image_zoom_in_tool", "arguments": look})
    turns = [
        [f"<think>look</think>\n<tool_call>{call}</tool_call>", f"<think>so</think>\n<answer>{one}</answer>"]
        for one in ANSWERS
    ]
    names = [f"visual_probe_hard/{number}" for number in range(len(ANSWERS))]
    return write_script(tmp_path / "replies.jsonl", dict(zip(names, turns, strict=True)))


def asking(url: str, **changes: Any) -> list[str]:
    """The arguments that name the judge."""
    values = {"base_url": url, "model": "judge", "temperature": 0.0, "max_tokens": 8, "concurrency": 4}
    values |= {"retries": 0, "timeout_s": 60.0, "api_key_env": None}
    return setting(reward__judge=json.dumps(values | changes))


def batching(server: BatchServer, **changes: Any) -> list[str]:
    return asking(server.url, batch=True, batch_poll_s=0.01, **changes)


def stable(folder: Path) -> dict[str, Any]:
    """Everything that must be the same in two evaluations."""
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    del found["seconds"], found["suite"]["reward"]["judge"]
    found["reward.judge"].pop("by_batch", None)
    found["trajectories"] = [
        replace(one, calls=tuple(replace(call, seconds=0.0) for call in one.calls))
        for one in read_trajectories(folder / "trajectories.parquet")
    ]
    found["items"] = (folder / "items.jsonl").read_text()
    found["asked"] = {json.loads(line)["key"] for line in (folder / CACHE).read_text().splitlines()}
    return found


def facts(ended: Ended) -> dict[str, Any]:
    assert ended.code == 0, ended.err
    found: dict[str, Any] = json.loads(ended.out)["reward.judge"]
    return found


@pytest.mark.parametrize("tool", [0.0, 0.5])
def test_batches_give_the_same_numbers_as_single_questions(
    tool: float, model: str, data: Path, tmp_path: Path
) -> None:
    more = setting(reward__tool=tool, rollouts=2)
    lines = (tmp_path / "replies.jsonl").read_text().splitlines()
    again = [json.dumps(json.loads(line) | {"rollout": 1}) for line in lines]
    (tmp_path / "replies.jsonl").write_text("\n".join([*lines, *again]))
    with serve(judge, greets=True) as alone:
        url = alone.endpoint().base_url
        whole = evaluate(SUITE, model, data, tmp_path / "whole", *asking(url), *more)
    questions = len(ANSWERS) - 1 + LOOKS * (2 if tool else 1)
    assert "by_batch" not in facts(whole)
    assert set(facts(whole)["prompts"]) == {"answers", "looks"} | ({"levels"} if tool else set())
    assert len(alone.requests) == questions
    with serve_batches(judge) as server:
        found = evaluate(SUITE, model, data, tmp_path / "batch", *batching(server), *more)
    assert facts(found)["by_batch"] == questions - 1
    assert len(server.single) == 1
    assert [len(file.splitlines()) for file in server.files] == [questions - 1]
    assert stable(tmp_path / "batch") == stable(tmp_path / "whole")
    score = json.loads(found.out)
    assert score["score"]["score"] == pytest.approx(3 / 6)
    assert score["judged_by"]["model"] == 12
    assert not (tmp_path / "batch" / BATCH).exists()
    assert "is asked in batches" in found.err
    assert not list((tmp_path / "batch").glob("ended*"))


@pytest.mark.parametrize(("suite", "protocol"), [("hr-mmsearch", "mars"), ("simplevqa", "official")])
def test_a_judge_that_sees_the_question_and_several_truths_gives_the_same_in_batches(
    suite: str, protocol: str, tmp_path: Path
) -> None:
    data = search_sets.data_of(suite, tmp_path)
    rows = range(len(search_sets.REPLIES))
    source = "simplevqa_en" if suite == "simplevqa" else "hr_mmsearch"
    said = {f"{source}/data/{number}": [search_sets.REPLIES[number]] for number in rows}
    model = write_script(tmp_path / "r.jsonl", said)
    more = ["--agent", "direct", "--protocol", protocol, *setting(rollouts=1)]
    with serve(search_sets.judge, greets=True) as alone:
        url = alone.endpoint().base_url
        facts(evaluate(suite, model, data, tmp_path / "whole", *asking(url), *more))
    with serve_batches(search_sets.judge) as server:
        found = facts(evaluate(suite, model, data, tmp_path / "batch", *batching(server), *more))
    # All truths of an answer are in one batch.
    assert len(server.files) == 1
    assert found["by_batch"] == len(server.files[0].splitlines())
    pictures = server.files[0].count(b"image_url")
    assert (pictures > 0) == (protocol == "mars")
    batch, whole = stable(tmp_path / "batch"), stable(tmp_path / "whole")
    spent = [one.pop("reward.judge") for one in (batch, whole)]
    assert spent[0]["prompts"] == spent[1]["prompts"]
    assert batch.pop("asked") >= whole.pop("asked")
    assert batch == whole


BROKEN = [
    ({"status": "failed"}, "ended as failed without a reply"),
    ({"status": "expired"}, "ended as expired without a reply"),
    ({"left_out": 1}, "without a reply: line 1 failed"),
    ({}, "404"),
]


@pytest.mark.parametrize(("more", "why"), BROKEN)
def test_a_broken_batch_leaves_replies_unscored_and_exits_with_1(
    more: dict[str, Any], why: str, model: str, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with serve_batches(judge, **more) as server:
        server.none = not more
        ended = evaluate(SUITE, model, data, out, *batching(server), *setting(reward__max_unscored=1.0))
        assert len(server.single) == 1
    assert ended.code == 1
    assert "4 of 6 replies have no grade" in ended.err
    assert why in ended.err
    rows = [json.loads(line) for line in (out / UNJUDGED).read_text().splitlines()]
    assert len(rows) == 4
    assert all(why in row["why"] for row in rows)
    (portion,) = (out / "trajectories").iterdir()
    totals = [t.reward.total for t in read_trajectories(portion) if t.reward is not None]
    assert (len(totals), totals.count(None)) == (6, 4)
    right = [0.0, 1.0, 0.0, 1.0, 0.0, 1.0]  # for the second, and for the one asked alone
    assert all(total in (None, score) for total, score in zip(totals, right, strict=True))
    assert not (out / "results.json").exists()

    with serve_batches(judge) as server:
        again = setting(reward__max_unscored=1.0)
        ended = evaluate(SUITE, model, data, out, *batching(server), *again, "--resume")
        assert facts(ended)["by_batch"] == 4 + LOOKS - 1
    assert json.loads(ended.out)["score"]["score"] == pytest.approx(3 / 6)
    assert not (out / UNJUDGED).exists()


@pytest.mark.parametrize("batch", [False, True])
def test_unjudged_looks_are_reported_even_if_within_the_unscored_limit(
    batch: bool, data: Path, model: str, tmp_path: Path
) -> None:
    out, script = tmp_path / "out", tmp_path / "replies.jsonl"
    for answer in ANSWERS:  # the truth, word for word
        script.write_text(script.read_text().replace(f"<answer>{answer}<", "<answer>white<"))
    allowed = setting(reward__max_unscored=1.0)
    with serve_batches(judge) as server, serve(500, greets=True) as dead:
        server.none = True
        words = batching(server) if batch else asking(dead.endpoint().base_url)
        ended = evaluate(SUITE, model, data, out, *words, *allowed)
        assert ended.code == 1
        left = LOOKS - 1 if batch else LOOKS  # the first was asked separately
        assert f"{left} of 6 replies have no verdict on what their calls show" in ended.err
        assert len((out / UNJUDGED).read_text().splitlines()) == left
        assert not (out / "results.json").exists()
        server.none = False
        ended = evaluate(SUITE, model, data, out, *batching(server), *allowed, "--resume")
    assert facts(ended)["input_tokens"] == 10 * LOOKS
    assert json.loads(ended.out)["unaudited"] == 0
    assert not (out / UNJUDGED).exists()


def test_a_run_interrupted_while_waiting_resumes_with_its_batch(
    model: str, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with serve_batches(judge, polls=10**9) as server:
        said = tmp_path / "said.txt"

        def run() -> Ended:
            # A background job ignores Ctrl-C, and so would its child processes.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            return evaluate(SUITE, model, data, out, *batching(server))

        process = in_fork(said, run)
        try:
            waited = time.monotonic() + HANGS
            while not (server.batches and server.batches[0]):
                assert process.is_alive(), said.read_text()
                assert time.monotonic() < waited
                time.sleep(0.05)
            assert process.pid is not None
            os.kill(process.pid, signal.SIGINT)
            process.join(HANGS)
        finally:
            process.kill()
        assert process.exitcode == 130, said.read_text()
        assert (out / BATCH).exists()
        assert len(list((out / "trajectories").iterdir())) == 1
        server.polls = 0
        ended = evaluate(SUITE, model, data, out, *batching(server), "--resume")
        found = facts(ended)
    questions = len(ANSWERS) - 1 + LOOKS
    assert (len(server.batches), len(server.single)) == (1, 1)
    assert found["by_batch"] == questions - 1
    assert (found["input_tokens"], found["output_tokens"]) == (10 * questions, 5 * questions)
    assert json.loads(ended.out)["score"]["score"] == pytest.approx(3 / 6)
    assert not (out / BATCH).exists()


@pytest.mark.parametrize("money", [False, True])
def test_a_budget_is_kept_and_left_out_questions_are_reported(
    money: bool, model: str, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    prices = {"input": 1.0, "cached_input": 0.1, "output": 1.0, "currency": "EUR"}

    def limited(tokens: int) -> dict[str, Any]:
        return (
            {"prices": prices, "budget": {"money": tokens / 1e6}} if money else {"budget": {"tokens": tokens}}
        )

    with serve_batches(judge, counts=False) as server:
        ended = evaluate(SUITE, model, data, out, *batching(server, **limited(2500)))
        assert ended.code == 1
        assert "may exceed" in ended.err
        kept = [json.loads(line) for line in (out / CACHE).read_text().splitlines()]
        assert 0 < sum(row["input"] + row["output"] for row in kept) <= 2500
        named = {json.loads(line)["sample_id"] for line in (out / UNJUDGED).read_text().splitlines()}
        assert named
        ended = evaluate(SUITE, model, data, out, *batching(server, **limited(10**6)), "--resume")
    spent = facts(ended)
    assert json.loads(ended.out)["score"]["score"] == pytest.approx(3 / 6)
    total = spent["input_tokens"] + spent["output_tokens"]
    cost = {"amount": pytest.approx(total / 1e6), "currency": "EUR"}
    assert spent["cost"] == (cost if money else None)


def test_a_dry_run_accepts_batches_and_writes_nothing(model: str, data: Path, tmp_path: Path) -> None:
    with serve_batches(judge) as server:
        ended = evaluate(SUITE, model, data, tmp_path / "out", *batching(server), "--dry-run")
        assert ended.code == 0, ended.err
        feedback = setting(rollout__feedback="true")
        refused = evaluate(SUITE, model, data, tmp_path / "out", *batching(server), *feedback, "--dry-run")
    assert (server.files, server.single) == ([], [])
    assert refused.code == 2
    assert "rollout.feedback needs the judge's verdict" in refused.err
    assert not (tmp_path / "out").exists()


def test_stored_replies_are_reread_from_batches(model: str, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with serve_batches(judge) as server:
        facts(evaluate(SUITE, model, data, out, *batching(server)))
        asked = len(server.files)
        assert reread(out, "vtune").score == pytest.approx(3 / 6)
        (out / CACHE).unlink()
        assert "5 of 6 replies have no grade" in reread(out, "vtune").why
        assert len(server.files) == asked


def test_training_and_services_refuse_batches(tiny: Path, data: Path, tmp_path: Path) -> None:
    nobody = BatchServer(judge, 0, 0, "completed", partly=False, counts=True)
    nobody.port = 9
    words = batching(nobody)
    ended = vtune(*rl(tiny, data, tmp_path / "out", *words), "--dry-run")
    assert ended.code == 2
    assert "every step waits for its rewards" in ended.err
    served = tmp_path / "served.yaml"
    recipe = load_recipe(find("codev-tiny", "recipes.rl"), RLRecipe, [])
    text = dump_recipe(recipe)
    assert "  judge: null\n" in text
    judge_line = f"  judge: {words[1].removeprefix('reward.judge=')}\n"
    served.write_text(text.replace("  judge: null\n", judge_line))
    with pytest.raises(RecipeError, match="a client of the service waits"):
        read_reward(str(served))
    settings = {"reward.judge": json.loads(words[1].removeprefix("reward.judge="))}
    suites = [{"suite": SUITE, "limit": None, "settings": settings}]
    with pytest.raises(RecipeError, match="training does not wait for one"):
        load_suites(OnlineEval.model_validate({"every": 1, "suites": suites}), kind="transformers")
    service = setting(reward__service="[http://127.0.0.1:9]")
    ended = evaluate(SUITE, "scripted:none", data, tmp_path / "out", *words, *service)
    assert (ended.code, "a service asks its own judge" in ended.err) == (2, True)
