"""What can be viewed: a run, an evaluation, or one file of trajectories, traces or samples."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from vtune.config import read_values
from vtune.errors import RESTORE, DataError
from vtune.schema.audit import NAME as AUDIT
from vtune.schema.parquet import columns

Kind = Literal["run", "evaluation", "trajectories", "samples"]

SWEEP = "sweep.yaml"
"""Marks a folder whose runs lie one level deeper than usual: see `vtune.runs.sweep.table`."""
CURATED = ("curation.json", "drops.jsonl")
"""`vtune curate` leaves at least one of these next to its `recipe.yaml`, which is not that of a run."""
PREPARED = "prepared"
"""In such a folder, what its runs start from; shown only if it is named itself."""
DEPTH = 2
"""How many levels to search for runs below a folder that is not a run: `runs/demo/eval/after_rl` (ours).
"""

GIVE = "give a folder that `vtune sft`, `rl`, `eval` or `demo` wrote, or a Parquet file"
GIVE_RUN = "give a folder that `vtune sft`, `rl`, `eval` or `demo` wrote, e.g. runs/codev-tiny"

RESUME = "run the same command again with --resume"
"""What to do about an unfinished evaluation."""

_RECORDS = (".json", ".jsonl", ".yaml", ".html")
"""Suffixes of the other files kept in a run folder."""
_SHOWN = ("metrics.jsonl", "results.json", AUDIT, "environment.json")
"""Other files in a folder whose content a viewer shows."""
_STEP = re.compile(r"step-(\d+)")
_WRITTEN = re.compile(r"(step-\d{6,}(-rank-\d+)?|from-\d{8,})\.parquet")
"""Names of a run's trajectory files, and of the portions of an unfinished evaluation."""


@dataclass(frozen=True, slots=True)
class Place:
    """One thing to view, with the files kept next to it."""

    path: Path
    """As given by the user."""
    name: str
    kind: Kind

    @property
    def root(self) -> Path:
        """The folder outside which nothing is read."""
        return self.path if self.path.is_dir() else self.path.parent

    @property
    def index(self) -> Path:
        """The folder of its index: hidden, next to what it is about."""
        return self.path / ".view" if self.path.is_dir() else self.path.parent / f".{self.path.name}.view"

    @property
    def labels(self) -> Path:
        """The file with people's labels of its trajectories."""
        if self.path.is_dir():
            return self.path / "labels.jsonl"
        return self.path.with_name(f"{self.path.stem}.labels.jsonl")

    @property
    def settings(self) -> Path | None:
        """The recipe or suite behind it; None if there is none."""
        folders = (self.root,) if self.path.is_dir() else (self.root, self.root.parent)
        names = [folder / name for folder in folders for name in ("suite.yaml", "recipe.yaml")]
        return next((name for name in names if name.is_file()), None)

    def files(self) -> list[Path]:
        """Its current files of trajectories or samples, in order.

        Raises:
            DataError: If the place is gone, or if one is a link that leads out of its folder.
        """
        if (gone := self.gone()) is not None:
            raise gone
        if not self.path.is_dir():
            return [self.path] if self.path.is_file() else []
        portions = portions_of(self.path)
        # An evaluation merges its portions when it ends.
        whole = self.path / "trajectories.parquet"
        found = [whole] if whole.is_file() else portions
        for file in found:
            inside(file, self.root)
        return found

    def gone(self) -> DataError | None:
        """The error for a place that was moved or deleted since it was opened; None if it is there."""
        if self.path.exists():
            return None
        return DataError(
            "it is gone: it was moved or deleted after it was opened",
            where=str(self.path),
            fix="put it back, or stop the viewer and open it where it is now",
        )

    def revision(self) -> str:
        """A text that changes with every addition or modification; uses only names, sizes and times.

        Raises:
            DataError: As `files`.
        """
        watched = [*self.files(), *(self.path / name for name in _SHOWN), self.labels]
        watched += [] if self.settings is None else [self.settings]
        return "/".join(filter(None, map(stamp_if_there, watched)))


