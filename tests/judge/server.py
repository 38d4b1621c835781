"""A fake judge on 127.0.0.1 that replies from a list."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.listening import listening
from vtune.judge.endpoint import BatchedEndpoint
from vtune.reward.preflight import HELLO

Failure = tuple[int, dict[str, Any]]
"""A status and the error in the body."""
Reply = str | int | Failure | Callable[[dict[str, Any]], str | int | Failure]
"""A text, the status of a failure with or without its error, or a function of the request for these."""


@dataclass
class FakeJudge:
    """The requests received, and the replies to give; the last reply repeats."""

    replies: list[Reply]
    delay_s: float = 0.0
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str | None] = field(default_factory=set)
    """The `Authorization` headers of the requests."""
    most_at_once: int = 0
    port: int = 0

    def endpoint(self, **changes: Any) -> BatchedEndpoint:
        values: dict[str, Any] = {
            "base_url": f"http://127.0.0.1:{self.port}/v1",
            "model": "judge",
            "temperature": 0.0,
            "max_tokens": 8,
            "concurrency": 4,
            "retries": 2,
            "timeout_s": 60.0,
            "api_key_env": None,
        }
        return BatchedEndpoint(**(values | changes))


class JsonHandler(BaseHTTPRequestHandler):
    """Reads a body and answers in JSON."""

    def do_POST(self) -> None:
        self.post()

    def do_GET(self) -> None:
        self.get()

    def post(self) -> None:
        """Answer a POST request."""
        raise NotImplementedError

    def get(self) -> None:
        """Answer a GET request."""
        raise NotImplementedError

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"]))

    def reply(self, content: Any, *, status: int = 200, kind: str = "application/json") -> None:
        data = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("retry-after-ms", "1")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Keep the output of the tests clean."""


def completion(reply: str) -> dict[str, Any]:
    """An OpenAI completion; an empty one looks like that of a reasoning model that has used up its tokens."""
    message = {"role": "assistant", "content": reply}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "judge-1",
        "system_fingerprint": "fp_1",
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        "choices": [{"index": 0, "finish_reason": "stop" if reply else "length", "message": message}],
    }


def is_greeting(body: dict[str, Any]) -> bool:
    """Whether a request only checks that the server is up."""
    return bool(body["messages"][0]["content"] == HELLO.system)


@contextmanager
def serve(*replies: Reply, delay_s: float = 0.0, greets: bool = False) -> Iterator[FakeJudge]:
    """Run a fake judge; if it `greets`, it answers a greeting without counting it."""
    judge = FakeJudge(list(replies), delay_s)
    lock = threading.Lock()
    busy = 0

    class Handler(JsonHandler):
        def post(self) -> None:
            nonlocal busy
            body = json.loads(self.body())
            if greets and is_greeting(body):
                self.reply(completion("1"))
                return
            with lock:
                judge.requests.append(body)
                judge.keys.add(self.headers["Authorization"])
                reply = judge.replies.pop(0) if len(judge.replies) > 1 else judge.replies[0]
                busy += 1
                judge.most_at_once = max(judge.most_at_once, busy)
            time.sleep(judge.delay_s)
            with lock:
                busy -= 1
            reply = reply(body) if callable(reply) else reply
            if isinstance(reply, str):
                self.reply(completion(reply))
                return
            status, error = (reply, {"message": "busy"}) if isinstance(reply, int) else reply
            self.reply({"error": error}, status=status)

    with listening(Handler) as judge.port:
        yield judge
