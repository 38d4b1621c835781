"""Starts one process per device, on many machines through pdsh, and ends them together.

The processes of a run communicate through its folder `logs`: `rank-N.log` is the output of rank N,
`rank-N.ended` tells how it ended, and `order` holds the order of the command that started them. Each rank is
watched by a small process, which notices any way of ending, on whatever machine it runs.
"""

import codecs
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from types import FrameType

from vtune.errors import INTERRUPTED, MissingExtra, RecipeError, RunFailed
from vtune.files.writing import check_folder_output
from vtune.models.network import free_port
from vtune.report.progress import STOPS, say
from vtune.runs.processes import local_ranks, pdsh
from vtune.runs.processes.local_ranks import Rendezvous
from vtune.runs.processes.machines import (
    ENVIRONMENT,
    gpus_here,
    included,
    machines_of,
    write_environment,
)
from vtune.runs.processes.watcher import (
    END,
    FREE,
    GRACE,
    LEASHED,
    LOOK,
    ORDER,
    SAVE,
    START,
    Ended,
    end_sessions,
    ended,
    failed,
    give_order,
    order_given,
    packed,
    start_line,
)
from vtune.runs.start import locked
from vtune.signals import HANG_UP, orders_to_stop
from vtune.uses import TRIES

UNSEEN = 90.0
"""Seconds for which a shared folder may not show what another machine has written there: NFS caches its
directory entries, for at most 60 by default. Ours."""
SETTLE = 2.0
"""Seconds between a failure and its report: the failure that caused it may be noted a little later."""
TAIL = 100
"""Most lines of a failed rank's log that are shown; a traceback through the command line is long."""
CPU_PROCESSES = 8
"""Processes that a machine without a GPU may run even if it has fewer cores; ours."""
LOST = "killed by signal"
HEAD = re.compile(rf"^{START}.*\n", re.MULTILINE)
"""The line between two starts in a log, for people who read it."""
LAUNCHER = "launcher.log"
"""Output of the launcher and pdsh, in the folder `logs`."""


def launch(
    words: Sequence[str],
    out: Path,
    *,
    processes: int,
    hostfile: Path | None,
    forwarded: Collection[str] = (),
) -> str:
    """Run `vtune WORDS` in many processes, and return what the first one wrote to stdout.

    Args:
        words: The command line without the options of the launch; it must name the run folder.
        out: The run folder; on several machines, one that all of them see.
        processes: Number of processes on each machine.
        hostfile: One line `name slots=N` per machine, as for DeepSpeed and MPI; None: only this machine.
        forwarded: Names of environment variables that other machines get, in addition to the usual ones.

    Raises:
        RecipeError: If a requested device does not exist, the hostfile cannot be read, or another process
            works in the folder.
        RunFailed: If a rank has failed; the text begins with that rank's last output.
        SystemExit: 130 after Ctrl-C or an order to stop, or the exit code of a rank that found the input
            invalid.
    """
    _check_devices(processes, hostfile)
    check_folder_output(out)
    logs = out / "logs"
    # A second start must not delete the notes of the first; the run itself is protected by its own lock.
    with locked(logs):
        for stale in (
            *logs.glob("rank-*.ended"),
            *logs.glob("rank-*.session"),
            *logs.glob(".*.part"),
            logs / ORDER,
            logs / ENVIRONMENT,
            logs / "result",
        ):
            stale.unlink(missing_ok=True)
        command = _command(words, logs, processes, hostfile)
        if hostfile is None:
            return _launch(command, logs)
        write_environment(logs, forwarded)
        try:
            return _launch(pdsh.leashed(logs, command), logs)
        finally:
            (logs / ENVIRONMENT).unlink(missing_ok=True)


def _launch(command: Sequence[str], logs: Path) -> str:
    asked: list[str] = []

    def note(number: int, frame: FrameType | None) -> None:
        HANG_UP.note(number)
        asked.append(signal.Signals(number).name)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, *orders_to_stop())}
    # The ranks hold the other end, which closes when this process ends, however it ends.
    leash, ours = os.pipe()
    try:
        with (logs / LAUNCHER).open("ab") as said:
            said.write(start_line())
            said.flush()
            launcher = subprocess.Popen(
                command,
                stdin=leash,
                stdout=said,
                stderr=said,
                start_new_session=True,
                env={**os.environ, **pdsh.OVER_SSH, "PYTHONUNBUFFERED": "1"},
                preexec_fn=_deaf,
            )
        os.close(leash)
        try:
            return _watched(launcher, logs, asked)
        finally:
            _end(launcher, logs)
    finally:
        os.close(ours)
        for number, handler in before.items():
            signal.signal(number, handler)


