"""A server on 127.0.0.1 that takes batches, as OpenAI has them, and single questions."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.judge.server import JsonHandler, completion, is_greeting, listening


@dataclass
class BatchServer:
    """What was asked, and how it is answered."""

    reads: Callable[[dict[str, Any]], str]
    polls: int
    """How often a batch is still under way."""
    left_out: int
    """Every so many lines of a batch fail; 0: none."""
    status: str
    """That batches end with."""
    files: list[bytes] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    """Of each the number of looks at it."""
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
            "output_file_id": f"out_{number}" if ended and self.status == "completed" else None,
        }

    def output(self, number: int) -> str:
        found = []
        for place, line in enumerate(self.files[number].splitlines(), start=1):
            row = json.loads(line)
            failed = self.left_out and place % self.left_out == 0
            status = {"status_code": 500, "body": {}} if failed else {"status_code": 200}
            body = {} if failed else {"body": completion(self.reads(row["body"]))}
            found.append(json.dumps({"custom_id": row["custom_id"], "response": status | body}))
        return "\n".join(found) + "\n"


@contextmanager
def serve_batches(
    reads: Callable[[dict[str, Any]], str],
    *,
    polls: int = 1,
    left_out: int = 0,
    status: str = "completed",
    refuses: str | None = None,
) -> Iterator[BatchServer]:
    """A server; a question alone with the setting that it `refuses` is refused."""
    state = BatchServer(reads, polls, left_out, status)

    class Handler(JsonHandler):
        def post(self) -> None:
            data = self.body()
            if self.path.endswith("/files"):
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
                self.reply(completion(state.reads(body)))

        def get(self) -> None:
            if self.path.endswith("/content"):
                number = int(self.path.split("/")[-2].removeprefix("out_"))
                self.reply(state.output(number), kind="text/plain")
            else:
                number = int(self.path.rpartition("_")[2])
                state.batches[number] += 1
                self.reply(state.batch(number))

    with listening(Handler) as state.port:
        yield state
