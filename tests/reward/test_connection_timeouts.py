"""Silent, trickling and non-reading connections are closed, and working ones are not."""

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvicorn
from starlette.types import Message, Receive, Scope, Send

from vtune.reward.guard import Guard, Packed
from vtune.runs.serve.connection_timeouts import TimeoutProtocol

ASK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers once the body has arrived; /large answers with more than any socket buffer holds."""
    while (await receive()).get("more_body"):
        pass
    answer = Packed({"much": "x" * (2**24 if scope["path"] == "/large" else 1)})
    await answer(scope, receive, send)


@contextmanager
def served(keep_alive: int = 1, **limits: float) -> Iterator[tuple[str, int]]:
    protocol = type("Quick", (TimeoutProtocol,), {"head_s": 0.5, "body_s": 0.5, "taken_s": 0.5} | limits)
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        echo, log_level="critical", lifespan="off", http=protocol, ws="none", timeout_keep_alive=keep_alive
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        yield listener.getsockname()[:2]
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def closed(line: socket.socket, seconds: float = 60.0) -> bool:
    """Whether the other side closes a connection within this time, whatever it sends first."""
    line.settimeout(seconds)
    try:
        while line.recv(2**16):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


def trickle(line: socket.socket, piece: bytes, pause: float) -> None:
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        line.sendall(piece)
        time.sleep(pause)


@pytest.mark.parametrize(
    "said",
    [b"", b"POST / HT", b"GET / HTTP/1.1\r\nHost: x\r\n", POST, POST + b"12345", ASK, ASK + b"G"],
    ids=[
        "nothing",
        "half a line",
        "half a head",
        "no body",
        "half a body",
        "one request",
        "and half a second",
    ],
)
def test_a_connection_that_stops_midway_is_closed(said: bytes) -> None:
    with served() as address, socket.create_connection(address, timeout=60) as line:
        line.sendall(said)
        assert closed(line)


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\nX: ", POST.replace(b" 10", b" 10000")])
def test_a_trickling_connection_is_closed_although_bytes_keep_arriving(start: bytes) -> None:
    with served() as address, socket.create_connection(address, timeout=60) as line:
        line.sendall(start)
        with pytest.raises(ConnectionError):
            trickle(line, b"a", 0.05)


def test_a_connection_with_endless_headers_is_closed() -> None:
    with served(head_s=60) as address, socket.create_connection(address, timeout=60) as line:
        line.sendall(b"GET / HTTP/1.1\r\n")
        with pytest.raises(ConnectionError):
            trickle(line, b"X: " + b"a" * 1000 + b"\r\n", 0.0)


def test_a_connection_that_does_not_read_is_closed() -> None:
    with served() as address, socket.create_connection(address, timeout=60) as line:
        line.sendall(ASK.replace(b" / ", b" /large "))
        time.sleep(3)
        line.settimeout(60)
        got = 0
        try:
            while data := line.recv(2**20):
                got += len(data)
        except ConnectionError:
            pass
        assert got < 2**24


def test_when_full_the_longest_silent_connection_is_closed_but_not_one_awaiting_an_answer() -> None:
    with served(most=3, head_s=30, body_s=30) as address:
        lines = [socket.create_connection(address, timeout=60) for _ in range(3)]
        lines[0].sendall(POST + b"123")  # in progress
        time.sleep(0.3)
        with socket.create_connection(address, timeout=60) as fourth:
            assert closed(lines[1], 20)
            lines[0].sendall(b"4567890")
            assert lines[0].recv(100).startswith(b"HTTP/1.1 200")
            fourth.sendall(ASK)
            assert fourth.recv(100).startswith(b"HTTP/1.1 200")
        for line in lines:
            line.close()


def test_of_a_burst_each_connection_takes_the_place_of_another() -> None:
    with served(most=3, head_s=30) as address:
        lines = [socket.create_connection(address, timeout=60) for _ in range(12)]
        lines[-1].sendall(ASK)
        assert lines[-1].recv(100).startswith(b"HTTP/1.1 200")
        assert all(closed(line, 20) for line in lines[:9])
        assert not closed(lines[-2], 0.3)
        for line in lines:
            line.close()


LIMITS = """
import resource, sys
from vtune.runs.serve.connection_timeouts import room_for_connections
soft, hard = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(room_for_connections(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "room", "then"),
    [(512, 8192, 2048, 4608), (512, 1024, 256, 1024), (1000, 1024, 256, 1024), (64, 64, 16, 64)],
)
def test_there_is_room_for_connections_within_the_limit_on_open_files(
    soft: int, hard: int, room: int, then: int
) -> None:
    command = [sys.executable, "-c", LIMITS, str(soft), str(hard)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert list(map(int, ended.stdout.split())) == [room, then, hard]


def test_steady_requests_on_one_connection_are_all_answered() -> None:
    limits = {"head_s": 2.0, "body_s": 2.0, "taken_s": 2.0}
    with served(30, **limits) as address, socket.create_connection(address, timeout=60) as line:
        for _ in range(12):  # in total longer than a single request may take
            line.sendall(ASK + POST + b"0123456789")
            said = b""
            while said.count(b'{"much": "x"}') < 2:
                said += line.recv(2**16)
            time.sleep(0.2)


@pytest.mark.parametrize("begun", [False, True])
def test_a_request_that_outlasts_the_grace_period_gets_503_and_a_reason(begun: bool) -> None:
    """uvicorn cancels it; by itself it would answer 500 without a reason and log a traceback for each.

    An answer that has already started cannot be replaced.
    """
    sent: list[Message] = []

    async def forever(scope: Scope, receive: Receive, send: Send) -> None:
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.Event().wait()

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    async def story() -> None:
        guard = Guard(forever, token=None, max_bytes=1)
        scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
        request = asyncio.create_task(guard(scope, receive, send))
        await asyncio.sleep(0)
        request.cancel()
        await request

    if begun:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(story())
        assert len(sent) == 1
        return
    asyncio.run(story())
    assert sent[0]["status"] == 503
    assert b"ended" in sent[1]["body"]
