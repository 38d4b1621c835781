"""The `vtune` command, and the one place where errors become text and exit codes."""

import errno
import importlib.metadata
import os
import sys
from typing import Annotated

import typer

from vtune.errors import INTERRUPTED, WITHIN, RunFailed, ServiceError, VtuneError
from vtune.files.terminal import brief, clean

from . import data, parts, recipes, sandbox, serve
from .compare import compare
from .curate import curate
from .demo import demo
from .doctor import doctor
from .eval import evaluate
from .export import export
from .faithfulness import faithfulness
from .report import report
from .rl import rl
from .sft import sft

app = typer.Typer(
    name="vtune",
    help="Post-train vision-language models that think with images, and check that their looking is honest.",
    epilog="Exit codes: 0 done, 1 the run failed, 2 the input is wrong, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def show_version(asked: bool) -> None:
    """Print the version and end, where it was asked for."""
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


app.command("demo")(demo)
app.add_typer(data.app, name="data", help="Make, look at and check samples.")
app.command("curate")(curate)
app.command("sft")(sft)
app.command("rl")(rl)
app.command("eval")(evaluate)
app.command("compare")(compare)
app.command("export")(export)
app.command("faithfulness")(faithfulness)
app.command("judge-faithfulness", hidden=True)(faithfulness)
app.command("report")(report)
app.add_typer(serve.app, name="serve", help="Services that runs and other programs ask.")
app.command("doctor")(doctor)
app.add_typer(sandbox.app, name="sandbox", help="Try code in the sandbox, and attack it.")
app.add_typer(recipes.app, name="recipes", help="List, show and copy what ships.")
app.add_typer(parts.app, name="parts", help="List the parts that recipes name, and check your own.")

# Before torch is loaded: its CPU threads spin while they wait, which costs a busy machine 4 to 14 times
# the speed of generation (measured); passive ones sleep. Who has set it knows better.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


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
"""What the machine says of a name, of rights or of a disk, wherever it is met, and the exit code for it."""


def main() -> None:
    """Run the command; show a known problem as text and anything else as a traceback."""
    try:
        app()
    except VtuneError as error:
        sys.stderr.write(f"error: {clean(brief(str(error), most=2000))}\n")
        raise SystemExit(1 if isinstance(error, RunFailed | ServiceError) else 2) from None
    except OSError as error:
        code = _USERS.get(error.errno or 0)
        if code is None or (code == 2 and error.filename is None):
            raise
        name = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"error: {clean(f'{name}{error.strerror}')}\n")
        raise SystemExit(code) from None
    except SystemExit as status:
        if status.code == INTERRUPTED and WITHIN not in os.environ:
            sys.stderr.write(
                "interrupted; sft, rl and eval continue with --resume; demo, curate and data index --encoder "
                "when started again\n"
            )
        raise


if __name__ == "__main__":
    main()
