"""Connections against servers that send exactly the bytes that a test specifies."""

import asyncio
import gzip
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from vtune.reward import connections as module
from vtune.reward.connections import CONNECT, Answer, Connections

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n4\r\n you\r\n0\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbye"
UNSIZED = b"HTTP/1.1 200 OK\r\n\r\ntill the end"


class Server:
    """Sends the next scripted answer to each request of a connection, and hangs up after the last."""

    def __init__(self, *connections: list[bytes]) -> None:
        self.left = list(connections)
        self.asked: list[tuple[int, bytes, bytes]] = []
        """(connection, head, body) of each request."""
        self.accepted = 0

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, self.accepted = self.accepted, self.accepted + 1
        # A connection beyond the scripted ones is closed at once.
        answers = self.left.pop(0) if self.left else []
        try:
            for answer in answers:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.asked.append((number, head, await reader.readexactly(size)))
                writer.write(answer)
                await writer.drain()
        finally:
            writer.close()


def story(server: Server, tell: Callable[[Connections, str], Awaitable[Any]], **headers: str) -> Any:
    async def whole() -> Any:
        listening = await asyncio.start_server(server.meet, "127.0.0.1", 0)
        host, port = listening.sockets[0].getsockname()
        connections = Connections(headers)
        try:
            return await asyncio.wait_for(tell(connections, f"http://{host}:{port}/score"), 20)
        finally:
            await connections.close()
            listening.close()

    return asyncio.run(whole())


async def twice(connections: Connections, url: str) -> list[Answer]:
    return [await connections.post(url, b"one"), await connections.post(url, b"two")]


def test_requests_follow_each_other_on_one_connection_with_headers_and_length() -> None:
    server = Server([CHUNKED, CONTINUE + OK, OK])
    assert story(server, twice, Authorization="Bearer me") == [Answer(200, b"hi you"), Answer(200, b"hi")]
    assert [(number, body) for number, _, body in server.asked] == [(0, b"one"), (0, b"two")]
    head = server.asked[0][1].decode()
    assert head.startswith("POST /score HTTP/1.1\r\nHost: 127.0.0.1:")
    assert "\r\nAuthorization: Bearer me\r\n" in head


def test_concurrent_requests_use_separate_connections_and_get_their_own_answers() -> None:
    first = b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"
    server = Server([first, OK], [OK, OK])

    async def both(connections: Connections, url: str) -> list[Answer]:
        return await asyncio.gather(*(connections.post(url, body) for body in (b"one", b"two")))

    found = story(server, both)
    assert server.accepted == 2
    expected = {0: Answer(503, b""), 1: Answer(200, b"hi")}
    by_body = {body: expected[number] for number, _, body in server.asked}
    assert found == [by_body[b"one"], by_body[b"two"]]


@pytest.mark.parametrize("words", [[OK], [LAST, OK]], ids=["hung up unasked", "said that it closes"])
def test_a_connection_that_the_server_closed_is_replaced(words: list[bytes]) -> None:
    server = Server(words, [OK, OK])
    found = story(server, twice)
    assert found[1] == Answer(200, b"hi")
    assert [(number, body) for number, _, body in server.asked] == [(0, b"one"), (1, b"two")]


@pytest.mark.parametrize(
    "words",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", b"SSH-2.0-OpenSSH_9.6\r\n"],
    ids=["nothing", "half", "no HTTP"],
)
def test_a_new_connection_with_an_incomplete_answer_is_an_error(words: bytes) -> None:
    server = Server([words])
    with pytest.raises(ConnectionError):
        story(server, lambda connections, url: connections.post(url, b"one"))


def test_an_incomplete_answer_on_a_reused_connection_is_not_retried() -> None:
    server = Server([OK, OK[:-1]], [OK])
    with pytest.raises(ConnectionError):
        story(server, twice)
    assert server.accepted == 1


def test_an_unreachable_server_is_an_error() -> None:
    def nobody(connections: Connections, _: str) -> Awaitable[Answer]:
        return connections.post("http://127.0.0.1:9/score", b"one")

    with pytest.raises(ConnectionError, match="ClientConnectorError"):
        story(Server(), nobody)


ENDLESS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("start", "more", "why"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-More: and more\r\n", "Too many"),
        (b"HTTP/1.1 200 OK\r\nX-More: ", b"m" * 1000, "Got more than"),
        (ENDLESS, b"400\r\n" + b"m" * 1024 + b"\r\n", "more than 100000 bytes"),
    ],
    ids=["headers", "one header", "a body"],
)
def test_an_endless_answer_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch, start: bytes, more: bytes, why: str
) -> None:
    monkeypatch.setattr(module, "LARGEST", 100_000)
    sent = 0

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"one")
        writer.write(start)
        try:
            while sent < 2**26:
                writer.write(more)
                await writer.drain()
                sent += len(more)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = Server()
    monkeypatch.setattr(server, "meet", meet)
    with pytest.raises(ConnectionError, match=why):
        story(server, lambda connections, url: connections.post(url, b"one"))
    assert sent < 2**25  # what the two socket buffers hold


def test_an_answer_is_read_in_whatever_pieces_it_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    packed = gzip.compress(b"hi" * 10**6)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nSet-Cookie: me=you\r\n"
    elsewhere = b"HTTP/1.1 307 No\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n"
    server = Server([head + b"Content-Length: %d\r\n\r\n" % len(packed) + packed, elsewhere])
    assert story(server, twice) == [Answer(200, packed), Answer(307, b"")]
    assert b"cookie" not in server.asked[1][1].lower()


def test_a_cancelled_request_leaves_no_answer_for_the_next() -> None:
    server = Server([b"", OK], [OK, OK])

    async def impatient(connections: Connections, url: str) -> Answer:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connections.post(url, b"slow"), 0.1)
        return await connections.post(url, b"two")

    server.left[0] = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", OK]
    assert story(server, impatient) == Answer(200, b"hi")
    assert [(number, body) for number, _, body in server.asked] == [(0, b"slow"), (1, b"two")]


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    server = Server([UNSIZED], [CONTINUE + UNSIZED])
    assert story(server, twice) == [Answer(200, b"till the end")] * 2
    assert server.accepted == 2


@pytest.mark.parametrize("cut", [None, -1, -2], ids=["a whole answer", "nearly one", "its headers"])
def test_surplus_bytes_are_not_part_of_the_next_answer(cut: int | None) -> None:
    extra = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno"[:cut]
    server = Server([OK + extra, OK], [OK, OK])
    assert story(server, twice) == [Answer(200, b"hi")] * 2
    assert [(number, body) for number, _, body in server.asked] == [(0, b"one"), (1, b"two")]


def test_an_address_that_does_not_answer_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(_: object, port: int, **__: object) -> list[Any]:
        hosts = ("127.0.0.2", "127.0.0.1")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in hosts]

    async def tell(connections: Connections, url: str) -> Answer:
        loop = asyncio.get_running_loop()
        connect = loop.sock_connect

        async def half_deaf(sock: socket.socket, address: Any) -> None:
            if address[0] == "127.0.0.2":
                await asyncio.sleep(60)
            await connect(sock, address)

        monkeypatch.setattr(loop, "getaddrinfo", resolve)
        monkeypatch.setattr(loop, "sock_connect", half_deaf)
        return await asyncio.wait_for(
            connections.post(url.replace("127.0.0.1", "rewards"), b"one"), CONNECT / 2
        )

    assert story(Server([OK]), tell) == Answer(200, b"hi")
