"""Where the numbers of a training run go: `metrics.jsonl`, and a tracker beside it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from vtune.metrics.evaluated import finished_suites, row_name
from vtune.metrics.log import MetricsLog, read_metrics
from vtune.metrics.trackers import Rows, Tracker
from vtune.report.progress import say
from vtune.schema.source_names import ALL
from vtune.schema.trajectory import Trajectory
from vtune.update.ranks import Ranks

METRICS = "metrics.jsonl"


class Record:
    """Writes a run's metrics in the first process; the others write nothing. A context manager.

    Metrics written after the last checkpoint are removed, since those steps are repeated; a finished
    evaluation of the very weights that the run resumes from is kept.

    Args:
        out: The run folder.
        ranks: This process and the others.
        settings: The recipe, as plain values.
        track: Name of a tracker, or None.
        done: Number of steps done before the run resumed.
    """

    def __init__(
        self, out: Path, ranks: Ranks, settings: Mapping[str, Any], *, track: str | None, done: int
    ) -> None:
        file = out / METRICS
        lines = read_metrics(file) if ranks.first and file.exists() else []
        suites = finished_suites(lines, done)
        (self.evaluated, *_) = ranks.gather(suites)
        """Suites on which the weights after `done` steps have been evaluated; the same in all processes."""
        kept = {
            line.source: line.values
            for line in lines
            if line.step == done and any(line.source.startswith(row_name(name, "")) for name in suites)
        }
        if ranks.first and done and not any(line.step == done - 1 and line.source == ALL for line in lines):
            # A kill or a full disk truncates only the last line, which in each step is the one over all
            # sources. The following steps are repeated anyway.
            say(f"{file} lacks the numbers of step {done - 1}, the last one done: they were cut, or removed")
        self._log = MetricsLog(file, first_step=done, also=kept) if ranks.first else None
        self._tracker = Tracker(track if ranks.first else None, out, settings, first_step=done, warn=say)
        if kept:
            # The tracker drops everything from step `done` on.
            self._tracker.numbers(done, kept)

    def __enter__(self) -> Self:
        self._tracker.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tracker.__exit__(kind, error, trace)
        if self._log is not None:
            self._log.__exit__(kind, error, trace)

    def write(self, step: int, rows: Rows) -> None:
        """Write the metrics of a step, by source."""
        if self._log is not None:
            self._log.write(step, rows)
        self._tracker.numbers(step, rows)

    def trajectories(self, step: int, drawn: Sequence[Trajectory], file: Path) -> None:
        """Pass a few of a step's trajectories to the tracker; a file keeps all of them."""
        self._tracker.trajectories(step, drawn, file)