def _deaf() -> None:
    """Block orders to stop in the launcher: they would otherwise end the ranks while they should save."""
    signal.pthread_sigmask(signal.SIG_BLOCK, orders_to_stop())


def _watched(launcher: "subprocess.Popen[bytes]", logs: Path, asked: list[str]) -> str:
    """Wait for the end, pass on signals that this process gets, and report how the run ended."""
    voice = Voice(logs / "rank-0.log")
    ordered, deadline = "", float("inf")
    while (code := launcher.poll()) is None and not failed(logs) and time.monotonic() < deadline:
        voice.pass_on()
        # Schedulers may send SIGTERM more than once.
        order = END if "SIGINT" in asked else SAVE if asked else ""
        if order != ordered:
            say("ending" if order == END else STOPS)
            give_order(logs, order)
            ordered = order
            deadline = time.monotonic() + GRACE if order == END else deadline
        if _lost(logs, ordered):
            # The other machines wait for the lost one. A failed rank there may be noted here a little later.
            give_order(logs, END)
            _until_quiet(launcher, GRACE)
            break
        time.sleep(LOOK)
    if failed(logs) or (code is not None and not ordered):
        _until_quiet(launcher, SETTLE)
    if code == 0 and not ordered:
        _until_told(logs)
    voice.pass_on()
    first = {one.rank: one.code for one in ended(logs)}.get(0)
    if first == 0 and code == 0:
        return (logs / "result").read_text(encoding="utf-8")
    # A watcher that is told to stop has given the order; one that is killed could not.
    stopped = ordered or (code in (0, INTERRUPTED) and order_given(logs))
    lost = _lost(logs, ordered)
    if failed(logs) or lost or not stopped:
        _report(failed(logs), logs, lost or f"the launcher ended with status {code}", machine=bool(lost))
    raise SystemExit(INTERRUPTED)


def _until_told(logs: Path) -> None:
    """Wait until the first rank, possibly on another machine, is known to have ended."""
    deadline = time.monotonic() + UNSEEN
    while not any(one.rank == 0 for one in ended(logs)) and time.monotonic() < deadline:
        # Changing a folder from this machine makes NFS read it again.
        looked = logs / ".looked"
        looked.touch()
        looked.unlink()
        time.sleep(LOOK)


def _lost(logs: Path, ordered: str) -> str:
    """How a machine was lost; empty if none was, or if all ranks are to end.

    Ranks save and end together, so on some machine possibly before its watchers see the order in the folder.
    """
    if ordered == END:
        return ""
    saving = SAVE in (ordered, order_given(logs))
    return pdsh.lost(_lines(logs / LAUNCHER), well=(INTERRUPTED,) if saving else ())


def _report(failed: list[Ended], logs: Path, launcher: str, *, machine: bool) -> None:
    """Raise the error that ended the run: the first failure that is not a consequence of another.

    Args:
        failed: The ranks that are known to have failed.
        logs: The folder with their output.
        launcher: How the launcher, or its command on a machine, ended.
        machine: Whether a machine was lost: the ranks on the others then fail for lack of a partner.
    """
    if not failed or (machine and all(one.code > 0 and _lost_partner(logs, one.rank) for one in failed)):
        raise RunFailed(
            launcher,
            where=str(logs / LAUNCHER),
            fix="\n".join(["its last lines:", *_lines(logs / LAUNCHER)]),
        )
    # A rank that lost its partner fails too, slightly before or after the partner's end is noted.
    first = min(failed, key=lambda one: (one.code > 0 and _lost_partner(logs, one.rank), one.at))
    log = logs / f"rank-{first.rank}.log"
    said = _lines(log)
    # The output of rank 0 has already been passed on, and usually shows the same error.
    if from_error(said) != from_error(_lines(logs / "rank-0.log")):
        sys.stderr.write("\n".join([*from_error(said), ""]))
    if first.code == 2:
        raise SystemExit(2)
    how = f"{LOST} {-first.code}" if first.code < 0 else f"ended with status {first.code}"
    newest = logs.parent / "checkpoints/newest"
    if not any(TRIES in line for line in said):
        fix = "fix what it says above, then --resume continues from the last checkpoint"
    else:  # a run resumes only with the file that it began with
        fix = "fix what it says above, then start a new run with another --out"
        fix += f", from what this one has learnt: --set model={newest}" if newest.exists() else ""
    if first.code == -9:
        fix += "; a process that is killed has often run out of memory (see `dmesg`)"
    raise RunFailed(f"rank {first.rank} {how}; the others were ended", where=str(log), fix=fix)


