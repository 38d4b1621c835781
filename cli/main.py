"""The `vtune` command, and the only place where errors become text and exit codes."""

import atexit
import errno
import importlib.metadata
import io
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from vtune.errors import INTERRUPTED, WITHIN, BrokenPart, RunFailed, ServiceError, VtuneError
from vtune.files.terminal import brief, clean
from vtune.files.writing import NO_ROOM, unwritable
from vtune.models.heap import SWITCH, has_huge_pages
from vtune.uses import broken, used

from . import data, parts, recipes, sandbox, scores, serve
from .compare import compare
from .curate import curate
from .demo import demo
from .doctor import doctor
from .early import interrupt_at_sigint
from .ending import (
    RESUMABLE,
    Ending,
    LostInterrupts,
    heed_orders,
    heed_sigint,
    ignore_sigint,
    tell_of_threads,
)
from .eval import evaluate
from .exits import Exits
from .export import export
from .faithfulness import faithfulness
from .options import NoArguments
from .output import fill_closed_streams, outlast_readers
from .report import report
from .rl import rl
from .sft import sft
from .show import show_
from .view import view
from .waiting import Waiting
from .watch import watch

app = typer.Typer(
    name="vtune",
    help="Post-train vision-language models that think with images, and check that their looking is honest.",
    epilog="Exit codes: 0 done, 1 the run failed, 2 the input is wrong, 130 interrupted.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def show_version(asked: bool) -> None:
    """Print the version and exit, if it was asked for."""
    if asked:
        sys.stdout.write(f"vtune {importlib.metadata.version('vtune')}\n")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Options of the command itself."""
    interrupt_at_sigint()
    heed_sigint()


app.command("demo")(demo)
app.add_typer(data.app, name="data", help="Make, import, inspect and check samples.")
app.command("curate")(curate)
app.command("sft", cls=NoArguments)(sft)
app.command("rl", cls=NoArguments)(rl)
app.command("eval", cls=NoArguments)(evaluate)
app.add_typer(scores.app, name="scores", help="Exchange replies and scores with official scorers.")
app.command("compare")(compare)
app.command("export")(export)
app.command("faithfulness")(faithfulness)
app.command("judge-faithfulness", hidden=True)(faithfulness)
app.command("report")(report)
app.command("show")(show_)
app.command("view")(view)
app.command("watch")(watch)
app.add_typer(serve.app, name="serve", help="Serve rewards, searches or an agent over HTTP.")
app.command("doctor")(doctor)
app.add_typer(sandbox.app, name="sandbox", help="Run code in the sandbox, or attack it.")
app.add_typer(recipes.app, name="recipes", help="List, show, copy and check the recipes that ship.")
app.add_typer(parts.app, name="parts", help="List the parts that recipes name, and check your own.")

# Set before torch is loaded: its CPU threads spin while waiting, which slows generation on a busy machine by
# a factor of 4 to 14 (measured); passive ones sleep. A value that the user has set is kept.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Use huge pages for tensors in host memory, including those of vLLM's processes.
if has_huge_pages():
    os.environ.setdefault(SWITCH, "1")


_USERS = {
    errno.ENAMETOOLONG: 2,
    errno.EACCES: 2,
    errno.EPERM: 2,
    errno.ELOOP: 2,
    errno.EROFS: 2,
    errno.ENOSPC: 1,
    errno.EDQUOT: 1,
    errno.EIO: 1,
}
"""OS errors about names, permissions or disks, wherever they occur -> the exit code."""


def main() -> None:
    """Run the command; show a known problem as text and anything else as a traceback."""
    try:
        try:
            with Waiting():
                app()
        finally:
            ignore_sigint()
    except VtuneError as error:
        _end(error)
    except OSError as error:
        _blame(error)
        code = _USERS.get(error.errno or 0)
        if code is None or (code == 2 and error.filename is None):
            raise
        if error.errno in NO_ROOM:
            # For a copy, the second name is that of the output.
            full = error.filename2 or error.filename
            named = isinstance(full, str | bytes)
            _end(unwritable(Path(os.fsdecode(full) if named else "the output"), error, None))
        name = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"error: {clean(f'{name}{error.strerror}')}\n")
        raise SystemExit(code) from None
    except SystemExit as status:
        if status.code != INTERRUPTED:
            _blame(status)
        elif WITHIN not in os.environ and os.environ.get("RANK", "0") == "0":
            sys.stderr.write(f"interrupted{_continues(sys.argv[1:])}\n")
        raise
    except Exception as error:
        _blame(error)
        raise


def _continues(words: Sequence[str]) -> str:
    """How to continue a command after Ctrl-C; empty if it starts again from scratch."""
    verb = words[0] if words else ""
    if verb in ("sft", "rl", "eval"):
        if not RESUMABLE.begun:
            return " before anything was started: run the command again"
        lost = None if verb == "eval" else RESUMABLE.lost_steps
        if lost is None:
            return "; continue with --resume"
        steps = (
            f"{lost} step{'' if lost == 1 else 's'} {'is' if lost == 1 else 'are'} lost, and " if lost else ""
        )
        return f"; no checkpoint yet: {steps}the same command with --resume starts over"
    dense = verb == "data" and any(word.startswith("--encoder") for word in words)
    if dense or verb in ("demo", "curate", "faithfulness", "judge-faithfulness"):
        return "; run the same command again to continue"
    return ""


def _blame(error: BaseException) -> None:
    """End the command if a user's own file is to blame."""
    failed = broken(error)
    if failed is not None:
        _end(failed)


def _exited(error: RuntimeError) -> None:
    """Print what is known where a library has ended the process."""
    calls = traceback.extract_tb(error.__traceback__)
    where = f"{calls[-1].filename}:{calls[-1].lineno}" if calls else ""
    fix = "what the library has printed above may say why"
    _say(broken(error) or RunFailed("a library ended the process by C's `exit`", where=where, fix=fix))


def _end(error: VtuneError) -> NoReturn:
    """Print an error, keep the traceback of a failure in a user's file, and exit."""
    _say(error)
    raise SystemExit(1 if isinstance(error, RunFailed | ServiceError) else 2) from None


def _say(error: VtuneError) -> None:
    """Print an error, and keep the traceback of a failure in a user's file."""
    if isinstance(error, BrokenPart):
        _name_row(error)
    said = str(error)
    if isinstance(error, BrokenPart) and (log := _kept(error)) is not None:
        said += f"\n  log  {log}"
    sys.stderr.write(f"error: {clean(brief(said, most=2000))}\n")


def _name_row(error: BrokenPart) -> None:
    """Name the sample that a user's function was given when it failed, unless the error names it already."""
    from vtune.rollout.blocking import row_of

    files = {file.path for file in used()}
    trace = error.__cause__.__traceback__ if error.__cause__ is not None else None
    while trace is not None and trace.tb_frame.f_code.co_filename not in files:
        trace = trace.tb_next
    row = row_of(trace.tb_frame) if trace is not None else ""
    if row and row not in error.what:
        error.what = f"{error.what} ({row})"


def _kept(error: BrokenPart) -> str | None:
    """The file with the traceback; None if it cannot be written: then the error itself has to suffice."""
    text = "".join(traceback.format_exception(error)).encode(errors="backslashreplace")
    try:
        with tempfile.NamedTemporaryFile(prefix="vtune-", suffix=".log", delete=False) as log:
            log.write(text)
    except OSError:
        return None
    return log.name


def start() -> None:
    """Run the command as a separate process, which ends with it."""
    heed_orders()
    fill_closed_streams()
    outlast_readers()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Not every locale can encode the curves, or what a model wrote: escape it, as on stderr.
        sys.stdout.reconfigure(errors="backslashreplace")
    atexit.register(Exits(_exited).over)
    ending = Ending()
    try:
        with LostInterrupts():
            main()
    except SystemExit as status:
        ending.code = status.code if isinstance(status.code, int) else int(status.code is not None)
        raise
    except Exception:
        ending.code = 1
        raise
    finally:
        tell_of_threads()


if __name__ == "__main__":
    start()
