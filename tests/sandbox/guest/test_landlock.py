"""Landlock on its own confines a process to the places that its rules name."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sandbox.guest.children import give_up_capabilities, in_child, outcome, promise_no_new_privileges
from vtune.sandbox.guest import landlock

ABI = landlock.abi()
pytestmark = pytest.mark.skipif(ABI == 0, reason="this kernel has no Landlock")
EVERY_ABI = pytest.mark.parametrize("abi", range(1, ABI + 1))


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """A workspace `ws`, an input folder `in` and something else."""
    for name in ("ws", "in", "else"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    return tmp_path


def restricted(places: Path, abi: int, work: Callable[[], object]) -> object:
    def child() -> object:
        promise_no_new_privileges()
        rules = [
            landlock.rule(str(places / "ws"), landlock.WRITE),
            landlock.rule(str(places / "in"), landlock.READ),
            landlock.rule("/dev/null", landlock.WRITE),
        ]
        landlock.restrict(rules, abi)
        return work()

    return in_child(child)


@EVERY_ABI
def test_nothing_outside_can_be_read_listed_or_changed(places: Path, abi: int) -> None:
    outside = places / "else"
    file = str(outside / "file")

    def work() -> list[str]:
        return [
            outcome(open, file),
            outcome(os.listdir, outside),
            outcome(open, file, "a"),
            outcome(open, str(outside / "new"), "w"),
            outcome(os.unlink, file),
            outcome(os.rename, file, str(places / "ws" / "stolen")),
            outcome(os.mkdir, str(places / "new")),
            outcome(open, "/etc/passwd"),
        ]

    assert restricted(places, abi, work) == ["EACCES"] * 8
    assert (outside / "file").read_text() == "else"
    assert not (outside / "new").exists()


@EVERY_ABI
def test_the_input_folder_can_only_be_read(places: Path, abi: int) -> None:
    inputs = places / "in"

    def work() -> list[str]:
        return [
            outcome((inputs / "file").read_text),
            outcome(os.listdir, inputs),
            outcome(open, inputs / "file", "a"),
            outcome(os.unlink, inputs / "file"),
            outcome(open, inputs / "new", "w"),
        ]

    assert restricted(places, abi, work) == ["done", "done", "EACCES", "EACCES", "EACCES"]
    assert (inputs / "file").read_text() == "in"


@EVERY_ABI
def test_the_workspace_serves_for_ordinary_work(places: Path, abi: int) -> None:
    def work() -> list[str]:
        os.chdir(places / "ws")
        Path("folder").mkdir()
        Path("a").write_text("a")
        Path("a").write_text("b")
        Path("a").rename("b")
        os.truncate("b", 0)
        Path("file").unlink()
        Path("empty").mkdir()
        Path("empty").rmdir()
        Path("/dev/null").write_text("gone")
        return sorted(path.name for path in Path().iterdir())

    assert restricted(places, abi, work) == ["b", "folder"]


def test_files_can_move_between_folders_of_the_workspace(places: Path) -> None:
    if ABI < 2:
        pytest.skip("Landlock 1 forbids every move between folders")

    def work() -> str:
        os.chdir(places / "ws")
        Path("folder").mkdir()
        Path("file").rename("folder/file")
        return Path("folder/file").read_text()

    assert restricted(places, ABI, work) == "ws"


@EVERY_ABI
def test_the_workspace_takes_no_links_pipes_or_sockets(places: Path, abi: int) -> None:
    def work() -> list[str]:
        os.chdir(places / "ws")
        return [
            outcome(os.symlink, "/etc", "link"),
            outcome(os.mkfifo, "pipe"),
            outcome(socket.socket(socket.AF_UNIX).bind, "socket"),
        ]

    assert restricted(places, abi, work) == ["EACCES"] * 3


@EVERY_ABI
def test_programs_that_can_be_read_cannot_be_run(abi: int) -> None:
    def work() -> str:
        promise_no_new_privileges()
        landlock.restrict([landlock.rule("/", landlock.READ)], abi)
        return outcome(os.execv, "/bin/true", ["true"])

    assert in_child(work) == "EACCES"


@pytest.mark.skipif(ABI < 3, reason="Landlock does not know truncation before version 3")
def test_truncation_outside_is_refused(places: Path) -> None:
    file = str(places / "else" / "file")

    def work() -> list[str]:
        neither = os.O_ACCMODE | os.O_TRUNC
        return [outcome(os.truncate, file, 0), outcome(os.open, file, neither)]

    assert restricted(places, ABI, work) == ["EACCES"] * 2
    assert (places / "else" / "file").read_text() == "else"


@pytest.mark.skipif(ABI < 4, reason="Landlock does not know TCP before version 4")
def test_tcp_is_refused(places: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()

        def work() -> str:
            return outcome(socket.socket().connect, address)

        assert restricted(places, 3, work) == "done"
        assert restricted(places, ABI, work) == "EACCES"


@pytest.mark.skipif(ABI < 6, reason="Landlock does not know signals before version 6")
def test_signals_to_the_outside_are_refused(places: Path) -> None:
    parent = os.getpid()

    def work() -> str:
        return outcome(os.kill, parent, 0)

    assert restricted(places, 5, work) == "done"
    assert restricted(places, ABI, work) == "EPERM"


def test_a_rule_for_a_missing_place_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        landlock.rule(str(tmp_path / "missing"), landlock.READ)


def test_a_file_gets_no_rights_of_folders(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    rules = [landlock.rule(str(path), landlock.WRITE) for path in (tmp_path, tmp_path / "file")]
    for rule in rules:
        os.close(rule.fd)
    assert [rule.access for rule in rules] == [
        landlock.WRITE,
        landlock.READ_FILE | landlock.WRITE_FILE | landlock.TRUNCATE,
    ]


def test_without_the_promise_and_the_right_the_kernel_refuses() -> None:
    def work() -> str:
        give_up_capabilities()
        return outcome(landlock.restrict, [], ABI)

    assert in_child(work) == "EPERM"
