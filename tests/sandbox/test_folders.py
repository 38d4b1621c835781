"""A session's folders are removed, whatever the code has done to them."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from vtune.sandbox.guest import folders


def nest(folder: Path, depth: int, mode: int = 0o755) -> None:
    """Nested folders; 1,200 are deeper than a path can name, and than Python can recurse."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d" * 40, dir_fd=here)
        inside = os.open("d" * 40, os.O_RDONLY, dir_fd=here)
        os.close(os.open("file", os.O_CREAT, dir_fd=inside))
        os.chmod("d" * 40, mode, dir_fd=here)
        os.close(here)
        here = inside
    os.close(here)


@pytest.mark.parametrize(("depth", "mode"), [(3, 0o755), (3, 0), (1200, 0o755), (1200, 0)])
def test_deep_and_closed_folders_are_removed(tmp_path: Path, depth: int, mode: int) -> None:
    top = tmp_path / "s1"
    for name in ("a", "b"):
        (top / name).mkdir(parents=True)
        nest(top / name, depth, mode)
    folders.remove(str(top))
    assert not top.exists()


def test_what_a_link_points_to_stays(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "s1").mkdir()
    (tmp_path / "s1" / "link").symlink_to(tmp_path / "kept")
    folders.remove(str(tmp_path / "s1"))
    assert not (tmp_path / "s1").exists()
    assert (tmp_path / "kept" / "file").exists()


def test_nothing_to_remove_is_fine(tmp_path: Path) -> None:
    folders.remove(str(tmp_path / "gone"))
    assert list(tmp_path.iterdir()) == []


def test_names_that_look_like_ours_are_no_trouble(tmp_path: Path) -> None:
    for name in (".0.0.0", ".0.1.0", ".1.0.0"):
        (tmp_path / "s1" / name / ".0.0.0" / ".0.0.1").mkdir(parents=True)
        (tmp_path / "s1" / name / ".0.1.0" / "x").mkdir(parents=True)
    folders.remove(str(tmp_path / "s1"))
    assert not (tmp_path / "s1").exists()


def test_two_may_remove_the_same(tmp_path: Path) -> None:
    for _ in range(20):
        nest_into = tmp_path / "s1"
        for name in "abcd":
            (nest_into / name).mkdir(parents=True)
            nest(nest_into / name, 10)
        with ThreadPoolExecutor(2) as two:
            for done in [two.submit(folders.remove, str(nest_into)) for _ in range(2)]:
                done.result()
        assert not nest_into.exists()
