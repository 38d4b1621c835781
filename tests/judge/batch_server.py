"""A server on 127.0.0.1 that accepts OpenAI-style batches and single questions."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.judge.server import JsonHandler, completion, is_greeting
from tests.listening import listening


@dataclass
class BatchServer:
    """The requests received, and how they are answered."""

    reads: Callable[[dict[str, Any]], str | int]
    """Makes the reply, or the status of a question that fails."""
    polls: int
    """How many polls report a batch as still in progress."""
    left_out: int
    """Every n-th line of a batch fails; 0: none."""
    status: str
    """Final status of batches."""
    partly: bool
    """Whether a batch that does not end as `completed` still has replies."""
    counts: bool
    """Whether replies report their token usage."""
    none: bool = False
    """Whether the server does not support batches."""
    files: list[bytes] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    """The number of polls of each batch."""
    single: list[dict[str, Any]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def batch(self, number: int) -> dict[str, Any]:
        ended = self.batches[number] > self.polls
        return {
            "id": f"batch_{number}",
            "object": "batch",
            "endpoint": "/v1/chat/completions",
            "input_file_id": f"file_{number}",
            "completion_window": "24h",
            "created_at": 0,
            "status": self.status if ended else "in_progress",
            "output_file_id": f"out_{number}" if ended and self.has_output(number) else None,
            "error_file_id": f"err_{number}" if ended and self.rows(number, failed=True) else None,
        }

    def looked_at(self, number: int) -> tuple[dict[str, Any], int]:
        """A batch and its status; an error if there is no such batch."""
        if number >= len(self.batches):
            return {"error": {"message": "No batch found"}}, 404
        self.batches[number] += 1
        return self.batch(number), 200

    def has_output(self, number: int) -> bool:
        said = self.status == "completed" or self.partly
        return said and bool(self.rows(number, failed=False))

    def rows(self, number: int, *, failed: bool) -> list[dict[str, Any]]:
        """The failed lines of a batch, or the others."""
        found = []
        for place, line in enumerate(self.files[number].splitlines(), start=1):
            row = json.loads(line)
            reply = 500 if self.left_out and place % self.left_out == 0 else self.reads(row["body"])
            if isinstance(reply, int):
                body: dict[str, Any] = {"error": {"message": f"line {place} failed"}}
                status = reply
            else:
                body, status = self.completion(reply), 200
            if failed == (status != 200):
                response = {"status_code": status, "body": body}
                found.append({"custom_id": row["custom_id"], "response": response, "error": None})
        return found

    def completion(self, reply: str) -> dict[str, Any]:
        said = completion(reply)
        return said if self.counts else {key: value for key, value in said.items() if key != "usage"}


@contextmanager
def serve_batches(
    reads: Callable[[dict[str, Any]], str | int],
    *,
    polls: int = 1,
    left_out: int = 0,
    status: str = "completed",
    partly: bool = False,
    counts: bool = True,
    refuses: str | None = None,
) -> Iterator[BatchServer]:
    """Run a server; a single question with the setting that it `refuses` is refused."""
    state = BatchServer(reads, polls, left_out, status, partly, counts)

    class Handler(JsonHandler):
        def post(self) -> None:
            data = self.body()
            if state.none and not self.path.endswith("/completions"):
                self.reply({"error": {"message": "no such path"}}, status=404)
            elif self.path.endswith("/files"):
                begin = data.index(b'{"custom_id"')
                state.files.append(data[begin : data.index(b"\r\n--", begin)])
                named = {"id": f"file_{len(state.files) - 1}", "object": "file", "filename": "batch.jsonl"}
                self.reply(named | {"bytes": 1, "created_at": 0, "purpose": "batch", "status": "processed"})
            elif self.path.endswith("/batches"):
                state.batches.append(0)
                self.reply(state.batch(len(state.batches) - 1))
            else:
                self.alone(json.loads(data))

        def alone(self, body: dict[str, Any]) -> None:
            if refuses is not None and refuses in body:
                error = {"message": f"`{refuses}` is not supported", "param": refuses}
                self.reply({"error": error}, status=400)
            elif is_greeting(body):
                self.reply(completion("1"))
            else:
                state.single.append(body)
                reply = state.reads(body)
                if isinstance(reply, int):
                    self.reply({"error": {"message": "busy"}}, status=reply)
                else:
                    self.reply(state.completion(reply))

        def get(self) -> None:
            if self.path.endswith("/content"):
                kind, _, number = self.path.split("/")[-2].partition("_")
                rows = state.rows(int(number), failed=kind == "err")
                self.reply(
                    "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), kind="text/plain"
                )
            elif self.path.endswith("/batches"):
                data = [state.batch(number) for number in range(len(state.batches))]
                self.reply({"object": "list", "data": data, "has_more": False})
            else:
                found, status = state.looked_at(int(self.path.rpartition("_")[2]))
                self.reply(found, status=status)

    with listening(Handler) as state.port:
        yield state