def find_places(path: Path) -> list[Place]:
    """What there is to view under a path: one place, or the runs and evaluations in a folder.

    Those in a folder come in the order in which they were started, so that learning shows from left to right.

    Raises:
        DataError: If there is nothing.
    """
    if path.is_file():
        check_no_record(path)
        kind = kind_of_file(path)
        if kind is None:
            raise DataError(
                "this file holds neither trajectories nor samples",
                where=str(path),
                fix=f"its columns are {', '.join(columns(path))}; import published data: `vtune data import`",
            )
        return [Place(path, path.stem, kind)]
    if not path.is_dir():
        raise DataError(f"there is no file or folder {path}", fix=GIVE)
    found = sorted([*_files(path), *_below(path, DEPTH)], key=_begun)
    if not found:
        raise DataError(f"{path} holds no run, no evaluation and no Parquet file", fix=GIVE)
    # Runs of a sweep are all named after their seeds, so the paths have to distinguish them.
    names = [place.name for place in found]
    return [
        replace(place, name=place.path.relative_to(path).as_posix()) if names.count(place.name) > 1 else place
        for place in found
    ]


def find_all(paths: Sequence[Path]) -> list[Place]:
    """What there is to view under several paths; places with the same name get distinguishing paths as names.

    Raises:
        DataError: If there is nothing under one of them.
    """
    found = [place for path in paths for place in find_places(path)]
    alike = [[other.path for other in found if other.name == place.name] for place in found]
    return [
        replace(place, name=told_apart(place.path, same)) if len(same) > 1 else place
        for place, same in zip(found, alike, strict=True)
    ]


def told_apart(path: Path, alike: Sequence[Path]) -> str:
    """The end of a path that distinguishes it from others of its name: `both/seed-0` from `neither/seed-0`.

    Args:
        path: One of them.
        alike: All of them, itself included.
    """
    above = os.path.commonpath([one.resolve().parent for one in alike])
    return path.resolve().relative_to(above).as_posix()


def runs_below(folder: Path) -> list[Place]:
    """The runs and evaluations in a folder that is not itself one of them."""
    return sorted(_below(folder, DEPTH), key=_begun)


def is_curation(folder: Path) -> bool:
    """Whether `vtune curate` made a folder: with its `recipe.yaml`, it looks like a run."""
    return any((folder / name).is_file() for name in CURATED) and not (folder / "metrics.jsonl").is_file()


def check_run_folder(path: Path, *, fix: str = GIVE_RUN) -> None:
    """Check that there is a folder, and that it is not a curation's.

    Args:
        path: The path that was given as a run folder.
        fix: The remedy if there is no such folder.

    Raises:
        DataError: If there is no such folder, or it is a curation's.
    """
    if not path.exists():
        raise DataError(f"there is no folder {path}", fix=fix)
    if is_curation(path):
        raise DataError(
            f"{path} is the folder of a curation, not of a run",
            fix=f"its report is {path / 'page.html'}, and `vtune show {path}` lists its rows",
        )


def check_no_record(path: Path) -> None:
    """Check that a path is not one of the logs or settings that a run keeps next to its trajectories.

    Raises:
        DataError: If it is one.
    """
    above = (path.parent, path.parent.parent) if path.parent.name == "replies" else (path.parent,)
    kept_by = [one for one in above if any((one / name).is_file() for name in ("suite.yaml", "recipe.yaml"))]
    if path.is_file() and path.suffix in _RECORDS and kept_by:
        raise DataError(
            "this file holds neither trajectories nor samples: it is kept beside them",
            where=str(path),
            fix=f"give the folder: {kept_by[0]}",
        )


