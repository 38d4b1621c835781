"""`vtune show`: a list of trajectories, or one of them."""

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from vtune.errors import DataError, RecipeError
from vtune.runs.agent.unknown import unknown_tools, warn_of
from vtune.runs.evaluate.unfinished import not_finished, unfinished
from vtune.runs.view.opened import Opened
from vtune.schema.trajectory import Trajectory
from vtune.view.place import Place, find_places, no_trajectories

NAMED = 350
"""Characters for the names in a folder (ours): longer error lines are cut in the middle."""


def run_show(
    path: Path, key: str | None, *, where: str, limit: int, data: Sequence[Path]
) -> tuple[dict[str, Any], bool]:
    """What `vtune show` prints.

    Args:
        path: A run, an evaluation, or a file of trajectories, traces or samples.
        key: Key of a trajectory (`step-000004/12`), or the id of a sample; None lists them.
        where: A query that filters and sorts the list.
        limit: How many to list.
        data: Files of the samples that the trajectories answer; if empty, the run's own.

    Returns:
        A document, or a list; and whether it is a document. A sample's id gives a list if it has several
        trajectories. A list has `unfinished`, the progress of an evaluation that is not finished: what it has
        generated since is not listed.

    Raises:
        DataError: If there is no such trajectory, or nothing to look at.
        RecipeError: If the query cannot be read, or the folder holds several runs.
    """
    places = find_places(path)
    if len(places) > 1:
        raise RecipeError(f"{path} holds {len(places)} things to look at", fix=_choice(path, places))
    if places[0].kind == "run" and not places[0].files():
        raise no_trajectories(places[0].path)
    opened = Opened(places[0], data)
    try:
        if opened.index.failed:
            raise opened.index.failed[0]  # a list without that file would look complete
        if key is None:
            return {**_head(path, places[0]), **opened.find(where, most=limit)}, False
        stem, _, row = key.rpartition("/")
        if row.isdecimal() and stem in {file.stem for file in places[0].files()}:
            return {"path": str(path)} | _document(opened, key), True
        if '"' not in key:
            found = opened.find(f'sample:"{key}" {where}', most=limit)
            if found["found"] == 1:
                return {"path": str(path)} | _document(opened, found["trajectories"][0]["key"]), True
            if found["found"]:
                return {**_head(path, places[0]), **found}, False
        raise DataError(
            f"there is no trajectory {key}, and none of a sample of that id",
            where=str(path),
            fix=f"`vtune show {path}` lists those that there are",
        )
    finally:
        opened.index.close()


def _choice(path: Path, places: Sequence[Place]) -> str:
    """The remedy for a folder with several places: their names, as many as fit, but at least one."""
    names = [place.path.relative_to(path).as_posix() for place in places]
    ends = accumulate(len(name) + len(", ") for name in names)
    named = max(1, sum(end <= NAMED for end in ends))
    more = f" and {len(names) - named} more" if named < len(names) else ""
    return f"choose one of {path}: {', '.join(names[:named])}{more}"


def _head(path: Path, place: Place) -> dict[str, Any]:
    """Information on a list as a whole, for the place that was found at a path."""
    found = unfinished(place.path)
    far = None if found is None else f"{not_finished(found)}; {found.next_step}"
    return {"path": str(path), "unfinished": far}


def _document(opened: Opened, key: str) -> dict[str, Any]:
    found = opened.document(key)
    record, _, _ = opened.record(key)
    if isinstance(record, Trajectory):
        warn_of(unknown_tools([record]))
    return found
