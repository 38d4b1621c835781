"""A user's own part files kept in the run folder: a run resumes with those and no others."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from vtune.errors import RESTORE, BrokenPart, RecipeError
from vtune.files.json_text import read_record
from vtune.files.writing import write_atomically
from vtune.report.progress import say
from vtune.sections import Strict
from vtune.uses import USES, broken, prints, used

R = TypeVar("R", bound=Strict)


def keep_uses(recipe: R, out: Path) -> R:
    """Copy the files of a user's own parts into `out/uses`; return the recipe, which then names the copies.

    This way the folder can be moved, and its recipe read again, whatever happens to the original files.

    Raises:
        RecipeError: If two files have the same name, or a copy cannot be written.
    """
    if not prints():
        return recipe
    (out / USES).mkdir(parents=True, exist_ok=True)
    for file in used():
        write_atomically(out / USES / file.name, file.source)
    copies = tuple(f"{USES}/{Path(name).name}" for name in getattr(recipe, "uses", ()))
    return recipe.model_copy(update={"uses": copies}) if copies else recipe


def check_uses(
    before: Mapping[str, str], out: Path, *, named: Iterable[str] | None = None, instead: str = ""
) -> None:
    """Check that the files of a user's own parts are those that a folder was started with.

    Args:
        before: Name -> SHA-256, as recorded in the folder.
        out: The run folder.
        named: The files that its recipe names now, if this process has also loaded those of others; null:
            all files that it has loaded.
        instead: What else can be done if a file differs; ends the remedy.

    Raises:
        RecipeError: If a file differs, is missing, or was added.
    """
    now = prints()
    if named is not None:
        own = {*before, *(Path(file).name for file in named)}
        now = {name: sha256 for name, sha256 in now.items() if name in own}
    # If a run continues from the folder's recipe, errors point to the folder's own copies: find edited ones.
    edited = {file.name for file in used() if Path(file.path) == (out / USES / file.name).resolve()}
    for name in sorted({*before, *now}):
        if before.get(name) == now.get(name):
            continue
        if name not in before:
            what, fix = "was not among the files", "take it out of `uses`"
        elif name not in now:
            what, fix = "is missing from the files", f"put {out / USES / name} under `uses`"
        elif name in edited:
            what, fix = "is not the file", f"undo what was changed in {out / USES / name}"
        else:
            what, fix = "is not the file", f"name {out / USES / name} under `uses`"
        raise RecipeError(
            f"{name} {what} of the user's own parts that {out} began with",
            fix=f"{fix}, or {_new_run(out)}{instead}",
        )


def warn_of_edits(out: Path) -> None:
    """Warn about files of the user's own parts that were edited since the start of the run being resumed."""
    came_from = read_record(out / "environment.json", fix=RESTORE).get("uses_from", {})
    for file in used():
        path = Path(came_from.get(file.name, file.path))
        with suppress(OSError):  # it may be gone, or somewhere else
            if path.read_bytes() != file.source:
                say(
                    f"warning: {path} is not what {out} began with: the run continues with its copy, "
                    f"{out / USES / file.name}; to use the edited file, {_new_run(out)}"
                )


@contextmanager
def keeping(out: Path) -> Iterator[None]:
    """If a user's part breaks, let the error say that the run can resume with no other file."""
    try:
        yield
    except Exception as error:
        failed = error if isinstance(error, BrokenPart) else broken(error)
        if failed is None:
            raise
        failed.fix += (
            f". {out} keeps the files that it began with, and --resume runs those: once yours is corrected, "
            f"{_new_run(out, ', or remove that folder')}"
        )
        raise failed from failed.__cause__


def _new_run(out: Path, otherwise: str = "") -> str:
    """How to start a new run in place of this one; `otherwise` is added if this one has learnt nothing."""
    weights = out / "checkpoints/newest"
    learnt = f", from what this one has learnt: --set model={weights}"
    return f"start a new run with another --out{learnt if weights.exists() else otherwise}"
