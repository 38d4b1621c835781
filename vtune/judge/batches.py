"""Many questions in one batch of an OpenAI-compatible server (`/v1/batches`): slower, and cheaper."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from vtune.errors import ServiceError
from vtune.files.json_text import parse_json, read_record
from vtune.files.writing import write_atomically
from vtune.judge.completions import Completed, Completions

ENDPOINT: Literal["/v1/chat/completions"] = "/v1/chat/completions"
WINDOW: Literal["24h"] = "24h"
"""The one that OpenAI has."""
_FIX = "see what the endpoint says of it; one that takes no batches is asked with --set grader.batch=false"
_DELETE = "delete the file: its batch is asked for again"
ENDED = ("completed", "failed", "expired", "cancelled")


async def run_batch(
    completions: Completions, requests: Mapping[str, Mapping[str, Any]], *, state: Path, poll_s: float
) -> dict[str, Completed]:
    """The completions of many requests; those that fail are left out.

    Args:
        completions: The endpoint, open.
        requests: Name -> body.
        state: Holds the id of the batch for as long as it is under way; if it is there, that batch is waited
            for and `requests` are not sent.
        poll_s: Seconds between two looks.

    Raises:
        ServiceError: If the endpoint takes no batches, or the batch fails as a whole.
    """
    if not requests and not state.exists():
        return {}
    with completions.failing("the batch failed", _FIX):
        if state.exists() and read_record(state, fix=_DELETE).get("of") != completions.where:
            state.unlink()  # of another endpoint
        if not state.exists():
            facts = {"batch": await _begin(completions, requests), "of": completions.where}
            write_atomically(state, json.dumps(facts) + "\n")
        name = str(read_record(state, "batch", fix=_DELETE)["batch"])
        batch = await _ended(completions, name, poll_s)
        if batch.output_file_id is None:
            state.unlink()
            raise ServiceError(
                f"the batch {name} ended as {batch.status} without a reply",
                where=completions.where,
                fix=_FIX,
            )
        content = await completions.opened.files.content(batch.output_file_id)
    return dict(_read(completions, content.text))


async def _begin(completions: Completions, requests: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [
        json.dumps({"custom_id": name, "method": "POST", "url": ENDPOINT, "body": body})
        for name, body in requests.items()
    ]
    data = "".join(f"{line}\n" for line in lines).encode()
    file = await completions.opened.files.create(file=("batch.jsonl", data), purpose="batch")
    batch = await completions.opened.batches.create(
        input_file_id=file.id, endpoint=ENDPOINT, completion_window=WINDOW
    )
    return batch.id


async def _ended(completions: Completions, name: str, poll_s: float) -> Any:
    while True:
        batch = await completions.opened.batches.retrieve(name)
        if batch.status in ENDED:
            return batch
        await asyncio.sleep(poll_s)


def _read(completions: Completions, text: str) -> list[tuple[str, Completed]]:
    """(name, completion) of each line that has one."""
    found = []
    for line in text.splitlines():
        try:
            row = parse_json(line)
            response = row["response"]
            if response is not None and response["status_code"] == 200:
                found.append((str(row["custom_id"]), completions.read(response["body"])))
        except (ValueError, KeyError, TypeError):
            continue  # as one that failed: it is asked alone
    return found
