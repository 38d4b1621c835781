"""The trainer reads a workspace by itself: bounded, in order, and never through a link."""

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import vtune.sandbox.workspace
from tests.sandbox.guest.children import become_nobody_special, in_child
from vtune.sandbox.guest import folders
from vtune.sandbox.turns import Turns
from vtune.sandbox.workspace import MAX_DEPTH, PIECE, NotShown, Workspace


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Workspace]:
    folders.make_session(str(tmp_path / "s1"), None)
    workspace = Workspace.of(str(tmp_path / "s1"), Turns(), max_files=20, max_bytes=1 << 20)
    yield workspace
    workspace.close()


def nothing() -> None:
    """Stay the same user."""


def test_new_and_changed_pictures_come_once_in_order_of_writing(files: Workspace) -> None:
    for name in ("b.png", "a.jpg", "note.txt"):
        (files.folder / name).write_bytes(b"1")
        time.sleep(0.02)
    assert files.new_pictures(())[0] == ["b.png", "a.jpg"]
    assert files.new_pictures(())[0] == []
    (files.folder / "b.png").write_bytes(b"12")
    assert files.new_pictures(())[0] == ["b.png"]


def test_within_one_tick_of_the_clock_the_order_of_saving_decides(files: Workspace) -> None:
    for name in ("a.png", "b.png", "c.png"):
        (files.folder / name).write_bytes(b"1")
        os.utime(files.folder / name, ns=(5, 5))
    assert files.new_pictures(("c.png", "a.png", "b.png"))[0] == ["c.png", "a.png", "b.png"]
    assert files.new_pictures(("b.png",))[0] == ["b.png"]


