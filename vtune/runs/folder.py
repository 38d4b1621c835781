"""The run folder: what the run was asked to do, where it ran, and what may resume in it."""

import functools
import json
import math
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from vtune.config import dump_recipe, read_values, with_new_names
from vtune.differences import both, differing_keys, with_values
from vtune.errors import RESTORE, DataError, RecipeError
from vtune.files.json_text import read_record
from vtune.files.writing import write_atomically
from vtune.report.progress import Bytes, say
from vtune.runs.kept_uses import check_uses, keep_uses, keeping, warn_of_edits
from vtune.runs.moved import CONTENT, by_content, has_moved, index_prints, weights_print
from vtune.runs.start import check_start, locked
from vtune.runs.versions import version_of
from vtune.schema.parquet import fingerprint
from vtune.sections import Strict
from vtune.update.checkpoint import newest_checkpoint
from vtune.update.manifest import checkpoint_step
from vtune.update.ranks import Ranks
from vtune.uses import prints, used

PACKAGES = (
    "vtune",
    "torch",
    "transformers",
    "vllm",
    "deepspeed",
    "peft",
    "pyarrow",
    "numpy",
    "pillow",
    "opencv-python-headless",
)

_PATIENCE = tuple(f"patience.{key}" for key in ("timeout_s", "retries", "deadline_s", "concurrency"))
_ENDPOINT = (
    *("base_url", "concurrency", "retries", "timeout_s", "api_key_env"),
    *("prices", "prices.input", "prices.cached_input", "prices.output", "prices.currency"),
    *("budget", "budget.tokens", "budget.money"),
)
"""Keys of a section for a model that is queried: where it is, how patiently to wait, and at what cost."""


def _within(section: str, *keys: str) -> tuple[str, ...]:
    return tuple(f"{section}.{key}" for key in keys)


MAY_CHANGE = (
    "uses",  # their content is compared, see `check_uses`
    "agent",  # its settings are compared
    "published",  # does not change how a suite is asked
    "published.name",
    "published.rows",
    "published.licence",
    "published.md5",
    "published.revision",
    "checkpoints.every",
    "checkpoints.background",
    "checkpoints.keep",
    "checkpoints.keep.newest",
    "checkpoints.keep.every",
    "checkpoints.keep.best",
    "checkpoints.keep.best.suite",
    "checkpoints.keep.best.metric",
    "checkpoints.keep.best.mode",
    "eval",
    "eval.every",
    "eval.suites",
    "checkpoints.minutes",
    "trajectories_every",
    "max_tokens",  # of `vtune sft`: a longer trace is an error and never cut
    *_within("update", "micro_tokens", "activation_checkpointing"),  # only the rounding of sums changes
    "rollout.servers",
    "rollout.gpu_memory",
    "rollout.tensor_parallel",
    *_within("tools.web", "record", "budget"),
    *_within("tools.web.budget", "requests", "money", "per_search", "per_page", "per_picture"),
    *_within("tools.text_search", "url", "token_env", *_PATIENCE),
    *_within("tools.text_search.web", "max_requests", "api_key_env"),
    *_within("tools.text_search", "pages.url", "pages.api_key_env"),
    *_within("tools.text_search.summariser", *_ENDPOINT),
    *_within("tools.image_search", "url", "token_env", *_PATIENCE, "web.url", "web.api_key_env"),
    # Only where it is; the index identifies its weights.
    *_within("tools.text_search", "encoder", "encoder.model", "encoder.device"),
    *_within("tools.image_search", "encoder", "encoder.model", "encoder.device"),
    "openai.api_key_env",
    "openai.prices",
    "openai.retries",
    "openai.timeout_s",
    "reward.max_unscored",  # when a run stops, not what it learns until then
    "reward.service",
    "reward.service.urls",
    "reward.service.token_env",
    "reward.service.deadline_s",
    *_within("reward.judge", *_ENDPOINT, "batch", "batch_poll_s"),
    *_within("grader", *_ENDPOINT, "batch", "batch_poll_s"),
)
"""Keys that a resumed run may change: they do not affect what is learnt."""

LENGTHS = ("steps", "epochs")
"""Keys that a resumed run may raise, to continue past its end. A raised value may be lowered again."""


