"""Batches: what goes into one, what is returned, and that no question is paid for twice."""

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import vtune.judge.batches as vtune_batches
from tests.judge.batch_server import BatchServer, serve_batches
from tests.models.rows import picture
from vtune.errors import DataError, RunFailed, ServiceError
from vtune.judge.client import JudgeClient
from vtune.judge.completions import NoReply, NoVerdict
from vtune.judge.endpoint import BatchedEndpoint
from vtune.judge.prompts import Prompt
from vtune.schema.message import Picture

PROMPTS = [Prompt("", text) for text in ("one", "two", "three")]
Question = tuple[Prompt, tuple[Picture, ...]]
PLAIN: list[Question] = [(prompt, ()) for prompt in PROMPTS]


def shouts(body: dict[str, Any]) -> str:
    """The text of a question in capitals, and the number of its pictures."""
    text, *pictures = body["messages"][-1]["content"]
    return text["text"].upper() + "!" * len(pictures)  # type: ignore[no-any-return]


def endpoint(server: BatchServer, **changes: Any) -> BatchedEndpoint:
    values: dict[str, Any] = {
        "base_url": server.url,
        "model": "judge",
        "temperature": 0.0,
        "max_tokens": 8,
        "concurrency": 2,
        "retries": 0,
        "timeout_s": 60.0,
        "api_key_env": None,
    }
    return BatchedEndpoint(**(values | changes))


async def replies(client: JudgeClient, questions: Sequence[Question]) -> list[str | ServiceError]:
    """The client's reply to each question, or the reason for its absence."""

    async def reply(prompt: Prompt, pictures: Sequence[Picture]) -> str | ServiceError:
        try:
            return await client.ask(prompt, pictures)
        except ServiceError as error:
            return error

    return await asyncio.gather(*(reply(*question) for question in questions))


def asked(
    server: BatchServer,
    state: Path,
    questions: Sequence[Question] = PLAIN,
    cache: Path | None = None,
    **changes: Any,
) -> tuple[list[str | ServiceError], dict[str, Any]]:
    """The replies after batches, and the client's own statistics."""

    async def run() -> tuple[list[str | ServiceError], dict[str, Any]]:
        async with JudgeClient(endpoint(server, **changes), cache=cache) as client:
            await client.ask_in_batches(
                partial(replies, client, questions), state=state, poll_s=0.01, tell=print
            )
            return await replies(client, questions), client.facts()

    return asyncio.run(run())


def lines(server: BatchServer) -> list[int]:
    """The number of questions in each batch."""
    return [len(file.splitlines()) for file in server.files]


def test_the_first_question_is_asked_alone_and_the_others_in_a_batch(tmp_path: Path) -> None:
    with serve_batches(shouts) as server:
        found, facts = asked(server, tmp_path / "state.json")
    assert found == ["ONE", "TWO", "THREE"]
    assert len(server.single) == 1
    assert lines(server) == [2]
    assert not (tmp_path / "state.json").exists()
    assert (facts["by_batch"], facts["input_tokens"], facts["output_tokens"]) == (2, 30, 15)


def test_a_reply_may_contain_any_line_separators(tmp_path: Path) -> None:
    with serve_batches(lambda body: "TRUE\u2028so\x85it is") as server:
        found, facts = asked(server, tmp_path / "state.json")
    assert found == ["TRUE\u2028so\x85it is"] * 3
    assert (facts["by_batch"], len(server.single)) == (2, 1)


def test_pictures_go_into_a_batch_and_distinguish_questions(tmp_path: Path) -> None:
    one, other = (Picture(picture(8, height)) for height in (8, 9))
    questions: list[Question] = [
        (PROMPTS[0], shown) for shown in ((), (one,), (other,), (one, other), (one,))
    ]
    cache = tmp_path / "judge.jsonl"
    with serve_batches(shouts) as server:
        found, _ = asked(server, tmp_path / "state.json", questions, cache)
        assert found == ["ONE", "ONE!", "ONE!", "ONE!!", "ONE!"]
        assert lines(server) == [3]
        again, facts = asked(server, tmp_path / "state.json", questions, cache)
    assert (again, facts["by_batch"]) == (found, 3)
    assert (lines(server), len(server.single)) == ([3], 1)


def test_a_question_that_depends_on_a_reply_goes_into_the_next_batch(tmp_path: Path) -> None:
    def mumbles(body: dict[str, Any]) -> str:
        system = body["messages"][0]["content"]
        return "TRUE" if isinstance(system, str) and "could not be read" in system else "hm"

    async def run(server: BatchServer) -> list[bool]:
        def read(reply: str) -> bool | None:
            return True if reply == "TRUE" else None

        async with JudgeClient(endpoint(server)) as client:

            async def ask_all() -> list[bool]:
                wanted = [client.ask_for(prompt, (), read, "TRUE") for prompt in PROMPTS]
                found = await asyncio.gather(*wanted, return_exceptions=True)
                return [one for one in found if isinstance(one, bool)]

            await client.ask_in_batches(ask_all, state=tmp_path / "state.json", poll_s=0.01, tell=print)
            return await ask_all()

    with serve_batches(mumbles) as server:
        assert asyncio.run(run(server)) == [True] * 3
    # The first item's first question was asked alone, so its second is already in the first batch.
    assert (len(server.single), lines(server)) == (1, [3, 2])


