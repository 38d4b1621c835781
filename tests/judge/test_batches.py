"""Batches: one under way is waited for, one of another endpoint is not, a file that is none is said."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.judge.batch_server import BatchServer, serve_batches
from vtune.errors import DataError
from vtune.judge.client import JudgeClient, JudgeEndpoint
from vtune.judge.prompts import Prompt

PROMPTS = [Prompt("", text) for text in ("one", "two", "three")]


def asked(server: BatchServer, state: Path) -> list[str | None]:
    """The replies that are known after a batch."""
    endpoint = JudgeEndpoint(
        base_url=server.url,
        model="judge",
        temperature=0.0,
        max_tokens=8,
        concurrency=2,
        retries=0,
        timeout_s=60.0,
        api_key_env=None,
    )

    async def run() -> list[str | None]:
        async with JudgeClient(endpoint) as client:
            await client.ask_in_batch(PROMPTS, state=state, poll_s=0.01)
            return [client.kept(prompt) for prompt in PROMPTS]

    return asyncio.run(run())


def test_the_first_question_is_asked_alone_and_the_others_in_a_batch(tmp_path: Path) -> None:
    with serve_batches(lambda body: body["messages"][-1]["content"][0]["text"].upper()) as server:
        assert asked(server, tmp_path / "state.json") == ["ONE", "TWO", "THREE"]
    assert len(server.single) == 1
    assert [len(file.splitlines()) for file in server.files] == [2]
    assert not (tmp_path / "state.json").exists()


def test_a_batch_of_another_endpoint_is_not_waited_for(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_text(json.dumps({"batch": "batch_7", "of": "http://elsewhere/v1, model other"}))
    with serve_batches(lambda body: "yes") as server:
        # Nobody was asked alone: the file says that a batch is under way.
        assert asked(server, state) == ["yes"] * 3
    assert [len(file.splitlines()) for file in server.files] == [3]
    assert not state.exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"of": 1'])
def test_a_file_that_names_no_batch_is_said_with_what_to_do(text: str, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_text(text)
    with serve_batches(lambda body: "yes") as server, pytest.raises(DataError) as raised:
        asked(server, state)
    assert "state.json" in f"{raised.value.where}{raised.value.what}"
    assert "delete the file" in raised.value.fix
    assert not server.files
