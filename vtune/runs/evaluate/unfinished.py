"""An unfinished evaluation: how much of it there is, and how to resume it."""

from dataclasses import dataclass
from pathlib import Path

from vtune.errors import DataError
from vtune.files.json_text import read_record
from vtune.runs.evaluate.identity import STARTED, TOTAL
from vtune.runs.evaluate.rollout_files import kept
from vtune.runs.evaluate.windows import kept_file, parts
from vtune.runs.start import is_running
from vtune.schema.parquet import scan_columns
from vtune.view.place import RESUME, portions_of


@dataclass(frozen=True, slots=True)
class Unfinished:
    """How far an evaluation has got."""

    drawn: int
    """Rollouts generated, including those that ended in an unfinished portion."""
    total: int | None
    """Rollouts of the whole evaluation; None if started by an older version, which did not record it."""
    running: bool
    """Whether a process is generating the rest right now."""
    failed: int = 0
    """Failed ones among `drawn` (e.g. a service did not respond), which are generated again."""

    @property
    def next_step(self) -> str:
        """What to do about it."""
        if self.running:
            return "wait for the process that is working there"
        return f"{RESUME}, which generates again what failed" if self.failed else RESUME


def unfinished(folder: Path) -> Unfinished | None:
    """How far the evaluation in a folder has got; None if it is finished, or if there is none.

    Raises:
        DataError: If one of its files cannot be read.
    """
    if not (folder / "suite.yaml").is_file() or any(
        (folder / name).is_file() for name in ("recipe.yaml", "results.json")
    ):
        return None
    started = folder / STARTED
    if not started.is_file():
        # The user has put an evaluation's trajectories into a separate folder.
        alone = portions_of(folder) or (folder / "trajectories.parquet").is_file()
        return None if alone else Unfinished(0, None, is_running(folder))
    drawn, failed = kept(folder), 0
    for file in parts(folder / "trajectories"):
        with kept_file(file):
            for rows in scan_columns(file, ["stop_reason"]):
                drawn += rows.num_rows
                failed += rows["stop_reason"].to_pylist().count("error")
    total = read_record(started, fix="the evaluation wrote it; restore it, or start a new one").get(TOTAL)
    if not isinstance(total, int):
        return Unfinished(drawn, None, is_running(folder), failed)
    # Between writing a portion and removing its rollout files, both exist.
    return Unfinished(min(drawn, total), total, is_running(folder), failed)


def not_finished(found: Unfinished) -> str:
    """How far it has got, in words."""
    failed = f", {found.failed} of them failed" if found.failed else ""
    if found.total is None:
        far = f": {found.drawn} rollouts are generated{failed}" if found.drawn else ""
    elif found.drawn == found.total:
        far = f": all {found.total} rollouts are generated{failed}, but its results are not written"
    else:
        far = f": {found.drawn} of {found.total} rollouts are generated{failed}"
    return f"the evaluation is not finished{far}"


def check_finished(folder: Path) -> None:
    """Check that a folder holds no unfinished evaluation.

    Raises:
        DataError: If it does.
    """
    found = unfinished(folder)
    if found is not None:
        raise DataError(not_finished(found), where=str(folder), fix=found.next_step)
