"""`vtune view`: serves places over HTTP on this machine, with the page that shows them."""

import asyncio
import json
import re
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from fastapi import FastAPI, Request, Response
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from vtune.errors import DataError, VtuneError
from vtune.files.json_text import parse_json
from vtune.files.writing import unwritable
from vtune.runs.serve.listening import listen, serve_until_stopped
from vtune.runs.view.films import film, films
from vtune.runs.view.opened import Opened, error_line
from vtune.runs.view.overview import overview
from vtune.runs.view.pairs import compared, sides_of, suggested
from vtune.runs.view.pictures import page_picture
from vtune.runs.view.sweeps import sweeps_in, sweeps_of
from vtune.runs.view.thinning import POINTS, thinned
from vtune.schema.labels import NOTE, Judgement, Label, append_label
from vtune.schema.sample import Sample
from vtune.view.bundle import static
from vtune.view.gate import Gate, answer
from vtune.view.place import find_all
from vtune.view.query import facets

HOST = "127.0.0.1"
ROWS = 100
"""Trajectories of a list sent at a time (ours)."""
PACKED = 64 * 2**10
"""Bytes from which text is sent compressed, if the browser accepts that (ours): the page of a run of 1,000
steps and 25 sources has 12.5 MB, compressed 5.8 MB, and may be viewed over ssh."""
SIDE = 2048
"""Pixels of the longer side of a picture on a page, at most (ours)."""
MODULES = (
    "app",
    "chart",
    "dom",
    "frames",
    "list",
    "pair",
    "picture",
    "query",
    "run",
    "source",
    "sweep",
    "tokens",
    "trajectory",
)
FILES = {"": "index.html"} | {
    name: name for name in (*(f"{module}.js" for module in MODULES), "style.css", "icon.svg")
}
_NUMBERS = re.compile(r"(\d{1,9}(,\d{1,9})*)?", re.ASCII)
KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


