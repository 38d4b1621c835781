"""A judge on 127.0.0.1 that replies from a list."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from vtune.judge.client import JudgeEndpoint

Failure = tuple[int, dict[str, Any]]
"""A status and what the body says of the error."""
Reply = str | int | Failure | Callable[[dict[str, Any]], str | int | Failure]
"""A text, the status of a failure with or without its error, or what makes one of these of the request."""


@dataclass
class FakeJudge:
    """What was asked, and how it is answered; the last reply repeats."""

    replies: list[Reply]
    delay_s: float = 0.0
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str | None] = field(default_factory=set)
    """What the requests gave as `Authorization`."""
    most_at_once: int = 0
    port: int = 0

    def endpoint(self, **changes: Any) -> JudgeEndpoint:
        values: dict[str, Any] = {
            "base_url": f"http://127.0.0.1:{self.port}/v1",
            "model": "judge",
            "temperature": 0.0,
            "max_tokens": 8,
            "concurrency": 4,
            "retries": 2,
            "timeout_s": 10.0,
            "api_key_env": None,
        }
        return JudgeEndpoint(**(values | changes))


@contextmanager
def serve(*replies: Reply, delay_s: float = 0.0) -> Iterator[FakeJudge]:
    judge = FakeJudge(list(replies), delay_s)
    lock = threading.Lock()
    busy = 0

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            nonlocal busy
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
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
            status, error = (reply, {"message": "busy"}) if isinstance(reply, int) else (200, {})
            if isinstance(reply, tuple):
                status, error = reply
            message = {"role": "assistant", "content": reply}
            # As a model that reasons ends where its tokens are used up.
            choice = {"index": 0, "finish_reason": "stop" if reply else "length", "message": message}
            done = {
                "id": "1",
                "object": "chat.completion",
                "created": 0,
                "model": "judge-1",
                "system_fingerprint": "fp_1",
                "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
                "choices": [choice],
            }
            data = json.dumps(done if status == 200 else {"error": error}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("retry-after-ms", "1")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Keep the output of the tests clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    judge.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield judge
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
