"""Namespaces on their own: no host file, process or network is visible, for root and for others."""

import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.guest.children import become_nobody_special, give_up_capabilities, in_child, outcome
from vtune.sandbox.guest import linux, namespaces

NEW_MOUNTS = 0x00020000
NO_SUID, NO_DEVICES, NO_PROGRAMS, READ_ONLY = 2, 4, 8, 1
RECURSIVE, PRIVATE = 1 << 14, 1 << 18
RUNTIME = tuple(sorted({sys.prefix, sys.base_prefix, "/usr"}))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def nothing() -> None:
    """Stay the same user."""


WHO = pytest.mark.parametrize("become", [nothing, become_nobody_special], ids=["as we are", "unprivileged"])


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """A mount point `root`, a folder `work` to write in, `runtime` to read, and `secret` for nobody."""
    for name in ("root", "work", "runtime"):
        (tmp_path / name).mkdir()
    (tmp_path / "runtime" / "file").write_text("shared")
    (tmp_path / "secret").write_text("secret")
    return tmp_path


def view(places: Path, *more: str) -> namespaces.View:
    return namespaces.View(
        read_only=(*RUNTIME, str(places / "runtime"), *more),
        devices=("/dev/null", "/dev/zero"),
        writable=(str(places / "work"),),
    )


def possible(places: Path, become: Callable[[], None]) -> None:
    def work() -> str:
        become()
        return namespaces.why_not(view(places), str(places / "root"))

    # The kernel may refuse the very first step, which the test itself depends on.
    if outcome(in_child, become) != "done" or (reason := in_child(work)):
        pytest.skip(f"this machine does not let us: {reason}")


def inside(
    places: Path,
    work: Callable[[], object],
    become: Callable[[], None] = nothing,
    *,
    prepare: Callable[[], None] = nothing,
    shown: namespaces.View | None = None,
) -> Any:
    """What `work` returns in the namespaces."""
    possible(places, become)

    def resident() -> object:
        namespaces.leave_the_rest(shown or view(places), str(places / "root"))
        return work()

    def guardian() -> object:
        prepare()
        become()
        namespaces.leave_pids()
        return in_child(resident)

    return in_child(guardian)


@WHO
def test_host_files_cannot_even_be_seen(places: Path, become: Callable[[], None]) -> None:
    hidden = [
        str(places / "secret"),
        "/etc/passwd",
        "/proc",
        "/sys",
        "/dev/kmsg",
        "/dev/shm",
        "/../etc/passwd",  # where an old root that was not detached would show
        "/home",
    ]

    def work() -> list[str]:
        return [outcome(os.stat, path) for path in hidden] + names(places)

    assert inside(places, work, become) == ["ENOENT"] * len(hidden) + ["runtime", "work"]


@WHO
def test_only_the_workspace_can_be_written(places: Path, become: Callable[[], None]) -> None:
    def work() -> list[str]:
        (places / "work" / "new").write_text("made inside")
        return [
            outcome((places / "runtime" / "file").write_text, "changed"),
            outcome(os.chmod, places / "runtime" / "file", 0o777),
            outcome(os.mkdir, places / "new"),
            outcome(os.mkdir, "/new"),
            outcome((Path(sys.prefix) / "new").write_text, "x"),
            (places / "runtime" / "file").read_text(),
        ]

    assert inside(places, work, become) == ["EROFS"] * 5 + ["shared"]
    assert (places / "work" / "new").read_text() == "made inside"


@WHO
def test_devices_work_and_keep_their_mode(places: Path, become: Callable[[], None]) -> None:
    mode = Path("/dev/null").stat().st_mode

    def work() -> list[object]:
        Path("/dev/null").write_text("gone")
        with open("/dev/zero", "rb") as zero:
            content = zero.read(3)
        return [content.hex(), outcome(os.chmod, "/dev/null", 0o600), names(Path("/dev"))]

    try:
        assert inside(places, work, become) == ["000000", "EROFS", ["null", "zero"]]
        assert Path("/dev/null").stat().st_mode == mode
    finally:
        # This is the machine's own device: a leaky view must not damage it.
        if Path("/dev/null").stat().st_mode != mode:
            Path("/dev/null").chmod(mode)