def run_view(
    paths: Sequence[Path], port: int, *, data: Sequence[Path], ready: Callable[[dict[str, Any]], None]
) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP.

    Args:
        paths: Runs, evaluations, folders of them, or Parquet files.
        port: Port to listen on, on this machine only; 0 picks a free one.
        data: Files of the samples that trajectories answer; if empty, each run's own.
        ready: Called with `url` and `ssh` (how to forward the port), once it listens.

    Raises:
        DataError: If there is nothing to look at.
        RecipeError: If the port cannot be bound.
    """
    opened = [Opened(place, data) for place in find_all(paths)]
    failed = [error for one in opened for error in one.index.failed]
    if failed and not any(one.index.table.num_rows for one in opened):
        raise failed[0]
    token = secrets.token_urlsafe(24)
    try:
        with listen(HOST, port, options="--port (0 takes a free one)") as listener:
            number = listener.getsockname()[1]
            facts = {
                "url": f"http://{HOST}:{number}/{token}/",
                "ssh": f"ssh -L {number}:{HOST}:{number} THIS_MACHINE",
            }
            asyncio.run(
                serve_until_stopped(app_of(opened, token, sweeps_in(paths)), listener, lambda: ready(facts))
            )
    finally:
        for one in opened:
            one.index.close()


def app_of(opened: Sequence[Opened], token: str, sweeps: Sequence[Path] = ()) -> ASGIApp:
    """The ASGI application that shows places, identified by number, and the results of sweeps."""
    app = FastAPI(title="vtune view", openapi_url=None)

    _add_overall(app, opened, sweeps)

    @app.get("/api/{number}/run")
    def run(number: int) -> Response:
        found = overview(_of(opened, number))
        return answer(found | {"sources": thinned(found["sources"], POINTS)})

    @app.get("/api/{number}/list")
    def listed(number: int, q: str = "", first: int = 0) -> Response:
        return answer(_of(opened, number).find(q, first=max(first, 0), most=ROWS))

    @app.get("/api/{number}/one/{key:path}")
    def one(number: int, key: str) -> Response:
        return answer(_of(opened, number).document(key))

    @app.get("/api/{number}/picture/{index}/{key:path}")
    def picture(number: int, index: int, key: str) -> Response:
        content, kind = page_picture(_of(opened, number), key, index, SIDE)
        return Response(content, media_type=kind)

    @app.get("/api/{number}/tokens/{key:path}")
    def tokens(number: int, key: str, first: int = 0) -> Response:
        return answer(_of(opened, number).tokens(key, first=max(first, 0)))

    @app.post("/api/{number}/label/{key:path}")
    async def label(number: int, key: str, request: Request) -> Response:
        one, body = _of(opened, number), await request.body()
        await asyncio.to_thread(_label, one, key, body)  # may wait for the index, or for another viewer
        return answer({"file": str(one.place.labels)})

    @app.get("/{name}")
    @app.get("/")
    def file(name: str = "") -> Response:
        if name not in FILES:
            return answer({"error": "there is no such page"}, 404)
        return Response(static(FILES[name]), media_type=KINDS[FILES[name].rpartition(".")[2]])

    @app.exception_handler(VtuneError)
    async def refuse(_: Request, error: VtuneError) -> Response:
        return answer({"error": error.what, "fix": error.fix}, 422)

    return Gate(_packing(app), token)


def _packing(app: ASGIApp) -> ASGIApp:
    """The application with large texts compressed; pictures are sent as they are."""
    packed = GZipMiddleware(app, minimum_size=PACKED, compresslevel=1)

    async def chosen(scope: Scope, receive: Receive, send: Send) -> None:
        await (app if "/picture/" in scope["path"] else packed)(scope, receive, send)

    return chosen


def _add_overall(app: FastAPI, opened: Sequence[Opened], sweeps: Sequence[Path]) -> None:
    """Add the routes that concern several places at once."""

    @app.get("/api/places")
    def places() -> Response:
        return answer([_place(number, one) for number, one in enumerate(opened)])

    @app.get("/api/sweeps")
    def swept() -> Response:
        return answer(sweeps_of(sweeps))

    @app.get("/api/films")
    def filmed(places: str | None = None) -> Response:
        return answer(films(opened, _numbers(places)))

    @app.get("/api/film")
    def frames(sample: str, places: str | None = None) -> Response:
        return answer(film(opened, sample, _numbers(places)))

    @app.get("/api/pairs")
    def pairs(places: str | None = None) -> Response:
        return answer([f"{one},{two}" for one, two in suggested(opened, _numbers(places))])

    @app.get("/api/pair")
    def pair(sides: str) -> Response:
        return answer(compared(opened, *sides_of(sides)))


def _numbers(text: str | None) -> list[int] | None:
    """The places in an address, such as `0,2`; None, meaning all, if it does not name any."""
    if text is None:
        return None
    if _NUMBERS.fullmatch(text) is None:
        raise DataError("these are not numbers of places", fix="open the first page again")
    return [int(number) for number in text.split(",") if number]


def _of(opened: Sequence[Opened], number: int) -> Opened:
    if not 0 <= number < len(opened):
        raise DataError(f"there is no position {number}", fix="open the first page again")
    return opened[number]


def _place(number: int, one: Opened) -> dict[str, Any]:
    try:
        one.refresh()
        revision = one.place.revision()
    except DataError as error:
        # It is gone, or a link leads out of it: keep what is known, and leave other places as they are.
        problems, revision = [error_line(error)], error_line(error)
    else:
        problems = one.problems
    table = one.index.table
    return {
        "number": number,
        "name": one.place.name,
        "path": str(one.place.path),
        "kind": one.place.kind,
        "rows": table.num_rows,
        "there": table.num_rows,
        "revision": revision,
        "problem": "; ".join(problems),
        "facets": facets(table),
    }


def _label(one: Opened, key: str, body: bytes) -> None:
    """Write a person's label for a trajectory into the file of labels.

    Raises:
        DataError: If it is not a valid label, or there is no such trajectory.
    """
    record, _, _ = one.record(key)
    try:
        said = parse_json(body.decode())
    except ValueError:
        said = None
    fix = f'send {{"label": one of {", ".join(get_args(Judgement))} or null, "note": text}}'
    if not isinstance(said, dict) or said.keys() != {"label", "note"} or not isinstance(said["note"], str):
        raise DataError("not a label", fix=fix)
    if said["label"] not in (None, *get_args(Judgement)) or len(said["note"]) > NOTE:
        raise DataError(f"not a label: {json.dumps(said['label'])[:80]}", fix=fix)
    label = Label(
        key=key,
        sample_id=record.id if isinstance(record, Sample) else record.sample_id,
        source=record.source,
        rollout=None if isinstance(record, Sample) else record.rollout,
        label=said["label"],
        accuracy=None if isinstance(record, Sample) or record.reward is None else record.reward.accuracy,
        # A note that a browser cuts at its longest may end in half a surrogate pair, which no file can store.
        note=said["note"].encode(errors="replace").decode(),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    try:
        append_label(one.place.labels, label)
    except OSError as error:
        raise unwritable(one.place.labels, error, None) from None
