"""`vtune report --html`: runs, with some of their trajectories, as one self-contained page."""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa

from vtune.errors import DataError
from vtune.files.writing import check_file_output, write_atomically
from vtune.runs.view.films import Frame, films, in_order
from vtune.runs.view.opened import Opened
from vtune.runs.view.overview import overview
from vtune.runs.view.pairs import KINDS, compared, suggested
from vtune.runs.view.pictures import page_picture
from vtune.runs.view.sweeps import sweeps_in, sweeps_of
from vtune.runs.view.thinning import POINTS, thinned
from vtune.view.bundle import one_file
from vtune.view.place import find_all
from vtune.view.query import facets

TRAJECTORIES = 40
"""Per run or evaluation, unless a number is given (ours)."""
FILMS = 4
"""Samples that are included at every step and place that has them (ours)."""
PAIRED = 3
"""Samples of each kind in a comparison of two models (ours)."""
FRAMES = 24
"""Frames per film, at most (ours)."""
OWN_FRAMES = 192
"""Frames for the best samples of single places, in total (ours); each gets at least 2, to make a film."""
SIDE = 640
"""Pixels of a picture's longer side, at most (ours)."""
BYTES = 48 * 2**20
"""Size of all pictures together, so that mail and browsers accept the file (ours)."""
TEXT = 4_000
"""Characters per trajectory that the page's own search covers (ours)."""
NUMBERS = 300_000
"""Numbers in all curves of a page together, ours: as text they take 7 MB."""
FEWEST = 100
"""Points that every curve keeps, however many curves there are (ours)."""
MOMENTS = 5
"""Steps from which examples are taken, evenly spread (ours)."""


def write_page(
    paths: Sequence[Path], out: Path, *, trajectories: int = TRAJECTORIES, data: Sequence[Path] = ()
) -> dict[str, Any]:
    """Write the page.

    Args:
        paths: Runs, evaluations, folders of them, or files.
        out: The HTML file.
        trajectories: How many of each place to include, besides those of films.
        data: Files of the samples that trajectories answer; if empty, each run's own.

    Returns:
        `page`, `bytes`, `trajectories` (how many it includes), and `of` how many.

    Raises:
        DataError: If there is nothing to show, or it cannot be read.
        RecipeError: If the file cannot be written.
    """
    # A page that lies in a run folder is not an input: it may be overwritten.
    read = [path for path in paths if path.is_file()] if out.suffix == ".html" else paths
    check_file_output(out, inputs=read, option="--html")
    opened = [Opened(place, data) for place in find_all(paths)]
    try:
        held = _Held(opened, trajectories)
        page = one_file(held.values() | {"sweeps": sweeps_of(sweeps_in(paths))})
    finally:
        for one in opened:
            one.index.close()
    write_atomically(out, page, option="--html")
    there = sum(one.index.table.num_rows for one in opened)
    return {"page": str(out), "bytes": len(page.encode()), "trajectories": len(held.ones), "of": there}