@WHO
def test_there_is_no_network_and_no_other_process(places: Path, become: Callable[[], None]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()

        def work() -> list[object]:
            names = [name for _, name in socket.if_nameindex()]
            link = outcome(socket.socket().connect, address)
            return [
                os.getpid(),
                os.getppid(),
                set(names) - {"lo"} == set(),
                "lo" in names,
                link,
                socket.gethostname(),
            ]

        # The loopback of a fresh network is down; some machines add tunnels to it, also down.
        pid, parent, _, loopback, link, name = inside(places, work, become)
    assert (pid, parent) == (1, 0)
    assert (loopback, link, name) == (True, "ENETUNREACH", "sandbox")


@WHO
def test_all_processes_end_with_the_first(places: Path, become: Callable[[], None]) -> None:
    reader, writer = os.pipe()

    def work() -> None:
        if os.fork() == 0:
            signal.pause()

    inside(places, work, become)
    os.close(writer)
    with open(reader, "rb") as pipe:  # the abandoned child would keep it open for ever
        assert pipe.read() == b""


def test_symbolic_links_stay_links(places: Path) -> None:
    deep = places / "deep" / "er"
    deep.mkdir(parents=True)
    (deep / "file").write_text("found")
    (places / "relative").symlink_to("deep/../deep/er")
    (places / "absolute").symlink_to(places / "relative")
    shown = view(places, str(places / "absolute" / "file"), str(places / "relative"))

    def work() -> list[str]:
        links = [str((places / name).readlink()) for name in ("relative", "absolute")]
        return [*links, *((places / name / "file").read_text() for name in ("relative", "absolute"))]

    expected = ["deep/../deep/er", str(places / "relative"), "found", "found"]
    assert inside(places, work, shown=shown) == expected


def test_folders_on_the_way_let_everybody_pass(places: Path) -> None:
    """So that a session with its own user reaches a runtime below a private home."""
    places.chmod(0o700)
    old = os.umask(0o077)
    try:
        assert inside(places, lambda: places.stat().st_mode & 0o777) == 0o755
    finally:
        os.umask(old)


@WHO
def test_what_is_mounted_below_is_shown_and_read_only_too(places: Path, become: Callable[[], None]) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount")
    possible(places, nothing)
    below = places / "runtime" / "a folder\\with ünusual name"
    below.mkdir()
    covered = below / "covered"

    def prepare() -> None:
        linux.syscall("unshare", NEW_MOUNTS)
        linux.syscall("mount", None, b"/", None, RECURSIVE | PRIVATE, None)
        covered.mkdir()
        linux.syscall("mount", b"tmpfs", os.fsencode(covered), b"tmpfs", 0, b"size=64k")
        # Flags that a user namespace must not remove.
        flags = NO_SUID | NO_DEVICES | NO_PROGRAMS
        linux.syscall("mount", b"tmpfs", os.fsencode(below), b"tmpfs", flags, b"size=64k")
        (below / "file").write_text("mounted")

    def work() -> list[object]:
        flags = os.statvfs(below).f_flag
        kept = flags & NO_PROGRAMS and flags & READ_ONLY
        return [(below / "file").read_text(), outcome((below / "new").write_text, "x"), bool(kept)]

    assert inside(places, work, become, prepare=prepare) == ["mounted", "EROFS", True]


def test_a_place_inside_another_keeps_its_own_rights(places: Path) -> None:
    (places / "work" / "fixed").mkdir()
    (places / "runtime" / "scratch").mkdir()
    shown = namespaces.View(
        read_only=(str(places / "work" / "fixed"), str(places / "runtime")),
        devices=(),
        writable=(str(places / "runtime" / "scratch"), str(places / "work")),
    )
    folders = ("work", "work/fixed", "runtime", "runtime/scratch")

    def work() -> list[str]:
        return [outcome((places / folder / "new").write_text, "x") for folder in folders]

    assert inside(places, work, shown=shown) == ["done", "EROFS", "EROFS", "done"]


def test_the_mount_point_may_lie_inside_what_is_shown(places: Path) -> None:
    shown = namespaces.View(read_only=(), devices=(), writable=(str(places),))

    def work() -> list[str]:
        (places / "new").write_text("x")
        return names(places) + names(places / "root")

    assert inside(places, work, shown=shown) == ["new", "root", "runtime", "secret", "work"]


@WHO
def test_the_trial_leaves_nothing_behind(places: Path, become: Callable[[], None]) -> None:
    def work() -> bool:
        become()
        before = state(places)
        namespaces.why_not(view(places), str(places / "root"))
        return before == state(places) and outcome(os.waitpid, -1, os.WNOHANG) == "ECHILD"

    assert in_child(work)


def state(places: Path) -> str:
    own = Path("/proc/self")
    links = [str(link.readlink()) for link in sorted((own / "ns").iterdir())]
    descriptors = len(names(own / "fd"))
    mounts = (own / "mountinfo").read_text()
    return json.dumps([links, descriptors, mounts, str(Path.cwd()), sorted(map(str, places.rglob("*")))])


def test_root_without_the_right_is_told_so(places: Path) -> None:
    def work() -> str:
        give_up_capabilities()
        return namespaces.why_not(view(places), str(places / "root"))

    if os.geteuid() != 0:
        pytest.skip("tells of root only")
    assert in_child(work) == "unshare: Operation not permitted"


def test_a_missing_path_is_named(places: Path) -> None:
    possible(places, nothing)
    missing = str(places / "missing")
    assert (
        namespaces.why_not(view(places, missing), str(places / "root"))
        == f"{missing}: No such file or directory"
    )
    assert namespaces.why_not(view(places), missing) == f"mount {missing}: No such file or directory"
