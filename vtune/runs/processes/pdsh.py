"""One command on every machine of a run, through pdsh and ssh."""

import ipaddress
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from vtune.errors import RecipeError
from vtune.runs.processes.machines import ENVIRONMENT
from vtune.runs.processes.watcher import END, GRACE, LOOK, alone, die_with_parent, give_order
from vtune.signals import orders_to_stop

NUMBER = "%n"
"""Placeholder in the command for the machine's number; pdsh fills it in."""
FAN_OUT = 1024
"""Machines that pdsh connects to at a time: all."""
OVER_SSH = {"PDSH_RCMD_TYPE": "ssh"}
"""Makes a pdsh that was built for rsh use ssh."""
BEFORE_PYTHON = "PYTHON"
"""Prefix of variables that Python reads at its start: this machine's values are used on the others."""
ENDED = re.compile(r"pdsh@\S+: (\S+): (ssh (?:exited with exit code (\d+)|killed by signal \d+))")
"""pdsh's message if the command on a machine has failed; it continues with the other machines."""
SSH_SECONDS = 60.0
"""Ours: time for a machine to answer, including one that first has to mount its home folder."""


def on_every_machine(machines: Sequence[str], words: Sequence[str]) -> list[str]:
    """The command that runs another on all machines, in the working directory of this process.

    Args:
        machines: Their names, as ssh knows them.
        words: The command; `NUMBER` is replaced by the number of the machine.
    """
    settings = [f"{name}={value}" for name, value in os.environ.items() if name.startswith(BEFORE_PYTHON)]
    # `env`, since not every shell has `export`.
    line = " ".join(map(_quoted, ("exec", "env", *settings, *words)))
    return [
        "pdsh",
        "-S",
        "-f",
        str(FAN_OUT),
        "-w",
        ",".join(machines),
        f"cd {_quoted(str(Path.cwd()))} && {line}",
    ]


def leashed(logs: Path, command: Sequence[str]) -> list[str]:
    """The command that runs `run_leashed`."""
    return [sys.executable, "-m", "vtune.runs.processes.pdsh", str(logs.resolve()), *command]


def run_leashed(logs: Path, command: Sequence[str]) -> int:
    """Run pdsh in a separate process, whose stdin closes when the command that started everything ends.

    Nothing else tells the ranks on other machines about that end. They are then ordered to end.

    Args:
        logs: The folder that all processes of the run share.
        command: The pdsh command.

    Returns:
        Its exit status.
    """
    pdsh = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=partial(_not_by_order, os.getpid()))
    deadline = float("inf")
    while pdsh.poll() is None and time.monotonic() < deadline:
        if deadline == float("inf") and alone():
            give_order(logs, END)
            (logs / ENVIRONMENT).unlink(missing_ok=True)
            deadline = time.monotonic() + 2 * GRACE
        time.sleep(LOOK)
    if pdsh.poll() is None:
        pdsh.kill()
    code = pdsh.wait()
    return code if code >= 0 else 128 - code


def _not_by_order(parent: int) -> None:
    """Ignore orders to stop; ssh would unblock them once connected, but keeps ignoring those it ignored."""
    for number in orders_to_stop():
        signal.signal(number, signal.SIG_IGN)
    die_with_parent(parent)


def _quoted(word: str) -> str:
    """A word quoted so that neither pdsh nor a shell changes it."""
    return NUMBER if word == NUMBER else shlex.quote(word).replace("%", "%%")


def lost(said: Iterable[str], *, well: Collection[int] = ()) -> str:
    """The first machine whose command failed, and how; empty if there is none.

    Args:
        said: Output lines of pdsh.
        well: Exit codes that do not count as a failure.
    """
    lines = filter(None, map(ENDED.fullmatch, said))
    found = next((line for line in lines if line[3] is None or int(line[3]) not in well), None)
    return f"the ranks of {found[1]} are gone: {found[2]}" if found else ""


def addresses(machines: Sequence[str]) -> list[str]:
    """The first address of each machine, as it reports itself: the others may not know the name used by ssh.

    Raises:
        RecipeError: If ssh cannot reach one of them without interaction.
    """
    with TemporaryDirectory() as folder:
        places = [Path(folder) / str(number) for number in range(len(machines))]
        asked = [_asked(*one) for one in zip(machines, places, strict=True)]
        try:
            return [_first_address(*one) for one in zip(machines, places, asked, strict=True)]
        finally:
            # If one is not reached, do not wait for the others.
            for process in asked:
                process.kill()
                process.wait()


def _asked(machine: str, said: Path) -> "subprocess.Popen[bytes]":
    """Start an ssh that asks a machine for its addresses.

    It writes to files: an ssh connection that is kept open for reuse (ControlPersist) may hold a pipe open.

    Args:
        machine: The machine.
        said: Receives its stdout; the same name with `.err` its stderr.
    """
    with said.open("wb") as out, said.with_suffix(".err").open("wb") as err:
        return subprocess.Popen(
            ["ssh", "-o", "BatchMode=yes", machine, "hostname", "-I"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )


def _last_line(file: Path) -> str:
    """The last line that a process has written; a banner before it may be in any encoding."""
    return file.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]


def _first_address(machine: str, said: Path, process: "subprocess.Popen[bytes]") -> str:
    try:
        process.wait(SSH_SECONDS)
    except subprocess.TimeoutExpired:
        raise _unreached(machine, f"no answer within {SSH_SECONDS:g} s") from None
    # Output of the shell's profile comes first.
    last = _last_line(said)
    if process.returncode == 0 and (found := next(filter(_is_address, last.split()), "")):
        return found
    if process.returncode == 0:
        raise RecipeError(
            f"{machine}, a machine of the hostfile, reports no address: `hostname -I` there ends in {last!r}",
            fix="let its shell start-up files print nothing; `hostname -I` there must print an address",
        )
    why = _last_line(said.with_suffix(".err"))
    raise _unreached(machine, why or f"it ended with status {process.returncode}")


def _unreached(machine: str, why: str) -> RecipeError:
    return RecipeError(
        f"ssh cannot reach {machine}, a machine of the hostfile: {why}",
        fix=f"try `ssh -o BatchMode=yes {machine} hostname -I`; it needs your key on every machine",
    )


def _is_address(word: str) -> bool:
    try:
        ipaddress.ip_address(word)
    except ValueError:
        return False
    return True


if __name__ == "__main__":
    raise SystemExit(run_leashed(Path(sys.argv[1]), sys.argv[2:]))
