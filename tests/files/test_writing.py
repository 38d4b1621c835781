"""An output never replaces a non-file or an input, and is written atomically."""

import errno
import os
import stat
from pathlib import Path

import pytest

from vtune.errors import RecipeError, RunFailed
from vtune.files.writing import (
    atomic_file,
    atomic_folder,
    check_file_output,
    check_folder_output,
    open_to_others,
    write_atomically,
)


def test_an_output_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    link = tmp_path / "full"
    link.symlink_to("/dev/full")
    for write in (check_file_output, lambda path: write_atomically(path, "x")):
        with pytest.raises(RecipeError, match="is a device, not a file"):
            write(link)
    assert link.is_symlink()
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


@pytest.mark.parametrize("check", [check_file_output, check_folder_output])
def test_a_path_below_a_file_is_refused(check: object, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert callable(check)
    with pytest.raises(RecipeError, match=r"cannot be written: \S+ is a file, not a folder"):
        check(tmp_path / "file" / "out")


def test_a_file_cannot_replace_a_folder_nor_a_folder_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecipeError, match="is a folder, not a file"):
        check_file_output(tmp_path)
    with pytest.raises(RecipeError, match="is a file"):
        check_folder_output(tmp_path / "file")


def test_an_output_that_is_or_is_inside_an_input_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").touch()
    (tmp_path / "link").symlink_to("in")
    for out in (tmp_path / "in" / "a", tmp_path / "link" / "a"):
        with pytest.raises(RecipeError, match="an input of this command"):
            check_file_output(out, inputs=[tmp_path / "in"])
    for out in (tmp_path / "in" / "new", tmp_path / "link" / "deep" / "new"):
        with pytest.raises(RecipeError, match="an input of this command"):
            check_folder_output(out, inputs=[tmp_path / "in"])
    with pytest.raises(RecipeError, match="an input of this command"):
        check_file_output(tmp_path / "link" / "a", inputs=[tmp_path / "in" / "a"])
    for out in (tmp_path / "inner", tmp_path / "in" / "new"):
        check_file_output(out, inputs=[tmp_path / "in"])


def test_a_check_leaves_nothing_behind(tmp_path: Path) -> None:
    check_folder_output(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    check_file_output(tmp_path / "c")
    assert list(tmp_path.iterdir()) == []


def test_a_dangling_link_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(RecipeError, match="a dangling link"):
        check_folder_output(tmp_path / "link")


def test_a_link_stays_and_the_file_that_it_names_is_written(tmp_path: Path) -> None:
    """Also if that does not exist yet; the new content is prepared beside it, on the same disk."""
    (tmp_path / "disk").mkdir()
    for name, there in (("old", True), ("new", False)):
        target, link = tmp_path / "disk" / name, tmp_path / f"{name}-link"
        if there:
            target.write_text("before")
        link.symlink_to(Path("disk", name))
        check_file_output(link)
        with atomic_file(link) as partial:
            assert partial.parent == tmp_path / "disk"
            partial.write_text("after")
        assert link.is_symlink()
        assert target.read_text() == "after"
    assert len(list((tmp_path / "disk").iterdir())) == 2


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", "old")

    def interrupted() -> None:
        with atomic_file(tmp_path / "file") as partial:
            partial.write_text("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


def test_a_file_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new \ud800")
    assert path.read_text() == "old"
    write_atomically(path, "new")
    assert path.read_text() == "new"


def test_two_that_write_one_folder_leave_each_other_alone(tmp_path: Path) -> None:
    folder = tmp_path / "out"

    def interleaved() -> None:
        with atomic_folder(folder) as late:
            (late / "a").write_text("late")
            with atomic_folder(folder) as early:
                (early / "a").write_text("early")
            assert (late / "a").read_text() == "late"

    with pytest.raises(RecipeError, match=r"out exists\n.*remove it"):
        interleaved()
    assert [file.read_text() for file in tmp_path.glob("**/a")] == ["early"]


def test_a_folder_whose_content_fails_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="df -h"), atomic_folder(tmp_path / "deep/out"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not [*(tmp_path / "deep").iterdir()]


def test_what_fails_within_a_folder_is_not_blamed_on_its_name(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError, match="twice"), atomic_folder(tmp_path / "out"):
        raise FileExistsError(errno.EEXIST, "File exists", "twice")
    with pytest.raises(RecipeError, match="out exists"), atomic_folder(tmp_path / "out"):
        (tmp_path / "out").write_text("a file that came meanwhile")
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_a_full_disk_is_a_message_that_names_the_output(tmp_path: Path) -> None:
    """It is not an input error: a run of hours must be able to continue once there is space."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with (
        pytest.raises(RunFailed, match=r"file cannot be written: No space") as failed,
        atomic_file(tmp_path / "file"),
    ):
        raise full
    assert "make room" in failed.value.fix
    # Not every command can resume: `vtune curate` and `vtune report --html` have no such option.
    assert failed.value.fix.endswith("start again, with --resume where the command has it")
    assert list(tmp_path.iterdir()) == []
    with (
        pytest.raises(RunFailed) as refused,
        atomic_file(tmp_path / "figure.svg", option="--figure"),
    ):
        raise full
    assert "another --figure" in str(refused.value)
    with pytest.raises(RunFailed) as own, atomic_file(tmp_path / "index", option=None):
        raise full
    assert own.value.fix.startswith("make room")
    (tmp_path / "folder").mkdir()
    with (
        pytest.raises(RecipeError, match="is a folder") as taken,
        atomic_file(tmp_path / "folder", option=None),
    ):
        pass
    assert taken.value.fix == "move it away"


def test_a_file_name_of_maximum_length_can_be_written(tmp_path: Path) -> None:
    write_atomically(tmp_path / ("x" * 255), "y")
    with pytest.raises(RecipeError, match="File name too long"):
        write_atomically(tmp_path / ("x" * 256), "y")
    write_atomically(tmp_path / ("文" * 85), "y")


def test_a_read_only_file_system_is_a_message_that_names_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There even removing a missing file is refused."""
    out = tmp_path / "page.html"

    def refused(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    with monkeypatch.context() as read_only:
        read_only.setattr(Path, "touch", refused)
        read_only.setattr(Path, "unlink", refused)
        with pytest.raises(RecipeError, match=r"page\.html cannot be written: Read-only"):
            check_file_output(out, option="--html")
    with monkeypatch.context() as read_only:
        read_only.setattr(Path, "replace", refused)
        read_only.setattr(Path, "unlink", refused)
        with pytest.raises(RecipeError, match=r"page\.html cannot be written"), atomic_file(out) as partial:
            partial.write_bytes(b"<html>")
    assert not out.exists()


@pytest.mark.parametrize(
    ("folder", "was", "becomes"),
    [
        (0o755, 0o600, 0o644),
        (0o775, 0o600, 0o644),
        (0o1777, 0o600, 0o644),
        (0o700, 0o600, 0o600),
        (0o755, 0o755, 0o755),
    ],
)
def test_a_file_gets_the_read_permissions_of_its_folder(
    folder: int, was: int, becomes: int, tmp_path: Path
) -> None:
    path = tmp_path / "models" / "weights"
    path.parent.mkdir()
    path.touch()
    path.parent.chmod(folder)
    path.chmod(was)
    open_to_others(path)
    assert stat.S_IMODE(path.stat().st_mode) == becomes


def test_a_disk_without_permissions_does_not_prevent_saving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, mode: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", str(path))

    path = tmp_path / "weights"
    path.touch(0o600)
    tmp_path.chmod(0o755)
    monkeypatch.setattr(Path, "chmod", refused)
    open_to_others(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
