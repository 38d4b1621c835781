"""`vtune data make lens`: puzzles to train on, puzzles held out, cold-start traces, and a tiny model."""

from pathlib import Path

from vtune.data import lens, shortcut
from vtune.data.shortcut import Shortcut
from vtune.files.writing import check_folder_output
from vtune.report.progress import followed
from vtune.runs.data.tiny import add_tiny, check_tiny
from vtune.schema.parquet import write_samples, write_trajectories


def make_lens(
    out: Path,
    *,
    train: int,
    heldout: int,
    traces: int,
    level: int,
    guessable: float,
    seed: int,
    tiny: Path | None = None,
) -> dict[str, object]:
    """Write `train.parquet`, `heldout.parquet` and `traces.parquet` to a folder; no two share a picture.

    Args:
        out: The folder.
        train: Samples for reinforcement training.
        heldout: Samples for evaluation.
        traces: Cold-start traces.
        level: A key of `vtune.data.lens.LEVELS`.
        guessable: Share of questions that can be answered without a look.
        seed: The same seed gives the same files.
        tiny: Where to build a tiny model with random weights and a tokenizer trained on these texts; None for
            none.

    Returns:
        Path and row count of each file, and the folder of the model.

    Raises:
        RecipeError: If that folder already holds a model.
    """
    _check(out, tiny)
    made: dict[str, object] = {}
    for name, split, count in (("train", "train", train), ("heldout", "heldout", heldout)):
        path = out / f"{name}.parquet"
        rows = lens.samples(level, count, seed=seed, split=split, guessable=guessable)  # type: ignore[arg-type]
        made[name] = {"path": str(path), "rows": write_samples(path, followed(name, rows, count))}
    path = out / "traces.parquet"
    shown = followed("traces", lens.traces(level, traces, seed=seed, guessable=guessable), traces)
    count = write_trajectories(path, shown)
    made["traces"] = {"path": str(path), "rows": count}
    return made | _model(tiny, level, seed)


def make_shortcut(
    out: Path,
    *,
    train: int,
    heldout: int,
    traces: int,
    world: Shortcut,
    seed: int,
    tiny: Path | None = None,
) -> dict[str, object]:
    """Write a world with a shortcut: `train.parquet`, `traces.parquet`, and `same.parquet`, `broken.parquet`
    and `reversed.parquet` with the same held-out puzzles but different cues.

    Args:
        out: The folder.
        train: Samples for reinforcement training, in which the cue gives the answer with its probability.
        heldout: Samples in each of the three evaluation files.
        traces: Cold-start traces.
        world: The cue, and how often it gives the answer.
        seed: The same seed gives the same files.
        tiny: As in `make_lens`.

    Returns:
        Path and row count of each file, and the folder of the model.

    Raises:
        RecipeError: If that folder already holds a model.
    """
    _check(out, tiny)
    made: dict[str, object] = {}
    path = out / "train.parquet"
    rows = shortcut.samples(train, world, seed=seed, split="train", relation="same")
    made["train"] = {"path": str(path), "rows": write_samples(path, followed("train", rows, train))}
    for relation in shortcut.RELATIONS:
        path = out / f"{relation}.parquet"
        rows = shortcut.samples(heldout, world, seed=seed, split="heldout", relation=relation)
        made[relation] = {"path": str(path), "rows": write_samples(path, followed(relation, rows, heldout))}
    path = out / "traces.parquet"
    count = write_trajectories(path, followed("traces", shortcut.traces(traces, world, seed=seed), traces))
    made["traces"] = {"path": str(path), "rows": count}
    return made | _model(tiny, shortcut.LEVEL, seed)


def _check(out: Path, tiny: Path | None) -> None:
    if tiny is not None:
        check_tiny(tiny)
    check_folder_output(out)


def _model(tiny: Path | None, level: int, seed: int) -> dict[str, object]:
    return {} if tiny is None else {"tiny": add_tiny(tiny, lens.corpus(level, seed=seed), seed=seed)}
