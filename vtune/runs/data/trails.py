"""`vtune data make trails`: a world to search in, its indexes, questions, traces, and a tiny model."""

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vtune.data import trail_world, trails
from vtune.data.trail_world import World
from vtune.data.trails import Split
from vtune.errors import RecipeError
from vtune.files.writing import atomic_folder, check_folder_output, write_atomically
from vtune.report.progress import followed
from vtune.runs.data.indexing import METADATA, index_passages, index_pictures
from vtune.runs.data.tiny import add_tiny, check_tiny
from vtune.schema.decode import png_of
from vtune.schema.parquet import write_samples, write_trajectories


def make_trails(
    out: Path,
    *,
    train: int,
    heldout: int,
    traces: int,
    towns: int,
    heldout_towns: int,
    seed: int,
    tiny: Path | None,
) -> dict[str, object]:
    """Write a world, its two indexes, and questions and traces about it to a folder.

    `articles-index` and `banners-index` are built from `corpus.jsonl` (articles) and `banners` (pictures with
    `metadata.jsonl`); `train.parquet`, `heldout.parquet` and `traces.parquet` share no pictures, and
    `heldout.parquet` shares no towns with the others.

    Args:
        out: The folder.
        train: Samples for reinforcement training.
        heldout: Samples for evaluation.
        traces: Cold-start traces.
        towns: Number of towns in training samples and traces.
        heldout_towns: Number of towns in held-out samples.
        seed: The same seed gives the same files.
        tiny: Where to build a tiny model with random weights and a tokenizer trained on these texts; None for
            none.

    Returns:
        Path and row count of each file, and the folders of the indexes and of the model.

    Raises:
        RecipeError: If one of these folders already holds a model or indexes, or the world cannot be made.
        MissingExtra: If the index of articles needs a package that is not installed.
    """
    indexes = {"corpus": out / "articles-index", "banners": out / "banners-index"}
    _check_folders(out, tiny, indexes.values())
    world = trail_world.make_world(towns, heldout_towns, seed=seed)
    made = _write_world(out, world, {"train": train, "heldout": heldout}, traces, seed)
    index_passages(out / "corpus.jsonl", indexes["corpus"])
    index_pictures(out / "banners", indexes["banners"])
    made["indexes"] = {name: str(path) for name, path in indexes.items()}
    if tiny is not None:
        made["tiny"] = add_tiny(tiny, trails.corpus(world, seed=seed), seed=seed)
    return made


def _check_folders(out: Path, tiny: Path | None, indexes: Iterable[Path]) -> None:
    if tiny is not None:
        check_tiny(tiny)
    for path in indexes:
        if path.exists():
            raise RecipeError(f"{path} already exists", fix="remove it, or choose another --out")
    check_folder_output(out)


def _write_world(
    out: Path, world: World, samples: Mapping[Split, int], traces: int, seed: int
) -> dict[str, object]:
    """Write questions, traces, articles and banners; return path and row count of each."""
    made: dict[str, object] = {}
    for split, count in samples.items():
        file = out / f"{split}.parquet"
        rows = write_samples(
            file, followed(split, trails.samples(world, count, seed=seed, split=split), count)
        )
        made[split] = {"path": str(file), "rows": rows}
    file = out / "traces.parquet"
    rows = write_trajectories(file, followed("traces", trails.traces(world, traces, seed=seed), traces))
    made["traces"] = {"path": str(file), "rows": rows}
    made["corpus"] = {"path": str(out / "corpus.jsonl"), "rows": _write_corpus(out / "corpus.jsonl", world)}
    made["banners"] = {"path": str(out / "banners"), "rows": _write_banners(out / "banners", world)}
    return made


def _write_corpus(file: Path, world: World) -> int:
    return _write_lines(file, ({"id": a.id, "title": a.title, "text": a.text} for a in world.articles()))


def _write_banners(folder: Path, world: World) -> int:
    """Write pictures and their titles, as `vtune data index --pictures` reads them."""
    rows = []
    with atomic_folder(folder) as partial:
        for number, town in enumerate(town for half in world.towns.values() for town in half):
            name = f"{number:03d}.png"
            (partial / name).write_bytes(png_of(trail_world.banner(town)))
            rows.append({"file_name": name, "title": town.name})
        _write_lines(partial / METADATA, rows)
        shutil.rmtree(folder, ignore_errors=True)  # left by a start that failed later
    return len(rows)


def _write_lines(file: Path, rows: Iterable[dict[str, Any]]) -> int:
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    write_atomically(file, "".join(lines))
    return len(lines)