def _lost_partner(logs: Path, rank: int) -> bool:
    text = "\n".join(_lines(logs / f"rank-{rank}.log"))
    return "Connection closed by peer" in text or "Connection reset by peer" in text


def from_error(lines: Sequence[str]) -> Sequence[str]:
    """The lines from the last traceback or `error:` on; all lines if there is none."""
    starts = [i for i, line in enumerate(lines) if line.startswith(("error: ", "Traceback "))]
    return lines[starts[-1] :] if starts else lines


def _lines(log: Path) -> list[str]:
    """The last lines since the latest start."""
    if not log.exists():
        return []
    _, start, text = log.read_text(encoding="utf-8", errors="replace").rpartition(START)
    return text.strip().splitlines()[bool(start) :][-TAIL:]


def _until_quiet(launcher: "subprocess.Popen[bytes]", seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        launcher.wait(seconds)


def _end(launcher: "subprocess.Popen[bytes]", logs: Path) -> None:
    """Make sure that nothing of the run is left: on this machine by force, on others by order."""
    if launcher.poll() != 0:
        # Also if the launcher is gone: ranks on other machines may still run.
        give_order(logs, END)
        _until_quiet(launcher, GRACE)
    # Everything that the launcher started is in its group, except the ranks and the ssh of each machine: they
    # have separate sessions, and end by the order or below.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(launcher.pid, signal.SIGKILL)
    launcher.wait()
    end_sessions(logs)


class Voice:
    """Passes on to stderr what another process adds to its log, as it arrives.

    Args:
        log: The file.
        title: Prefix of each line, which is then passed on only when complete; empty: no prefix.
    """

    def __init__(self, log: Path, title: str = "") -> None:
        self._log = log
        self._title = title
        self._at = log.stat().st_size if log.exists() else 0
        # A read may end in the middle of a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def pass_on(self, *, ended: bool = False) -> None:
        """Pass on what was added since the last call; `ended`: also an incomplete last line."""
        if not self._log.exists():
            return
        with self._log.open("rb") as file:
            file.seek(self._at)
            text = file.read()
        if self._title and not ended:
            text = text[: text.rfind(b"\n") + 1]
        self._at += len(text)
        said = HEAD.sub("", self._decoder.decode(text, final=ended))
        if self._title and said:
            said = "".join(f"{self._title}: {line}\n" for line in said.removesuffix("\n").split("\n"))
        sys.stderr.write(said)
        sys.stderr.flush()


def _command(words: Sequence[str], logs: Path, processes: int, hostfile: Path | None) -> list[str]:
    given = [str(logs.resolve()), *words]
    if hostfile is None:
        return local_ranks.command(Rendezvous(free_port(), processes), [LEASHED, *given])
    machines = list(machines_of(hostfile))
    rendezvous = Rendezvous(
        port=free_port(),
        processes=processes,
        address=pdsh.addresses(machines)[0],
        machines=len(machines),
        gpus=included(hostfile, processes),
    )
    start = local_ranks.command(rendezvous, [FREE, packed(given)], machine=pdsh.NUMBER)
    return pdsh.on_every_machine(machines, start)


def processes_of(gpus: int | None, hostfile: Path | None) -> int | None:
    """Number of processes of a run on all its machines; None if no launch is requested.

    Raises:
        RecipeError: If a hostfile comes without a number of GPUs, cannot be read, names no machine, or lists
            fewer GPUs for one of them.
    """
    if hostfile is None:
        return gpus
    if gpus is None:
        raise RecipeError("--hostfile without --gpus", fix="say with --gpus how many to use on each machine")
    included(hostfile, gpus)
    return gpus * len(machines_of(hostfile))


def _check_devices(processes: int, hostfile: Path | None) -> None:
    if hostfile is not None:
        included(hostfile, processes)
        for program, package in (("pdsh", "pdsh"), ("ssh", "openssh-client")):
            if shutil.which(program) is None:
                raise MissingExtra(
                    f"many machines are reached through pdsh and ssh, and {program} is not installed here",
                    fix=f"install it (apt-get install {package}), with ssh keys to every machine",
                )
        return
    there = gpus_here()
    if there and processes > there:
        raise RecipeError(
            f"--gpus {processes}, but this machine has {there}", fix="ask for fewer, or give a --hostfile"
        )
    cores = len(os.sched_getaffinity(0))
    if not there and processes > max(CPU_PROCESSES, cores):
        raise RecipeError(
            f"--gpus {processes}, but this machine has no GPU, and only {cores} core(s)",
            fix=f"ask for {max(CPU_PROCESSES, cores)} at most; `vtune doctor` says why a GPU is not seen",
        )
