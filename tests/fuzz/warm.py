"""Runs many commands from one process that has imported everything: a start of `vtune` costs up to 3 s.

Each command runs in a fork of it, with files for its output and limits of memory and time, as a process of
its own would. `python -m tests.fuzz.warm CASES RESULTS FOLDER MODEL` reads command lines from a JSON file.
"""

import functools
import gc
import importlib
import json
import os
import pkgutil
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

AT_ONCE = 2
PATIENCE = 600
"""Seconds after which a command is killed: a machine may be busy, but what waits for ever is found."""
ROOM = 4 * 2**30
"""Bytes of addresses that a command may take beyond those of the imports: what reads for ever ends."""


def load(model: str) -> None:
    """Import what commands import when they run, also what loading a model imports."""
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

    load_chat(model)
    # Most of a command that ends early would be the making of its parser, which is the same for all.
    typer.main.get_command = functools.cache(typer.main.get_command)
    typer.main.get_command(vtune.cli.main.app)
    gc.collect()
    gc.freeze()


def run(words: list[str], place: Path) -> int:
    """Be the command; return its exit code."""
    place.mkdir()
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(place / name, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    addresses = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (addresses + ROOM,) * 2)
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


def run_all(cases: list[list[str]], folder: Path) -> list[dict[str, Any]]:
    """Exit code (negative: the signal), CPU and wall seconds, and peak memory in MB of each, in order."""
    results: list[dict[str, Any]] = [{} for _ in cases]
    under_way: dict[int, tuple[int, float]] = {}
    left = list(enumerate(cases))[::-1]
    while left or under_way:
        while left and len(under_way) < AT_ONCE:
            number, words = left.pop()
            child = os.fork()
            if child == 0:
                code = 71
                try:
                    code = run(words, folder / str(number))
                finally:
                    os._exit(code)
            under_way[child] = number, time.monotonic()
        ended, status, used = os.wait4(-1, os.WNOHANG)
        if ended:
            number, began = under_way.pop(ended)
            results[number] = {
                "code": os.waitstatus_to_exitcode(status),
                "seconds": used.ru_utime + used.ru_stime,
                "waited": time.monotonic() - began,
                "mb": used.ru_maxrss / 1024,
            }
        else:
            time.sleep(0.005)
        for child, (_, began) in under_way.items():
            if time.monotonic() - began > PATIENCE:
                os.killpg(child, signal.SIGKILL)
    return results


if __name__ == "__main__":
    _, cases, results, folder, model = sys.argv
    load(model)
    found = run_all(json.loads(Path(cases).read_text()), Path(folder))
    Path(results).write_text(json.dumps(found))
