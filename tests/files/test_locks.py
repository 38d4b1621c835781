import errno
import fcntl
import threading
from pathlib import Path
from typing import Any

import pytest

from vtune.errors import RecipeError
from vtune.files.locks import lock
from vtune.runs.start import locked


def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    with (tmp_path / "a").open("w") as first, (tmp_path / "a").open("w") as second:
        assert lock(first)
        with pytest.raises(BlockingIOError):
            lock(second)
        first.close()
        assert lock(second.fileno(), wait=True)


def test_a_look_at_a_run_does_not_refuse_a_start_at_that_moment(tmp_path: Path) -> None:
    with locked(tmp_path):
        pass
    looked = (tmp_path / ".lock").open()
    fcntl.flock(looked, fcntl.LOCK_SH)
    threading.Timer(0.2, looked.close).start()
    with locked(tmp_path):
        assert looked.closed


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_without_file_system_locks_a_run_starts_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    def lacks(file: Any, how: int) -> None:
        raise OSError(number, "not here")

    with locked(tmp_path), pytest.raises(RecipeError, match="another process"), locked(tmp_path):
        pass
    assert "warning" not in capsys.readouterr().err
    monkeypatch.setattr(fcntl, "flock", lacks)
    with locked(tmp_path):
        assert "has no locks" in capsys.readouterr().err


def test_other_locking_errors_are_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(file: Any, how: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(fcntl, "flock", fails)
    with pytest.raises(OSError, match="input/output"), (tmp_path / "a").open("w") as file:
        lock(file)