@contextmanager
def running(
    out: Path, recipe: Strict, data: Sequence[Path], *, resume: bool, ranks: Ranks, steps: int | None = None
) -> Iterator[None]:
    """A run in its folder; the first rank checks that it may start and that no other process works there.

    `steps` is as in `start_run`.

    Raises:
        RecipeError: As `start_run`, or if another process works in the folder.
        DataError: As `start_run`.
        BrokenPart: If a user's part breaks; the error says what can be done once the file is corrected.
    """
    if not ranks.first:
        with keeping(out):
            yield
        return
    if not out.is_dir():
        check_start(out, resume=resume)  # so that no folder is created if the run cannot start
    with locked(out):
        start_run(out, recipe, data, resume=resume, steps=steps)
        with keeping(out):
            yield


def start_run(
    out: Path, recipe: Strict, data: Sequence[Path], *, resume: bool, steps: int | None = None
) -> None:
    """Make the folder of a new run, or verify that the run being resumed is the same one.

    Args:
        out: The run folder.
        recipe: What is to be run.
        data: The data files.
        resume: Whether the run continues.
        steps: How many it will have, which a recipe in epochs does not say; `vtune watch` reads it.

    Raises:
        RecipeError: If the folder already holds a run and `resume` was not given, or the other way round, or
            the recipe differs (the keys are named), or asks for fewer steps than are done.
        DataError: If a data file is not the one that the run began with.
    """
    check_start(out, resume=resume)
    written = out / "recipe.yaml"
    prints = _prints(data)
    if not resume:
        out.mkdir(parents=True, exist_ok=True)
        about = environment(prints, index_prints(recipe)) | ({} if steps is None else {"steps": steps})
        if used():
            about["uses_from"] = {file.name: file.path for file in used()}
        if (weights := weights_print(getattr(recipe, "model", None))) is not None:
            about["weights"] = weights
        write_atomically(out / "environment.json", json.dumps(about, indent=2) + "\n")
        write_atomically(written, dump_recipe(keep_uses(recipe, out)))
        return
    lengths = check_same_run(out, recipe, prints, processes=Ranks.of_this_process().world, resumed=True)
    warn_of_edits(out)
    if lengths:
        _check_reached(out, steps or getattr(recipe, "steps", None) or 0)
    _note(out, lengths, steps, prints)
    write_atomically(written, dump_recipe(keep_uses(recipe, out)), option=None)


def _prints(data: Sequence[Path]) -> dict[str, str]:
    """File -> its fingerprint, with progress: hundreds of gigabytes take minutes."""
    progress = Bytes("fingerprint of the data", sum(path.stat().st_size for path in data if path.is_file()))
    return {str(path): fingerprint(path, progress.advance) for path in data}


def _check_reached(out: Path, steps: int) -> None:
    """Check that a run whose length has changed has not gone past its new end."""
    newest = newest_checkpoint(out / "checkpoints")
    done = 0 if newest is None else checkpoint_step(newest)
    if steps < done:
        raise RecipeError(
            f"{out} has already done {done} steps, but would now end after {steps}",
            fix="make it at least that long",
        )


def _note(
    out: Path, lengths: Mapping[str, tuple[float, float]], steps: int | None, prints: Mapping[str, str]
) -> None:
    """Record and print that the run's end has changed; also record where its data is now."""
    file = out / "environment.json"
    known = read_record(file, fix=RESTORE)
    now = (known if steps is None else known | {"steps": steps}) | {"data": dict(prints)}
    changes = [f"{key} {before:.15g} -> {after:.15g}" for key, (before, after) in lengths.items()]
    if changes:
        now = now | {"extended": [*known.get("extended", []), *changes]}
    if now != known:
        write_atomically(file, json.dumps(now, indent=2) + "\n", option=None)
    if changes:
        how = "extended" if all(now > before for before, now in lengths.values()) else "shortened again"
        say(
            f"{out} is {how}: {', '.join(changes)}; what depends on the length of the run follows the new "
            "length"
        )


