"""Starts one process per device, on many machines through pdsh, and ends them together.

The processes of a run talk through its folder `logs`: `rank-N.log` is what rank N said, `rank-N.ended` how it
ended, and `order` what the command that started them wants of them. Each rank is watched by a small process
of its own, which sees every end of it, on whatever machine it runs.
"""

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
from vtune.uses import TRIES

UNSEEN = 90.0
"""Seconds for which a shared folder may not show what another machine has written there: NFS shows the names
in one from its memory, for 60 at most unless it is mounted otherwise. Ours."""
SETTLE = 2.0
"""Seconds between a failure and its report: the one that caused it may be reported a little later."""
TAIL = 100
"""Lines of a failed rank's log that are shown, at most; a traceback through the command line is long."""
CPU_PROCESSES = 8
"""Processes that a machine without a GPU may run though it has fewer cores; ours."""
LOST = "killed by signal"
HEAD = re.compile(rf"^{START}.*\n", re.MULTILINE)
"""The line between two starts in a log, which is for those who read that."""
LAUNCHER = "launcher.log"
"""In the folder `logs`: what the launcher and pdsh say."""


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
        out: The run folder; on many machines, one that all of them see.
        processes: On each machine.
        hostfile: `name slots=N` a line, as DeepSpeed and MPI have it; None for this machine alone.
        forwarded: Names of environment variables that other machines get, beside the usual ones.

    Raises:
        RecipeError: If a device is wanted that is not there, the hostfile cannot be read, or another process
            works in the folder.
        RunFailed: If a rank has failed; the text begins with what that rank said last.
        SystemExit: 130 after Ctrl-C or SIGTERM, and the code of a rank that found the input wrong.
    """
    _check_devices(processes, hostfile)
    check_folder_output(out)
    logs = out / "logs"
    # A second start must not take the notes of the first away; the run itself is kept apart by its own lock.
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
    before = {number: signal.signal(number, lambda n, _: asked.append(signal.Signals(n).name))
              for number in (signal.SIGINT, signal.SIGTERM)}  # fmt: skip
    # The ranks hold the other end: it closes with this process, however that ends.
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
    """SIGTERM waits in the launcher, which would else end the ranks where they are to save."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])


def _watched(launcher: "subprocess.Popen[bytes]", logs: Path, asked: list[str]) -> str:
    """Wait for the end, pass on what is asked of this process, and say how it ended."""
    voice = Voice(logs / "rank-0.log")
    ordered, deadline = "", float("inf")
    while (code := launcher.poll()) is None and not failed(logs) and time.monotonic() < deadline:
        voice.pass_on()
        # Schedulers may say SIGTERM more than once.
        order = END if "SIGINT" in asked else SAVE if asked else ""
        if order != ordered:
            say("ending" if order == END else STOPS)
            give_order(logs, order)
            ordered = order
            deadline = time.monotonic() + GRACE if order == END else deadline
        if _lost(logs, ordered):
            # The others wait for it. Where a rank of it has failed, that may be seen here a little later.
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
    # Where a watcher was told to stop, it has given the order; one that is killed is told nothing.
    stopped = ordered or (code in (0, INTERRUPTED) and order_given(logs))
    lost = _lost(logs, ordered)
    if failed(logs) or lost or not stopped:
        _report(failed(logs), logs, lost or f"the launcher ended with status {code}", machine=bool(lost))
    raise SystemExit(INTERRUPTED)


def _until_told(logs: Path) -> None:
    """Wait until the first rank is known to have ended, maybe on another machine."""
    deadline = time.monotonic() + UNSEEN
    while not any(one.rank == 0 for one in ended(logs)) and time.monotonic() < deadline:
        # A folder that is changed from here is looked at anew.
        looked = logs / ".looked"
        looked.touch()
        looked.unlink()
        time.sleep(LOOK)


def _lost(logs: Path, ordered: str) -> str:
    """How a machine went away; empty if none did, or all are to end.

    Ranks save and end together, on some machine maybe before its watchers see the order in the shared folder.
    """
    if ordered == END:
        return ""
    saving = SAVE in (ordered, order_given(logs))
    return pdsh.lost(_lines(logs / LAUNCHER), well=(INTERRUPTED,) if saving else ())


