"""All checks on real GPUs, as one command: `python -m tests.gpu`, and `python -m tests.gpu --gpus 2`.

Each check runs in a separate process with a time limit; results and measurements are printed as one JSON
document on stdout and a table on stderr. Nothing is downloaded: models have real shapes and random weights.
`--dry-run` lists the checks; `--tiny` rehearses them with a tiny model, also on a CPU. With `--out FILE` the
document is written to disk after each check, and all output of the checks to `FILE.logs`.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.gpu.checks import MINUTES, Check, Result, chosen, judged, skipped, words
from tests.gpu.running import environment_apart

ROOT = Path(__file__).parents[2]
PATIENCE = 20
"""Factor on a check's time limit in a rehearsal, as the limits are meant for GPUs."""
TAIL = 1200
"""Characters of a check's output shown in its result."""


def main(given: Sequence[str] | None = None) -> int:
    """Run the requested checks; 0 if at least one passed and all others were skipped."""
    asked = _asked(given)
    try:
        checks = chosen(asked.gpus, [name for name in asked.only.split(",") if name])
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if asked.dry_run:
        print(json.dumps([_listed(check) for check in checks], indent=2))
        return 0
    machine = machine_here()
    results: list[Result] = []
    text, interrupted = "", False
    logs = asked.out and Path(f"{asked.out}.logs")
    with tempfile.TemporaryDirectory(prefix="vtune-gpu-", dir=asked.folder) as folder:
        try:
            for one in tried(
                checks, Path(folder), machine, tiny=asked.tiny, minutes=asked.minutes, logs=logs
            ):
                results.append(one)
                text = json.dumps({**machine, "checks": [one.as_json() for one in results]}, indent=2)
                if asked.out:
                    asked.out.write_text(text + "\n", encoding="utf-8")
        except KeyboardInterrupt:
            interrupted = True
    print(text)
    Console(stderr=True).print(table(results))
    return 128 + signal.SIGINT if interrupted else status(results)


def _asked(given: Sequence[str] | None) -> argparse.Namespace:
    options = argparse.ArgumentParser(prog="python -m tests.gpu", description=(__doc__ or "").splitlines()[0])
    options.add_argument("--gpus", type=int, choices=(1, 2), default=1, help="checks of one GPU, or of two")
    options.add_argument("--only", default="", metavar="NAME,NAME", help="these checks alone")
    options.add_argument("--minutes", type=float, default=MINUTES, help="time of all together")
    options.add_argument("--folder", type=Path, help="where models are written; 50 GB for the largest")
    options.add_argument("--out", type=Path, help="also to this file, with logs beside it")
    options.add_argument("--tiny", action="store_true", help="rehearse with a tiny model")
    options.add_argument("--dry-run", action="store_true", help="list the checks and try none")
    return options.parse_args(given)


def machine_here() -> dict[str, Any]:
    """A description of the machine that the checks run on."""
    import torch

    count = torch.cuda.device_count()
    return {
        "device": torch.cuda.get_device_name() if count else "cpu",
        "gpus": count,
        "torch": torch.__version__,
        "vllm": find_spec("vllm") is not None,
    }


def tried(
    checks: Sequence[Check],
    folder: Path,
    machine: dict[str, Any],
    *,
    tiny: bool,
    minutes: float,
    logs: Path | None = None,
) -> Iterator[Result]:
    """Run one check after the other; a failure does not stop those after it.

    Args:
        checks: The checks, in order.
        folder: Their working folder.
        machine: The machine that they run on (`machine_here`).
        tiny: Whether this is a rehearsal.
        minutes: Time limit for all checks together.
        logs: Where their full output goes; None: nowhere, and a result has only the end of it.
    """
    until = time.monotonic() + 60 * minutes
    for check in checks:
        left = until - time.monotonic()
        why = skipped(check, gpus=machine["gpus"], vllm=machine["vllm"], left=left, tiny=tiny)
        if why:
            found = Result(check=check, verdict="skipped", why=why)
        else:
            found = alone(check, folder / check.name.replace(" ", "-"), tiny=tiny, logs=logs)
        print(f"{check.name}: {found.verdict} {found.why}".rstrip(), file=sys.stderr, flush=True)
        yield found


def alone(check: Check, folder: Path, *, tiny: bool, logs: Path | None) -> Result:
    """Run a check in a separate process group, which is ended with it."""
    folder.mkdir(parents=True)
    found, log = folder / "found.json", folder / "log"
    began = time.monotonic()
    with log.open("wb") as said:
        child = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.gpu.one"),
                *(check.entry, json.dumps(check.given), str(folder), str(int(tiny))),
            ],
            cwd=ROOT,
            env=environment_apart(),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            code: int | None = child.wait(check.seconds * (PATIENCE if tiny else 1))
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end_group(child)
            if logs is not None:
                logs.mkdir(exist_ok=True)
                shutil.copyfile(log, logs / f"{folder.name}.log")
    return judged(
        check,
        code=code,
        said=json.loads(found.read_text(encoding="utf-8")) if found.exists() else None,
        tail=log.read_text(encoding="utf-8", errors="replace")[-TAIL:],
        seconds=time.monotonic() - began,
    )


def _end_group(child: "subprocess.Popen[bytes]") -> None:
    """End everything that a check has started: an engine left running would keep its GPU."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _listed(check: Check) -> dict[str, Any]:
    return {
        "name": check.name,
        "about": check.about,
        "seconds": check.seconds,
        "gpus": check.gpus,
        "vllm": check.vllm,
    }


def table(results: Sequence[Result]) -> Table:
    """One row per check, with what decided its result."""
    found = Table("check", "verdict", "seconds", "what was found")
    for one in results:
        bars = [words(bar) for bar in one.found.bars] if one.found else []
        found.add_row(
            one.check.name, one.verdict, f"{one.seconds:.0f}", "\n".join(bars) or one.why.strip()[-300:]
        )
    return found


def status(results: Sequence[Result]) -> int:
    """0 if some passed and all others were skipped."""
    verdicts = {one.verdict for one in results}
    return 0 if "passed" in verdicts and verdicts <= {"passed", "skipped"} else 1


if __name__ == "__main__":
    sys.exit(main())
