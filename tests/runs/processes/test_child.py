import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from vtune.runs.processes.child import last_words, run_child

OBEDIENT = """#!/bin/sh
trap 'echo told >&2; exit 130' INT TERM
echo begun >&2
while :; do sleep 0.05; done
"""


def program(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a shell script take the place of Python."""
    path = folder / "program"
    path.write_text(text)
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


def test_a_command_leaves_its_result_and_its_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log, result = tmp_path / "log", tmp_path / "result.json"
    assert run_child(["recipes", "show", "rl/codev-tiny"], log=log, result=result) == 0
    assert "algorithm: grpo" in result.read_text()
    assert run_child(["recipes", "show", "rl/none"], log=log, result=tmp_path / "other") == 2
    assert not (tmp_path / "other").exists()
    assert last_words(log).startswith("error: nothing that ships is called 'rl/none'")
    assert capfd.readouterr().err == log.read_text()


def test_a_kill_is_its_negative_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "#!/bin/sh\necho half\nkill -9 $$\n", monkeypatch)
    assert run_child([], log=tmp_path / "log", result=tmp_path / "result") == -signal.SIGKILL
    assert not (tmp_path / "result").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_interrupts_the_command_interrupts_the_child_and_waits_for_it(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, OBEDIENT, monkeypatch)
    log = tmp_path / "log"

    def interrupt() -> None:
        while not log.exists() or "begun" not in log.read_text():
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(SystemExit) as caught:
        run_child([], log=log, result=None)
    thread.join()
    assert caught.value.code == 130
    assert log.read_text() == "begun\ntold\n"
    assert signal.getsignal(number) is before
