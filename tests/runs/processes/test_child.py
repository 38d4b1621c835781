import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from vtune.runs.processes.child import Child, last_words, noted_signals
from vtune.runs.processes.launch import Voice

OBEDIENT = """#!/bin/sh
trap 'echo told >&2; exit 130' INT TERM
echo begun >&2
while :; do sleep 0.05; done
"""


def program(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace Python with a shell script."""
    path = folder / "program"
    path.write_text(text)
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


def ended(words: list[str], *, log: Path, result: Path | None, title: str = "") -> int:
    """The exit status of a command, which gets the signals that this process gets."""
    with noted_signals() as noted:
        # Started inside: if this process ignores Ctrl-C, as a background job does, the child would too.
        child, passed = Child(words, log=log, result=result, title=title), 0
        while (code := child.poll()) is None:
            for number in noted[passed:]:
                child.send(number)
            passed = len(noted)
            time.sleep(0.02)
    return code


def test_a_command_leaves_its_result_and_its_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log, result = tmp_path / "log", tmp_path / "result.json"
    assert ended(["recipes", "show", "rl/codev-tiny"], log=log, result=result) == 0
    assert "algorithm: grpo" in result.read_text()
    assert ended(["recipes", "show", "rl/none"], log=log, result=tmp_path / "other") == 2
    assert not (tmp_path / "other").exists()
    assert last_words(log).startswith("error: nothing called 'rl/none' ships with vtune")
    assert capfd.readouterr().err == log.read_text()


def test_lines_of_several_children_are_complete_and_distinguished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program(tmp_path, "#!/bin/sh\nprintf 'one\ntw' >&2; sleep 0.2; printf 'o\nend' >&2\n", monkeypatch)
    assert ended([], log=tmp_path / "log", result=None, title="plain/seed-3") == 0
    assert capfd.readouterr().err == "plain/seed-3: one\nplain/seed-3: two\nplain/seed-3: end\n"
    assert (tmp_path / "log").read_text() == "one\ntwo\nend"


def test_a_killed_child_returns_the_negative_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "#!/bin/sh\necho half\nkill -9 $$\n", monkeypatch)
    assert ended([], log=tmp_path / "log", result=tmp_path / "result") == -signal.SIGKILL
    assert not (tmp_path / "result").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_passed_to_the_child_and_awaited(
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
    assert ended([], log=log, result=None) == 130
    thread.join()
    assert log.read_text() == "begun\ntold\n"
    assert signal.getsignal(number) is before


def test_a_character_that_is_written_in_two_halves_is_passed_on_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "rank-0.log"
    voice = Voice(log)
    first, second = "é".encode()[:1], "é".encode()[1:]
    for piece in (b"caf" + first, second + b"\n", first):
        with log.open("ab") as file:
            file.write(piece)
        voice.pass_on()
    voice.pass_on(ended=True)
    assert capsys.readouterr().err == "café\n�"