class _Held:
    """The content of a page, put together."""

    def __init__(self, opened: Sequence[Opened], most: int) -> None:
        self._opened = opened
        self.ones: dict[str, dict[str, Any]] = {}
        self._pictures: dict[str, str] = {}
        self._shown: dict[str, str] = {}
        self._left_out = 0
        self._films = self._found()
        chosen = [dict.fromkeys(_examples(one, most)) for one in opened]
        self._pairs = self._compared(chosen)
        for found in self._films:
            for frame in found["frames"]:
                chosen[frame["place"]][frame["key"]] = None
        for number, keys in enumerate(chosen):
            for key in keys:
                self._add(number, key)
        self._lists = [self._rows(number, keys) for number, keys in enumerate(chosen)]

    def values(self) -> dict[str, Any]:
        """The values for `one_file`.

        Raises:
            DataError: If no run can be read, nor any trajectory. If only some of them cannot, or some files
                are skipped, the page itself says so.
        """
        runs = [overview(one) for one in self._opened]
        if runs and all(run["problem"] for run in runs):
            failed = [error for one in self._opened for error in one.index.failed]
            if failed and not self.ones:
                raise failed[0]
            left_out = ["; ".join(one.problems) for one in self._opened]
            if all(run["problem"] != files for run, files in zip(runs, left_out, strict=True)):
                raise DataError(runs[0]["problem"])
        curves = sum(len(curves) for run in runs for curves in run["sources"].values())
        points = min(POINTS, max(FEWEST, NUMBERS // max(curves, 1)))
        runs = [run | {"sources": thinned(run["sources"], points)} for run in runs]
        return {
            "note": self._note(),
            "places": [self._place(number) for number in range(len(self._opened))],
            "runs": runs,
            "lists": self._lists,
            "ones": self.ones,
            "films": self._films,
            "pairs": self._pairs,
            "pictures": self._pictures,
            "shown": self._shown,
        }

    def _note(self) -> str:
        there = sum(one.index.table.num_rows for one in self._opened)
        note = (
            f"This file holds {len(self.ones)} of {there} trajectories: samples that were rolled out "
            f"several times, and examples of every source and outcome. Pictures are at most {SIDE} "
            "pixels per side."
        )
        return f"{note} {self._left_out} pictures had no room." if self._left_out else note

    def _compared(self, chosen: Sequence[dict[str, None]]) -> dict[str, Any]:
        """The default comparisons: all counts, and the first samples of each kind, added to the page."""
        pairs = {}
        for one, two in suggested(self._opened):
            found = compared(self._opened, one, two)
            for kind in KINDS:
                found[kind]["rows"] = found[kind]["rows"][:PAIRED]
                for row in found[kind]["rows"]:
                    chosen[one.number][row["first"]["key"]] = None
                    chosen[two.number][row["second"]["key"]] = None
            pairs[f"{one},{two}"] = found
        return pairs

    def _found(self) -> list[dict[str, Any]]:
        """The best films over all places, and the best of each place: its page on its own has a film too."""
        found = {one["sample"]: _film(one["frames"], FRAMES) for one in films(self._opened)[:FILMS]}
        own = [film for number in range(len(self._opened)) for film in films(self._opened, [number])[:1]]
        most = min(FRAMES, max(2, OWN_FRAMES // max(len(own), 1)))
        for one in own:
            # If two places share a film, each keeps its own frames.
            frames = [*found.get(one["sample"], []), *_film(one["frames"], most)]
            found[one["sample"]] = list({(frame["place"], frame["key"]): frame for frame in frames}.values())
        return [{"sample": sample, "frames": in_order(frames)} for sample, frames in found.items()]

    def _add(self, number: int, key: str) -> None:
        one = self._opened[number]
        document = one.document(key)
        name = f"{number}/{key}"
        self.ones[name] = document
        for index, picture in enumerate(document["pictures"]):
            if not picture["problem"]:
                self._keep(f"{number}/{index}/{key}", one, key, index)

    def _keep(self, name: str, one: Opened, key: str, index: int) -> None:
        try:
            content, kind = page_picture(one, key, index, SIDE)
        except DataError as error:
            document = self.ones[f"{name.split('/')[0]}/{key}"]
            document["pictures"][index]["problem"] = error.what
            return
        mark = hashlib.sha256(content).hexdigest()[:24]
        if mark not in self._pictures:
            if sum(map(len, self._pictures.values())) + len(content) > BYTES:
                self._left_out += 1
                return
            self._pictures[mark] = f"data:{kind};base64,{base64.b64encode(content).decode()}"
        self._shown[name] = mark

    def _rows(self, number: int, keys: dict[str, None]) -> list[dict[str, Any]]:
        """The facts of the included trajectories, with only those siblings that are included too."""
        one = self._opened[number]
        labels = {key: str(label.label) for key, label in one.labels().items()}
        rows = list(_facts(one, keys))
        for row in rows:
            document = self.ones[f"{number}/{row['key']}"]
            document["rollouts"] = len(document["siblings"])
            document["siblings"] = [
                sibling for sibling in document["siblings"] if f"{number}/{sibling['key']}" in self.ones
            ]
        return [row | {"text": row["text"][:TEXT], "label": labels.get(row["key"])} for row in rows]

    def _place(self, number: int) -> dict[str, Any]:
        one = self._opened[number]
        keys = [row["key"] for row in self._lists[number]]
        table = one.index.table
        wanted = set(keys)
        mask = [key in wanted for key in table["key"].to_pylist()]
        return {
            "number": number,
            "name": one.place.name,
            "path": str(one.place.path),
            "kind": one.place.kind,
            "rows": len(keys),
            "there": table.num_rows,
            "revision": "",
            "problem": "; ".join(one.problems),
            "facets": facets(table.filter(mask)) if table.num_rows else facets(table),
        }


def _facts(one: Opened, keys: dict[str, None]) -> Iterator[dict[str, Any]]:
    table = one.index.table
    numbers = [number for number, key in enumerate(table["key"].to_pylist()) if key in keys]
    yield from table.take(pa.array(numbers, pa.int64())).to_pylist()


def _examples(one: Opened, most: int) -> list[str]:
    """Keys of trajectories from several steps, cycling through sources and outcomes."""
    table = one.index.table.select(["key", "step", "source", "right", "faithful"])
    rows = table.to_pylist()
    steps = sorted({row["step"] for row in rows if row["step"] is not None})
    wanted = set(_evenly(steps, MOMENTS)) if steps else {None}
    parts: dict[tuple[Any, ...], list[str]] = {}
    for row in rows:
        if row["step"] in wanted:
            name = row["step"], row["source"], row["right"], row["faithful"]
            parts.setdefault(name, []).append(row["key"])
    turns = [key for turn in zip_longest(*parts.values()) for key in turn if key is not None]
    return sorted(turns[:most])


def _film(frames: Sequence[Frame], most: int) -> list[Frame]:
    """The first rollout of each moment, evenly thinned if there are too many."""
    moments: dict[tuple[int, int | None], Frame] = {}
    for frame in frames:
        moments.setdefault((frame["place"], frame["step"]), frame)
    return _evenly(list(moments.values()), most)


def _evenly(items: Sequence[Any], most: int) -> list[Any]:
    if len(items) <= most:
        return list(items)
    return [items[round(at * (len(items) - 1) / (most - 1))] for at in range(most)]
