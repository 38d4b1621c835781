"""The end of a process that has a process group."""

import signal
import subprocess
import sys

import pytest

from tests.conftest import HANGS, ROOT

PROGRAM = """
import sys, time
import torch
from torch import distributed
from vtune.cli import main

class Slow(torch.Tensor):
    def __del__(self):
        time.sleep(SECONDS)  # gloo's thread frees it while the main thread ends

def train():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    distributed.all_reduce(torch.ones(1_000_000).as_subclass(Slow), async_op=True)
    sys.stdout.write("trained")
    raise SystemExit(CODE)

main.app = train
"""


def ends(last: str, code: str, wait: str = "2") -> tuple[int, str]:
    """The exit code and the output of a process that runs `last` in the end."""
    program = PROGRAM.replace("CODE", code).replace("SECONDS", wait) + last
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=HANGS, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("code", "wanted"), [("None", 0), ("3", 3)])
def test_it_ends_with_its_code_while_a_thread_of_gloo_lives(code: str, wanted: int) -> None:
    assert ends("main.start()", code) == (wanted, "trained")


@pytest.mark.slow
def test_who_runs_a_command_within_a_process_keeps_its_own_code() -> None:
    program = "try:\n    main.main()\nexcept SystemExit:\n    time.sleep(3)\nsys.exit(7)"
    assert ends(program, "0", wait="0") == (7, "trained")


@pytest.mark.slow
def test_the_interpreters_teardown_would_abort_it() -> None:
    """What the end is for; where this fails one day, torch no longer needs it.

    On a busy machine the main thread may be the last that has the tensor: then nothing is wrong that time.
    """
    assert any(ends("train()", "0")[0] == -signal.SIGABRT for _ in range(5))