def _report(failed: list[Ended], logs: Path, launcher: str, *, machine: bool) -> None:
    """Raise what the run died of: the first failure that is not itself a consequence.

    Args:
        failed: The ranks that are known to have failed.
        logs: What they said.
        launcher: How the launcher, or its command on a machine, ended.
        machine: Whether it was that of a machine: the ranks of the others fail for lack of a partner.
    """
    if not failed or (machine and all(one.code > 0 and _lost_partner(logs, one.rank) for one in failed)):
        raise RunFailed(
            launcher,
            where=str(logs / LAUNCHER),
            fix="\n".join(["its last lines:", *_lines(logs / LAUNCHER)]),
        )
    # A rank that lost its partner fails too, a moment later or earlier than the partner's end is noted.
    first = min(failed, key=lambda one: (one.code > 0 and _lost_partner(logs, one.rank), one.at))
    log = logs / f"rank-{first.rank}.log"
    said = _lines(log)
    # What rank 0 says has been passed on already, and most often it has found the same.
    if from_error(said) != from_error(_lines(logs / "rank-0.log")):
        sys.stderr.write("\n".join([*from_error(said), ""]))
    if first.code == 2:
        raise SystemExit(2)
    how = f"{LOST} {-first.code}" if first.code < 0 else f"ended with status {first.code}"
    newest = logs.parent / "checkpoints/newest"
    if not any(TRIES in line for line in said):
        fix = "fix what it says above, then --resume continues from the last checkpoint"
    else:  # a resume takes no other file than the run began with
        fix = "fix what it says above, then start a new run with another --out"
        fix += f", from what this one has learnt: --set model={newest}" if newest.exists() else ""
    if first.code == -9:
        fix += "; a process that is killed has often run out of memory (see `dmesg`)"
    raise RunFailed(f"rank {first.rank} {how}; the others were ended", where=str(log), fix=fix)


def _lost_partner(logs: Path, rank: int) -> bool:
    text = "\n".join(_lines(logs / f"rank-{rank}.log"))
    return "Connection closed by peer" in text or "Connection reset by peer" in text


def from_error(lines: Sequence[str]) -> Sequence[str]:
    """From the last traceback or `error:` on; all where there is none."""
    starts = [i for i, line in enumerate(lines) if line.startswith(("error: ", "Traceback "))]
    return lines[starts[-1] :] if starts else lines


def _lines(log: Path) -> list[str]:
    """The last lines since the newest start."""
    if not log.exists():
        return []
    _, start, text = log.read_text(encoding="utf-8", errors="replace").rpartition(START)
    return text.strip().splitlines()[bool(start) :][-TAIL:]


def _until_quiet(launcher: "subprocess.Popen[bytes]", seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        launcher.wait(seconds)


def _end(launcher: "subprocess.Popen[bytes]", logs: Path) -> None:
    """Nothing of the run is left: on this machine by force, on others by order."""
    if launcher.poll() != 0:
        # Also where the launcher is gone: ranks of other machines may not be.
        give_order(logs, END)
        _until_quiet(launcher, GRACE)
    # Everything that the launcher started is in its group, but for the ranks and the ssh of each machine:
    # they have sessions of their own, and end by the order or below.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(launcher.pid, signal.SIGKILL)
    launcher.wait()
    end_sessions(logs)


class Voice:
    """What another process adds to its log, passed on to stderr as it comes.

    Args:
        log: The file.
        title: Stands before each line, which then is passed on when it has ended; empty: nothing does.
    """

    def __init__(self, log: Path, title: str = "") -> None:
        self._log = log
        self._title = title
        self._at = log.stat().st_size if log.exists() else 0

    def pass_on(self, *, ended: bool = False) -> None:
        """Pass on what was added since the last time; `ended`: a last line without an end, too."""
        if not self._log.exists():
            return
        with self._log.open("rb") as file:
            file.seek(self._at)
            text = file.read()
        if self._title and not ended:
            text = text[: text.rfind(b"\n") + 1]
        self._at += len(text)
        said = HEAD.sub("", text.decode("utf-8", errors="replace"))
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
    """Processes of a run on all its machines together; None where no launch is asked for.

    Raises:
        RecipeError: If a hostfile comes without a number of GPUs, cannot be read, names no machine, or gives
            fewer of one.
    """
    if hostfile is None:
        return gpus
    if gpus is None:
        raise RecipeError("--hostfile without --gpus", fix="say with --gpus how many each machine gives")
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
