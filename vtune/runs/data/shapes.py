"""`vtune data make shapes`: puzzles to train on, puzzles held out, cold-start traces, and a tiny model."""

from pathlib import Path

from vtune.data import shapes
from vtune.files.writing import check_folder_output
from vtune.report.progress import followed
from vtune.runs.data.tiny import add_tiny, check_tiny
from vtune.schema.parquet import write_samples, write_trajectories


def make_shapes(
    out: Path, *, train: int, heldout: int, traces: int, grid: int, seed: int, tiny: Path | None
) -> dict[str, object]:
    """Write `train.parquet`, `heldout.parquet` and `traces.parquet` to a folder; no two share a picture.

    Args:
        out: The folder.
        train: Samples for reinforcement training.
        heldout: Samples for evaluation.
        traces: Cold-start traces.
        grid: Cells per side, see `vtune.data.shapes.GRIDS`.
        seed: The same seed gives the same files.
        tiny: Where to build a tiny model with random weights and a tokenizer trained on these texts; None for
            none.

    Returns:
        Path and row count of each file, and the folder of the model.

    Raises:
        RecipeError: If that folder already holds a model, or there is no such grid.
    """
    if tiny is not None:
        check_tiny(tiny)
    check_folder_output(out)
    made: dict[str, object] = {}
    for name, split, count in (("train", "train", train), ("heldout", "heldout", heldout)):
        path = out / f"{name}.parquet"
        stream = shapes.samples(count, seed=seed, split=split, grid=grid)  # type: ignore[arg-type]
        made[name] = {"path": str(path), "rows": write_samples(path, followed(name, stream, count))}
    path = out / "traces.parquet"
    shown = followed("traces", shapes.traces(traces, seed=seed, grid=grid), traces)
    rows = write_trajectories(path, shown)
    made["traces"] = {"path": str(path), "rows": rows}
    if tiny is not None:
        made["tiny"] = add_tiny(tiny, shapes.corpus(seed=seed, grid=grid), seed=seed)
    return made