def no_trajectories(folder: Path) -> DataError:
    """The error for a folder without trajectories to read."""
    if (folder / "suite.yaml").is_file() and not (folder / "results.json").is_file():
        return DataError("the evaluation is not finished", where=str(folder), fix=RESUME)
    if (folder / "recipe.yaml").is_file() and not is_curation(folder):
        recipe = read_values(folder / "recipe.yaml", fix=RESTORE)
        if isinstance(recipe, dict) and "rollout" in recipe:
            fix = "its recipe says with `trajectories_every` which steps keep them, from the first one on"
            return DataError("the run has kept no trajectories yet", where=str(folder), fix=fix)
        fix = (
            f"`vtune report {folder}` has its numbers; `vtune eval` with one of its checkpoints generates "
            "some"
        )
        return DataError("a run of `vtune sft` keeps no trajectories", where=str(folder), fix=fix)
    fix = "give a folder of `vtune rl` or `vtune eval`"
    return DataError("there are no trajectories", where=str(folder), fix=fix)


def portions_of(folder: Path) -> list[Path]:
    """The files of trajectories that a run, or an unfinished evaluation, keeps in its folder, in order.

    A copy next to them (`step-000020-good`) is the user's and would count the same rows twice. If no file has
    such a name, the user has renamed them all, and all are used.
    """
    if all((folder / name).is_file() for name in ("results.json", "trajectories.parquet")):
        return []  # of a finished evaluation that is being continued
    every = sorted((folder / "trajectories").glob("*.parquet"))
    return [file for file in every if _WRITTEN.fullmatch(file.name)] or every


def step_of(file: Path) -> int | None:
    """The training step of the trajectories in a file, from its name."""
    found = _STEP.match(file.name)
    return int(found[1]) if found else None


def stamp(file: Path) -> str:
    """Name, size and time of a file: a text that changes when it is rewritten."""
    status = file.stat()
    return f"{file.name} {status.st_size} {status.st_mtime_ns}"


def stamp_if_there(file: Path) -> str:
    """The stamp of a file; empty if there is none: files come and go while a run is viewed."""
    try:
        return stamp(file)
    except OSError:
        return ""


def inside(file: Path, root: Path) -> Path:
    """The file, if it lies in a folder, after links are resolved.

    Raises:
        DataError: If it does not.
    """
    if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(root)):
        raise DataError(
            f"{file} leads out of {root}", where=str(root), fix="copy the file to where its link stands"
        )
    return file


def _begun(place: Place) -> tuple[bool, int, str]:
    """Sort key: files by name, then folders by the time of their settings, which are written first."""
    settings = place.settings if place.path.is_dir() else None
    return settings is not None, settings.stat().st_mtime_ns if settings else 0, str(place.path)


def _files(folder: Path) -> list[Place]:
    """The Parquet files of a folder that is not a run; a damaged one is kept, and opening it reports why."""
    settings = any((folder / name).is_file() for name in ("suite.yaml", "recipe.yaml"))
    if settings and not is_curation(folder):
        return []
    found = []
    for file in sorted(folder.glob("*.parquet")):
        try:
            kind = kind_of_file(file)
        except DataError:
            kind = "trajectories"
        if kind is not None:
            found.append(Place(file, file.stem, kind))
    return found


def _below(folder: Path, depth: int) -> list[Place]:
    """The runs and evaluations in a folder, or the folder itself if it is one."""
    name = folder.resolve().name
    if (folder / "suite.yaml").is_file() and not (folder / "recipe.yaml").is_file():
        return [Place(folder, name, "evaluation")]
    if is_curation(folder):
        return []
    if (folder / "recipe.yaml").is_file():
        return [Place(folder, name, "run")]
    swept = (folder / SWEEP).is_file()
    deeper = depth + swept
    found = []
    for child in sorted(folder.iterdir()):
        if swept and child.name == PREPARED:
            continue
        if deeper and child.is_dir() and not child.is_symlink() and not child.name.startswith("."):
            found += _below(child, deeper - 1)
    return found


def kind_of_file(path: Path) -> Kind | None:
    """What a Parquet file holds; None if it holds neither.

    Raises:
        DataError: If it cannot be read.
    """
    names = columns(path).keys()
    if {"sample_id", "messages", "calls"} <= names:
        return "trajectories"
    if {"prompt", "reward_model"} <= names:
        return "samples"
    return None
