"""A search engine, a reverse image search and the pages that they find, some hostile, on 127.0.0.1."""

import gzip
import json
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.listening import listening

ARTICLE = (
    "<html><head><title>Towers</title></head><body><nav><a href='/'>Home</a></nav><article><h1>The tower</h1>"
    "<p>{}</p><p>It stands in Paris and is made of iron, and many people climb it in every year.</p>"
    "</article></body></html>"
)
FACT = "The tower was designed by Gustave Eiffel and opened in the year 1889, after two years of work."
BOMB = gzip.compress(b"<p>" + b"a" * 50_000_000)
HALVES = ARTICLE.format(FACT).encode().partition(b"Eiffel")


def without_header(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


# path -> (status, headers, body)
PAGES: dict[str, tuple[int, dict[str, str], bytes]] = {
    "/good": (200, {"Content-Type": "text/html; charset=utf-8"}, ARTICLE.format(FACT).encode()),
    "/other": (
        200,
        {"Content-Type": "text/html"},
        ARTICLE.format("An island, far away from it all.").encode(),
    ),
    "/plain": (200, {"Content-Type": "text/plain"}, FACT.encode()),
    "/packed": (
        200,
        {"Content-Type": "text/html", "Content-Encoding": "gzip"},
        gzip.compress(ARTICLE.format(FACT).encode()),
    ),
    "/members": (
        200,
        {"Content-Type": "text/html", "Content-Encoding": "gzip"},
        b"".join(map(gzip.compress, HALVES)) + b"\0\0\0",
    ),
    "/deflated": (
        200,
        {"Content-Type": "text/html", "Content-Encoding": "deflate"},
        without_header(ARTICLE.format(FACT).encode()),
    ),
    "/charset": (200, {"Content-Type": "text/html; charset=klingon"}, ARTICLE.format(FACT).encode()),
    "/letters": (
        200,
        {"Content-Type": "text/html; charset=utf-8"},
        ARTICLE.format(FACT).encode() + b"\xff\xfe",
    ),
    "/said": (
        200,
        {"Content-Type": "text/html"},
        ARTICLE.replace("<head>", "<head><meta charset=gbk>").format(f"{FACT} 埃菲尔铁塔").encode("gbk"),
    ),
    "/huge": (200, {"Content-Type": "text/html"}, b"<p>" + b"a" * 3_000_000),
    "/bomb": (200, {"Content-Type": "text/html", "Content-Encoding": "gzip"}, BOMB),
    "/notgzip": (200, {"Content-Type": "text/html", "Content-Encoding": "gzip"}, b"<p>plain</p>"),
    "/cut": (
        200,
        {"Content-Type": "text/html", "Content-Encoding": "gzip"},
        gzip.compress(ARTICLE.format(FACT).encode())[:-90],
    ),
    "/pdf": (200, {"Content-Type": "text/html"}, b"%PDF-1.7\n<p>The text of a stream</p>"),
    "/binary": (200, {"Content-Type": "text/plain"}, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"),
    "/brotli": (200, {"Content-Type": "text/html", "Content-Encoding": "br"}, b"\x8b"),
    "/image": (200, {"Content-Type": "image/png"}, b"\x89PNG"),
    "/untyped": (200, {}, b"?"),
    "/gone": (404, {"Content-Type": "text/html"}, b"gone"),
    "/empty": (200, {"Content-Type": "text/html"}, b""),
    "/home": (302, {"Location": "http://127.0.0.1:1/"}, b""),
    "/metadata": (302, {"Location": "http://169.254.169.254/latest/meta-data/"}, b""),
    "/v6": (302, {"Location": "http://[::1]:80/"}, b""),
    "/mapped": (302, {"Location": "http://[::ffff:10.0.0.1]/"}, b""),
    "/number": (302, {"Location": "http://2130706433/"}, b""),
    "/octal": (302, {"Location": "http://017700000001/"}, b""),
    "/short": (302, {"Location": "http://127.1/"}, b""),
    "/hex": (302, {"Location": "http://0x7f.1/"}, b""),
    "/name": (302, {"Location": "http://localhost:1/"}, b""),
    "/file": (302, {"Location": "file:///etc/passwd"}, b""),
    "/login": (302, {"Location": "http://me:secret@example.org/"}, b""),
    "/leak": (302, {"Location": "http://data.huggingface.co/answers"}, b""),
    "/brackets": (302, {"Location": "http://][\N{LATIN SMALL LETTER E WITH ACUTE}@/"}, b""),
    "/loop": (302, {"Location": "/loop"}, b""),
    "/nowhere": (302, {}, b""),
    "/moved": (301, {"Location": "/good"}, b""),
}


@dataclass
class FakeWeb:
    """The requests received, and what the engine finds (query -> addresses)."""

    found: dict[str, list[str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    """Method and path of each request."""
    sent: list[dict[str, list[str]]] = field(default_factory=list)
    """Parameters of each GET search."""
    port: int = 0
    engine_status: int = 200
    unresponsive: list[list[str]] = field(default_factory=list)
    """Engines behind the GET search that failed, and why."""
    busy_headers: dict[str, str] = field(default_factory=dict)
    """Headers of answers by the engine and busy pages with a status other than 200."""
    busy: dict[str, list[int]] = field(default_factory=dict)
    """Statuses of a page's first answers, by its path."""

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, path: str) -> str:
        return f"http://{self.host}{path}"

    def results(self, query: str) -> list[str]:
        return [one if "://" in one else self.url(one) for one in self.found.get(query, [])]


class Handler(BaseHTTPRequestHandler):
    """Answers for a fake web."""

    web: FakeWeb

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.web.asked.append(f"GET {parts.path}")
        if parts.path == "/search":
            sent = parse_qs(parts.query)
            self.web.sent.append(sent)
            assert sent["format"] == ["json"]
            rows = [
                {"url": url, "title": "T", "content": f"S {place}"}
                for place, url in enumerate(self.web.results(sent["q"][0]))
            ]
            failed = self.web.unresponsive
            self._json({"query": sent["q"][0], "results": rows, "unresponsive_engines": failed})
        elif parts.path == "/slow":
            self._slowly()
        else:
            status, headers, body = PAGES.get(parts.path, PAGES["/gone"])
            if self.web.busy.get(parts.path):
                status, body = self.web.busy[parts.path].pop(0), b"busy"
                headers = headers | self.web.busy_headers
            self._send(status, headers, body)

    def do_POST(self) -> None:
        sent: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.web.asked.append(f"POST {self.path}")
        query = sent.get("q", "picture")
        rows = [{"link": url, "title": "T", "snippet": "S"} for url in self.web.results(query)]
        self._json({"organic": rows})

    def _json(self, value: Any) -> None:
        body = json.dumps(value).encode()
        status = self.web.busy["/search"].pop(0) if self.web.busy.get("/search") else self.web.engine_status
        headers = {"Content-Type": "application/json"} | (self.web.busy_headers if status != 200 else {})
        self._send(status, headers, body)

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(OSError):  # the client may hang up when it has read enough
            self.wfile.write(body)

    def _slowly(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        with suppress(OSError):
            for _ in range(50):
                self.wfile.write(b"a")
                self.wfile.flush()
                time.sleep(0.1)

    def log_message(self, *_: object) -> None:
        """Keep the output of the tests clean."""


@contextmanager
def serve_web(**found: list[str]) -> Iterator[FakeWeb]:
    web = FakeWeb(dict(found))
    handler = type("OfThisWeb", (Handler,), {"web": web})
    with listening(handler) as web.port:
        yield web
