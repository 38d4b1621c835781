import signal
import subprocess
import sys

import pytest

from tests.conftest import HANGS
from tests.runs.commands import environment
from vtune.signals import starting_undisturbed

COMMAND = """
import os, signal, sys, threading, time
from multiprocessing import get_context
from multiprocessing.forkserver import _forkserver
from vtune.verifiers.worker import ready_to_fork

def interrupt():
    while not _forkserver._forkserver_pid:
        time.sleep(0.001)
    time.sleep(0.05)
    os.kill(_forkserver._forkserver_pid, signal.NUMBER)

if __name__ == "__main__":
    threading.Thread(target=interrupt).start()
    ready_to_fork()
    child = get_context("forkserver").Process(target=print, args=(1,))
    child.start()
    child.join()
    status = open(f"/proc/{_forkserver._forkserver_pid}/status").read()
    print(int(status.partition("SigBlk:")[2].split()[0], 16))
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGHUP"])
def test_the_end_of_a_terminal_while_the_fork_server_imports_is_ignored(number: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", COMMAND.replace("NUMBER", number)],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=HANGS,
    )
    assert ended.stdout.splitlines() == ["1", "0"]  # and later processes have no signal blocked
    assert not ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_held_back_is_delivered_at_the_end(number: signal.Signals) -> None:
    heard: list[bool] = []
    before = signal.signal(number, lambda *_: heard.append(ended))
    ended = False
    try:
        with starting_undisturbed():
            signal.raise_signal(number)
            assert not heard
            ended = True
    finally:
        signal.signal(number, before)
    assert heard == [True]
    assert number not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
