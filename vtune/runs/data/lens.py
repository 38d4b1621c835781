"""`vtune data make lens`: puzzles to train on, puzzles held out, and cold-start traces."""

from pathlib import Path

from vtune.data import lens
from vtune.runs.folder import check_folder
from vtune.schema.parquet import write_samples, write_trajectories


def make_lens(
    out: Path, *, train: int, heldout: int, traces: int, level: int, guessable: float, seed: int
) -> dict[str, object]:
    """Write `train.parquet`, `heldout.parquet` and `traces.parquet` to a folder; no two share a picture.

    Args:
        out: The folder.
        train: Samples for reinforcement training.
        heldout: Samples for evaluation.
        traces: Cold-start traces.
        level: A key of `vtune.data.lens.LEVELS`.
        guessable: Share of questions that can be answered without a look.
        seed: Same seed, same files.

    Returns:
        Path and row count of each file.
    """
    check_folder(out)
    made: dict[str, object] = {}
    for name, split, count in (("train", "train", train), ("heldout", "heldout", heldout)):
        path = out / f"{name}.parquet"
        rows = lens.samples(level, count, seed=seed, split=split, guessable=guessable)  # type: ignore[arg-type]
        made[name] = {"path": str(path), "rows": write_samples(path, rows)}
    path = out / "traces.parquet"
    count = write_trajectories(path, lens.traces(level, traces, seed=seed, guessable=guessable))
    made["traces"] = {"path": str(path), "rows": count}
    return made