def test_a_name_that_the_session_made_up_brings_nothing(files: Workspace, tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    assert files.new_pictures(("../../secret.png", "/etc/passwd.png"))[0] == []


def test_links_are_neither_listed_nor_read(files: Workspace, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"secret")
    (files.folder / "soft.png").symlink_to(secret)
    (files.folder / "hard.png").hardlink_to(secret)
    (files.folder / "folder").symlink_to(tmp_path)
    os.mkfifo(files.folder / "pipe.png")
    assert files.new_pictures(())[0] == []
    for name in ("soft.png", "folder/secret.png", "pipe.png", "gone.png"):
        with pytest.raises(NotShown):
            asyncio.run(files.read(name, max_bytes=100))


def test_a_file_over_the_limit_is_not_read(files: Workspace) -> None:
    (files.folder / "a.png").write_bytes(bytes(11))
    assert len(asyncio.run(files.read("a.png", max_bytes=11))) == 11
    with pytest.raises(NotShown, match="larger"):
        asyncio.run(files.read("a.png", max_bytes=10))


class Counted(Turns):
    asked = 0

    async def next(self) -> None:
        self.asked += 1
        await super().next()


def test_a_large_file_leaves_the_event_loop_its_turns_while_it_is_written_and_read(tmp_path: Path) -> None:
    folders.make_session(str(tmp_path / "s1"), None)
    turns = Counted()
    files = Workspace.of(str(tmp_path / "s1"), turns, max_files=20, max_bytes=1 << 30)
    content = os.urandom(9 * PIECE + 1)
    asyncio.run(files.put("image_0.png", content))
    assert turns.asked >= 10
    (files.folder / "a.png").write_bytes(content)
    turns.asked = 0
    assert asyncio.run(files.read("a.png", max_bytes=len(content))) == content
    assert turns.asked >= 10
    files.close()


def test_the_event_loop_makes_no_file_of_an_input(
    files: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    makers: list[int] = []
    make = vtune.sandbox.workspace._make

    def noted(path: str) -> None:
        makers.append(threading.get_ident())
        make(path)

    monkeypatch.setattr(vtune.sandbox.workspace, "_make", noted)
    for content in (b"first", b"2nd"):
        asyncio.run(files.put("a.png", content))
        assert (tmp_path / "s1" / folders.INPUTS / "a.png").read_bytes() == content
    # The second time it exists already, and is overwritten.
    assert len(makers) == 1
    assert makers[0] != threading.get_ident()


def test_quotas_count_everything(files: Workspace) -> None:
    assert files.over_quota() == ""
    deep = files.folder / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "big").write_bytes(bytes(2 << 20))
    assert files.over_quota() == "more than 1 MiB of files"
    (deep / "big").unlink()
    for number in range(20):
        (files.folder / str(number)).touch()
    assert files.over_quota() == "more than 20 files"


@pytest.mark.parametrize("mode", [0o000, 0o200, 0o300, 0o400, 0o600])
@pytest.mark.parametrize("become", [nothing, become_nobody_special], ids=["as we are", "unprivileged"])
def test_folders_that_are_closed_to_their_owner_count_too(
    become: Callable[[], None], mode: int, tmp_path: Path
) -> None:
    def work() -> str:
        become()
        folders.make_session(str(tmp_path / "s1"), None)
        files = Workspace.of(str(tmp_path / "s1"), Turns(), max_files=20, max_bytes=1 << 20)
        outer = files.folder / "outer"
        (outer / "inner").mkdir(parents=True)
        (outer / "inner" / "big").write_bytes(bytes(2 << 20))
        for folder in (outer / "inner", outer):
            folder.chmod(mode)
        return files.over_quota()

    assert in_child(work) == "more than 1 MiB of files"


def test_a_link_in_the_place_of_a_closed_folder_is_not_followed(
    files: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    closed = files.folder / "closed"
    closed.mkdir(0o000)
    outside.chmod(0o500)
    real = os.open

    def swapped_first(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "closed":
            closed.rmdir()
            closed.symlink_to(outside)
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swapped_first)
    assert files.over_quota() == ""
    assert outside.stat().st_mode & 0o777 == 0o500


def test_a_look_that_ends_at_the_quota_costs_no_descriptor(files: Workspace) -> None:
    for number in range(30):
        (files.folder / str(number) / "deeper").mkdir(parents=True)
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert files.over_quota() == "more than 20 files"
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_nesting_has_a_limit(files: Workspace) -> None:
    path = files.folder
    for _ in range(MAX_DEPTH):
        path /= "d"
        path.mkdir()
    assert files.over_quota() == ""
    (path / "d").mkdir()
    assert files.over_quota() == f"folders nested deeper than {MAX_DEPTH}"


def test_inputs_are_reached_whatever_took_their_place(files: Workspace) -> None:
    asyncio.run(files.put("image_0.png", b"picture"))
    files.link_inputs(["image_0.png"])
    files.link_inputs(["image_0.png"])
    link = files.folder / "image_0.png"
    assert link.read_bytes() == b"picture"
    link.unlink()
    link.mkdir()
    (link / "trap").touch()
    files.link_inputs(["image_0.png"])
    assert link.read_bytes() == b"picture"
    assert (files.folder.parent / "in" / "image_0.png").stat().st_mode & 0o777 == 0o444


@pytest.mark.parametrize("become", [nothing, become_nobody_special], ids=["as we are", "unprivileged"])
def test_inputs_of_the_next_session_take_the_place_of_those_before(
    become: Callable[[], None], tmp_path: Path
) -> None:
    """With as few files created and removed as possible: some disks are slow at both."""

    async def begun(**pictures: bytes) -> Workspace:
        files = Workspace.of(str(tmp_path / "s1"), Turns(), max_files=20, max_bytes=1 << 20)
        for name, content in pictures.items():
            await files.put(name, content)
        files.link_inputs(list(pictures))
        return files

    async def story() -> list[object]:
        inputs = tmp_path / "s1" / "in"
        files = await begun(a=b"a long picture", b=b"another", c=b"a third")
        made = [(inputs / "a").stat().st_ino, (files.folder / "a").lstat().st_ino]
        (files.folder / "b").unlink()
        (files.folder / "b").write_text("not a link")
        (files.folder / "c").unlink()
        (files.folder / "c").symlink_to("../in/a")
        (files.folder / "note.txt").write_text("mine")
        found: list[object] = [await files.cleared(), [path.name for path in files.folder.iterdir()]]
        files = await begun(a=b"short", c=b"third")
        found.append([(inputs / "a").stat().st_ino, (files.folder / "a").lstat().st_ino] == made)
        found.append(oct((inputs / "a").stat().st_mode & 0o777))
        found.append({path.name: path.read_bytes().decode() for path in sorted(files.folder.iterdir())})
        found.append(sorted(path.name for path in inputs.iterdir()))
        found.append(await files.cleared())
        files = await begun()
        return [*found, list(files.folder.iterdir()), list(inputs.iterdir())]

    def work() -> str:
        become()
        folders.make_session(str(tmp_path / "s1"), None)
        return json.dumps(asyncio.run(story()))

    there = {"a": "short", "c": "third"}
    assert json.loads(in_child(work)) == [True, ["a"], True, "0o444", there, ["a", "c"], True, [], []]


def test_setting_aside_empties_it_for_good_and_looking_costs_no_descriptor(files: Workspace) -> None:
    (files.folder / "a" / "b").mkdir(parents=True)
    (files.folder / "a" / "c.png").touch()
    (files.folder / "d").symlink_to("/etc")
    before = len(list(Path("/proc/self/fd").iterdir()))
    mode = files.folder.stat().st_mode
    assert files.new_pictures(())[0] == ["a/c.png"]
    files.over_quota()
    aside = Path(files.set_aside())
    assert list(files.folder.iterdir()) == []
    assert files.folder.stat().st_mode == mode
    assert aside.parent == files.folder.parent.parent
    assert sorted(path.name for path in aside.iterdir()) == ["a", "d"]
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    # Whatever comes later is seen in the new place, even under an old name.
    (files.folder / "a").mkdir()
    (files.folder / "a" / "c.png").touch()
    assert files.new_pictures(())[0] == ["a/c.png"]
