"""Runs many commands from one process that has imported everything, as starting `vtune` takes up to 3 s.

Commands run in forks of it, several one after the other, each with files for its output and limits on memory
and time. A command that kills its process is recorded as such, and those after it get another fork.
`python -m tests.fuzz.warm CASES RESULTS FOLDER MODEL` reads command lines from a JSON file.
"""

import functools
import gc
import importlib
import json
import math
import os
import pkgutil
import resource
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

AT_ONCE = 2
EACH = 24
"""Commands per fork: starting and ending a fork takes longer than most commands."""
PATIENCE = 600
"""Seconds after which a command is killed: generous for a busy machine, but it catches hangs."""
ROOM = 4 * 2**30
"""Bytes of address space that a command may use beyond the imports, which stops endless reads."""


def load(model: str) -> None:
    """Import what commands import at run time, including what loading a model imports."""
    import vtune.cli.main
    import vtune.data.formats
    import vtune.report
    import vtune.runs

    for package in (vtune.runs, vtune.report, vtune.data.formats):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    import datasets  # noqa: F401
    import openai  # noqa: F401
    import typer

    from vtune.models.policy import load_chat

    # On a busy machine progress lines would appear among the messages.
    vtune.report.progress.EVERY = math.inf
    load_chat(model)
    # Building the parser, the same for all commands, would dominate commands that end early.
    typer.main.get_command = functools.cache(typer.main.get_command)
    typer.main.get_command(vtune.cli.main.app)
    gc.collect()
    gc.freeze()


def run(words: list[str], place: Path) -> int:
    """Run the command in this process; return its exit code."""
    place.mkdir()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(place / name, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(place)
    sys.argv = ["vtune", *words]
    from vtune.cli.main import main

    try:
        main()
        code = 0
    except SystemExit as status:
        code = status.code if isinstance(status.code, int) else int(bool(status.code))
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        code = 70
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def spent() -> float:
    """CPU seconds of this process and of those of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def run_some(cases: Sequence[tuple[int, list[str]]], folder: Path) -> None:
    """Run one command after the other; the file `ended` in each one's folder records its outcome."""
    os.setsid()
    addresses = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (addresses + ROOM,) * 2)
    for number, words in cases:
        before = spent()
        signal.alarm(PATIENCE)
        code = run(words, folder / str(number))
        told = {
            "code": code,
            "seconds": spent() - before,
            "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        (folder / str(number) / "ended").write_text(json.dumps(told))


def run_all(cases: list[list[str]], folder: Path) -> list[dict[str, Any]]:
    """Exit code (negative: the signal), CPU seconds, and peak memory in MB of its process, in order."""
    numbered = list(enumerate(cases))
    left = [numbered[start : start + EACH] for start in range(0, len(numbered), EACH)][::-1]
    under_way: dict[int, Sequence[tuple[int, list[str]]]] = {}
    results: list[dict[str, Any]] = [{} for _ in cases]
    while left or under_way:
        while left and len(under_way) < AT_ONCE:
            some = left.pop()
            child = os.fork()
            if child == 0:
                try:
                    run_some(some, folder)
                finally:
                    os._exit(71)
            under_way[child] = some
        child, status, used = os.wait4(-1, 0)
        some = under_way.pop(child)
        ends = [folder / str(number) / "ended" for number, _ in some]
        done = [json.loads(end.read_text()) for end in ends if end.exists()]
        for (number, _), result in zip(some, done, strict=False):
            results[number] = result
        if len(done) < len(some):
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            results[some[len(done)][0]] = {
                "code": os.waitstatus_to_exitcode(status),
                "seconds": used.ru_utime + used.ru_stime,
                "mb": used.ru_maxrss / 1024,
            }
            if rest := some[len(done) + 1 :]:
                left.append(rest)
    return results


if __name__ == "__main__":
    _, cases, results, folder, model = sys.argv
    load(model)
    found = run_all(json.loads(Path(cases).read_text()), Path(folder))
    Path(results).write_text(json.dumps(found))