def test_questions_too_large_for_one_batch_are_sent_in_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vtune_batches, "MOST_QUESTIONS", 2)
    questions: list[Question] = [(Prompt("", str(number)), ()) for number in range(6)]
    with serve_batches(shouts) as server:
        found, facts = asked(server, tmp_path / "state.json", questions)
    assert found == list("012345")
    assert (lines(server), facts["by_batch"]) == ([2, 2, 1], 5)
    monkeypatch.setattr(vtune_batches, "MOST_BYTES", 1)
    with serve_batches(shouts) as server:
        found, _ = asked(server, tmp_path / "state.json", questions)
    assert (found, lines(server)) == (list("012345"), [1] * 5)


def test_a_batch_at_another_endpoint_is_not_awaited(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    one = {"file": "file_7", "batch": "batch_7", "questions": 1, "held": {"input": 1, "output": 1}}
    state.write_text(json.dumps({"batches": [one], "of": "http://elsewhere/v1, model other"}))
    with serve_batches(shouts) as server:
        found, _ = asked(server, state)
    assert found == ["ONE", "TWO", "THREE"]
    assert lines(server) == [2]
    assert not state.exists()


@pytest.mark.parametrize("killed", ["_ended", "_begun"])
def test_a_batch_in_progress_when_a_run_was_killed_is_awaited_not_resent(
    killed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, cache = tmp_path / "state.json", tmp_path / "judge.jsonl"

    async def dies(*_: Any) -> None:
        raise RunFailed("killed")

    write, writes = vtune_batches.Batches._write, 0

    def dies_before_the_name_is_written(self: vtune_batches.Batches) -> None:
        nonlocal writes
        writes += 1
        if writes == 2:
            raise RunFailed("killed")
        write(self)

    with serve_batches(shouts) as server:
        with monkeypatch.context() as patch:
            if killed == "_ended":
                patch.setattr(vtune_batches.Batches, "_ended", dies)
            else:
                patch.setattr(vtune_batches.Batches, "_write", dies_before_the_name_is_written)
            with pytest.raises(RunFailed):
                asked(server, state, cache=cache)
        assert state.exists()
        assert json.loads(state.read_text())["batches"][0]["batch"] == (
            "batch_0" if killed == "_ended" else None
        )
        found, facts = asked(server, state, cache=cache)
    assert found == ["ONE", "TWO", "THREE"]
    assert (lines(server), len(server.batches), len(server.single)) == ([2], 1, 1)
    assert (facts["by_batch"], facts["input_tokens"]) == (2, 30)
    assert not state.exists()


def test_a_batch_that_was_never_created_is_sent_again(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    with serve_batches(shouts) as server:
        one = {"file": "file_9", "batch": None, "questions": 2, "held": {"input": 1, "output": 1}}
        facts = {"batches": [one], "of": f"{server.url}, model judge"}
        state.write_text(json.dumps(facts))
        found, _ = asked(server, state)
    assert (found, lines(server)) == (["ONE", "TWO", "THREE"], [2])


def test_a_batch_lost_by_the_endpoint_is_reported_and_sent_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state.json"
    with serve_batches(shouts) as server:
        one = {"file": "file_9", "batch": "batch_9", "questions": 2, "held": {"input": 1, "output": 1}}
        state.write_text(json.dumps({"batches": [one], "of": f"{server.url}, model judge"}))
        found, _ = asked(server, state)
    assert (found, lines(server)) == (["ONE", "TWO", "THREE"], [2])
    assert "no longer knows the batch batch_9: its questions are asked again" in capsys.readouterr().out
    assert not state.exists()


def test_replies_saved_by_a_killed_run_are_not_counted_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, cache = tmp_path / "state.json", tmp_path / "judge.jsonl"

    def dies(*_: Any) -> None:
        raise RunFailed("killed")

    with serve_batches(shouts) as server:
        with monkeypatch.context() as patch:
            patch.setattr(vtune_batches.Batches, "_forget", dies)
            with pytest.raises(RunFailed):
                asked(server, state, cache=cache)
        assert len(cache.read_text().splitlines()) == 3
        _, facts = asked(server, state, cache=cache)
    assert (facts["by_batch"], facts["input_tokens"]) == (2, 30)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"status": "failed"}, "ended as failed without a reply"),
        ({"status": "expired"}, "ended as expired without a reply"),
        ({"status": "cancelled"}, "ended as cancelled without a reply"),
        ({"left_out": 1}, "ended as completed without a reply: line 1 failed"),
    ],
)
def test_a_batch_without_replies_is_reported_and_nothing_is_asked_alone(
    more: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with serve_batches(shouts, **more) as server:
        found, _ = asked(server, tmp_path / "state.json")
        assert found[0] == "ONE"
        assert all(isinstance(one, NoReply) and why in one.what for one in found[1:])
        assert len(server.single) == 1
        assert not (tmp_path / "state.json").exists()


def test_an_endpoint_without_batches_is_reported(tmp_path: Path) -> None:
    with serve_batches(shouts) as server:
        server.none = True
        found, _ = asked(server, tmp_path / "state.json")
    assert found[0] == "ONE"
    assert all(isinstance(one, NoReply) for one in found[1:])
    assert "404" in str(found[1])
    assert "`batch: false`" in str(found[1])
    assert not (tmp_path / "state.json").exists()


def test_an_expired_batch_keeps_its_replies_and_reports_the_rest(tmp_path: Path) -> None:
    def all_but_three(body: dict[str, Any]) -> str | int:
        return 429 if "three" in str(body) else shouts(body)

    with serve_batches(all_but_three, status="expired", partly=True) as server:
        found, facts = asked(server, tmp_path / "state.json")
    assert found[:2] == ["ONE", "TWO"]
    assert "ended as expired without 1 of 2 replies: line 2 failed" in str(found[2])
    assert "if it expired, --resume asks the rest again" in str(found[2])
    assert (facts["by_batch"], len(server.single)) == (1, 1)


@pytest.mark.parametrize("differ", [True, False])
def test_a_question_with_two_different_replies_in_a_batch_is_asked_again(
    differ: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = vtune_batches.Batches._lines_of

    async def twice(self: vtune_batches.Batches, file: str | None) -> list[str]:
        found = await fetched(self, file)
        return [*found, *(line.replace("TWO", "ELSE" if differ else "TWO") for line in found)]

    monkeypatch.setattr(vtune_batches.Batches, "_lines_of", twice)
    cache = tmp_path / "judge.jsonl"
    with serve_batches(shouts) as server:
        found, facts = asked(server, tmp_path / "state.json", cache=cache)
        again, _ = asked(server, tmp_path / "state.json", cache=cache)
    assert found == again == ["ONE", "TWO", "THREE"]
    assert (facts["by_batch"], len(server.single)) == ((1, 2) if differ else (2, 1))
    rows = [json.loads(line) for line in cache.read_text().splitlines()]
    none = [row["input"] for row in rows if row["reply"] is None]
    assert none == ([2 * next(row["input"] for row in rows if row["reply"])] if differ else [])


def test_a_few_questions_missing_from_a_batch_are_asked_alone(tmp_path: Path) -> None:
    with serve_batches(shouts, left_out=2) as server:
        found, facts = asked(server, tmp_path / "state.json")
    assert found == ["ONE", "TWO", "THREE"]
    assert (facts["by_batch"], len(server.single)) == (1, 2)

    def refuses(body: dict[str, Any]) -> str | int:
        return 400 if "three" in str(body) else shouts(body)

    with serve_batches(refuses) as server:
        found, _ = asked(server, tmp_path / "state.json")
    assert isinstance(found[2], NoVerdict)  # the same as without a batch


@pytest.mark.parametrize("counts", [True, False])
def test_a_budget_is_kept_and_deferred_questions_go_into_the_next_batch(counts: bool, tmp_path: Path) -> None:
    # A question may take at most 80 tokens: its bytes, the chat template's tokens, and the reply.
    questions: list[Question] = [(Prompt("", f"{number:08d}"), ()) for number in range(9)]
    most = 8 + 64 + 8
    with serve_batches(shouts, counts=counts) as server:
        found, facts = asked(
            server, tmp_path / "state.json", questions, budget={"tokens": 4 * most}, retries=0
        )
    spent = facts["input_tokens"] + facts["output_tokens"]
    assert spent <= 4 * most
    answered = sum(isinstance(one, str) for one in found)
    if counts:  # the replies' actual usage is lower, so more fit
        assert (answered, lines(server)) == (9, [3, 3, 2])
    else:
        assert (answered, lines(server)) == (4, [3])
        assert "may exceed the budget" in str(found[-1])


def test_a_budget_counts_an_earlier_batch_without_token_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, cache = tmp_path / "state.json", tmp_path / "judge.jsonl"

    async def dies(*_: Any) -> None:
        raise RunFailed("killed")

    with serve_batches(shouts, counts=False) as server:
        with monkeypatch.context() as patch:
            patch.setattr(vtune_batches.Batches, "_ended", dies)
            with pytest.raises(RunFailed):
                asked(server, state, cache=cache)
        _, facts = asked(server, state, cache=cache)
    held = [len(prompt.text) + 64 for prompt in PROMPTS]
    assert sum(held) <= facts["input_tokens"] <= sum(held) + 1
    assert facts["output_tokens"] == 3 * 8


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"of": 1', '{"of": "URL, model judge", "batches": [{"file": 1}]}']
)
def test_a_file_without_a_batch_id_is_reported_with_a_fix(text: str, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    with serve_batches(shouts) as server:
        state.write_text(text.replace("URL", server.url))
        with pytest.raises(DataError) as raised:
            asked(server, state)
    assert "state.json" in f"{raised.value.where}{raised.value.what}"
    assert "delete the file" in raised.value.fix
    assert not server.files
