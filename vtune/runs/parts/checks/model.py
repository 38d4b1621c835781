"""A scripted model, in place of the one that a part asks while it is tested."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from vtune.judge.client import JudgeClient
from vtune.judge.completions import NoReply
from vtune.judge.endpoint import JudgeEndpoint
from vtune.judge.prompts import Prompt
from vtune.schema.message import Picture

NOWHERE = JudgeEndpoint(
    base_url="http://127.0.0.1:9/v1",
    model="check",
    temperature=0.0,
    max_tokens=8,
    concurrency=1,
    retries=0,
    timeout_s=1.0,
    api_key_env=None,
)
"""The endpoint of a judge that is never connected to."""

PAUSE = 0.01
"""Seconds that shutting down a server may wait; ours."""


class ScriptedJudge(JudgeClient):
    """A judge without an endpoint.

    Args:
        says: Returns the reply to a prompt's text; None: there is no reply.
    """

    def __init__(self, says: Callable[[str], str] | None) -> None:
        super().__init__(NOWHERE)
        self._says = says

    async def _ask(self, key: str, prompt: Prompt, pictures: Sequence[Picture]) -> str:
        """Reply with what `says` returns."""
        if self._says is None:
            raise NoReply("the model does not answer")
        return self._says(f"{prompt.system}\n{prompt.text}")


@contextmanager
def answering(says: Callable[[str], str]) -> Iterator[str]:
    """The URL of an OpenAI-compatible endpoint whose replies depend on the text of each request."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            data = json.dumps(_completion(says(_text(asked["messages"])))).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Nobody reads this log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": PAUSE}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _text(messages: list[dict[str, Any]]) -> str:
    """All texts of a request, one per line; pictures are left out."""
    contents = (message["content"] for message in messages)
    parts = ([{"type": "text", "text": one}] if isinstance(one, str) else one for one in contents)
    return "\n".join(part["text"] for listed in parts for part in listed if part["type"] == "text")


def _completion(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "check",
        "object": "chat.completion",
        "created": 0,
        "model": "check",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
    }