def check_same_run(
    out: Path,
    recipe: Strict,
    prints: Mapping[str, str],
    *,
    processes: int,
    resumed: bool = False,
    uses: Iterable[str] | None = None,
) -> dict[str, tuple[float, float]]:
    """Check that a run folder was started with this recipe, on this data, with this many processes.

    Args:
        out: A folder that `start_run` made.
        recipe: What is to be run now.
        prints: Data file -> its fingerprint now.
        processes: Across all machines.
        resumed: Whether the run continues; it may then be longer, and its data and first weights elsewhere.
        uses: As `named` of `check_uses`.

    Returns:
        The `LENGTHS` that were raised, or lowered again: before and now.

    Raises:
        RecipeError: If the recipe or the number of processes differs.
        DataError: If a data file differs.
    """
    written = out / "recipe.yaml"
    began = read_record(out / "environment.json", "processes", "data", fix=RESTORE)
    indexes = (began.get("indexes", {}), index_prints(recipe))
    changed, lengths = _differing(written, recipe, *indexes), {}
    if resumed:
        lengths = _lengths(changed, began)
        changed = {
            key: both
            for key, both in changed.items()
            if key not in lengths and not has_moved(key, began, both[1], prints)
        }
    if changed:
        replaced = any(key.startswith(CONTENT) for key in changed)
        back = "restore the index that it began with" if replaced else f"use {written}"
        raise RecipeError(
            f"the recipe is not the one that {out} began with; it differs in {with_values(changed)}",
            fix=f"{back}, or start a new run with another --out",
        )
    if began["processes"] != processes:
        raise RecipeError(
            f"{out} began with {began['processes']} process(es)",
            fix="resume with as many: the optimiser's state is split among them",
        )
    check_uses(began.get("uses", {}), out, named=uses)
    known = began["data"]
    elsewhere = resumed and list(prints.values()) == list(known.values())
    for name, value in prints.items():
        if known.get(name) != value and not elsewhere:
            raise DataError(
                f"{name} is not the file that {out} began with",
                fix="put the old file back, or start a new run in another --out",
            )
    return lengths


def _differing(
    written: Path, recipe: Strict, began: Mapping[str, str], indexes: Mapping[str, str]
) -> dict[str, tuple[Any, Any]]:
    """Keys in which a recipe differs from that of a run, except those that may change: before and now.

    `began` and `indexes` are the fingerprints of the indexes of the run and of the recipe.
    """
    before = with_new_names(read_values(written, fix=RESTORE))
    now = yaml.safe_load(dump_recipe(recipe))
    known = _completed(before, type(recipe))
    keys = [key for key in differing_keys(known, now) if key not in MAY_CHANGE]
    return both(by_content(keys, began, indexes), known, now)


def _lengths(
    changed: Mapping[str, tuple[Any, Any]], began: Mapping[str, Any]
) -> dict[str, tuple[float, float]]:
    """The changed `LENGTHS` that are allowed: raised, or lowered to no less than the original value."""
    first: dict[str, float] = {}
    for change in began.get("extended", []):
        key, before, *_ = str(change).split()
        first.setdefault(key, float(before))
    return {
        key: (before, now)
        for key, (before, now) in changed.items()
        if key in LENGTHS
        and isinstance(before, int | float)
        and isinstance(now, int | float)
        and (now > before or now >= first.get(key, math.inf))
    }


def _completed(before: Any, kind: type[Strict]) -> Any:
    """A stored recipe, with keys added since then set to what their absence meant."""
    try:
        return yaml.safe_load(dump_recipe(kind.model_validate(before)))
    except ValidationError:
        return before


_version = functools.cache(version_of)
"""The version of a package at the first call, as for `_commit`."""


def environment(data: Mapping[str, str], indexes: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Versions, machine and fingerprints of data and search indexes, written next to every result."""
    known = {"uses": prints(), "indexes": dict(indexes or {})}
    return {key: value for key, value in known.items() if value} | {
        "packages": {name: _version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}, {os.cpu_count()} CPUs",
        "processes": Ranks.of_this_process().world,
        "git_commit": _commit(),
        "data": dict(data),
    }


@functools.cache
def _commit() -> str | None:
    """The commit of this code at the first call, since that is the code that was loaded.

    None if it is installed rather than a checkout, or if there is no git.
    """
    here = Path(__file__)
    try:
        # A virtual environment may lie in an unrelated repository, which does not track this file.
        known = _git("ls-files", "--error-unmatch", here.name, folder=here.parent)
        return _git("rev-parse", "HEAD", folder=here.parent) if known else None
    except FileNotFoundError:
        return None


def _git(*words: str, folder: Path) -> str | None:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None
