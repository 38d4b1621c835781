"""All layers together on one process, and the self test that notices a missing one."""

import mmap
import os
import platform
import resource
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.guest.children import Killed, become_nobody_special, in_child, outcome
from vtune.sandbox.guest import confine, landlock, seccomp

ABI = landlock.abi()
pytestmark = pytest.mark.skipif(
    ABI == 0 or not seccomp.supported(platform.machine()),
    reason="needs Landlock and a filter for this machine",
)
MIB = 1 << 20
OUTSIDE = "/etc/passwd"


def nothing() -> None:
    """Stay the same user."""


WHO = pytest.mark.parametrize("become", [nothing, become_nobody_special], ids=["as we are", "unprivileged"])


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """A session's folder; the folders above it are the test's, so that only the layers restrict access."""
    for name in ("ws", "in"):
        (tmp_path / name).mkdir()
    (tmp_path / "in" / "picture").write_text("picture")
    return tmp_path


def open_to_others(session: Path) -> None:
    for path in (session, *session.parents):
        mode = path.stat().st_mode
        if not mode & 0o001:
            path.chmod(mode | 0o011)
    (session / "ws").chmod(0o777)
    (session / "in").chmod(0o755)
    (session / "in" / "picture").chmod(0o644)


OPEN_FILES = 1024
"""More than a test worker holds, since its children inherit them."""


def layers() -> confine.Confinement:
    return confine.Confinement(
        landlock_abi=ABI,
        rules=(landlock.rule("/usr", landlock.READ), landlock.rule("/dev/null", landlock.WRITE)),
        filter=seccomp.Filter(platform.machine()),
        memory=512 * MIB,
        cpu_seconds=30,
        file_bytes=MIB,
        open_files=OPEN_FILES,
        base_memory=confine.address_space(),
    )


def confined(
    session: Path,
    work: Callable[[], object],
    become: Callable[[], None] = nothing,
    *,
    uid: int | None = None,
    change: Callable[[confine.Confinement], confine.Confinement] = lambda how: how,
) -> Any:
    """What `work` returns in a confined child; `change` alters the layers first."""

    def child() -> object:
        become()
        os.chdir(session / "ws")
        confine.confine(change(layers()), writable=str(session / "ws"), readable=str(session / "in"), uid=uid)
        return work()

    if outcome(in_child, become) != "done":
        pytest.skip("this machine has no user namespaces")
    return in_child(child)


@WHO
def test_files_processes_network_and_rights_are_gone(session: Path, become: Callable[[], None]) -> None:
    parent = os.getpid()

    def work() -> list[object]:
        Path("new").write_text("x")
        return [
            (session / "in" / "picture").read_text(),
            outcome(open, OUTSIDE),
            outcome((session / "in" / "picture").write_text, "x"),
            outcome((session / "beside").write_text, "x"),
            outcome(socket.socket),
            outcome(os.kill, parent, 0),
            outcome(os.fork),
            outcome(open, "/proc/self/status"),
        ]

    expected = ["picture", "EACCES", "EACCES", "EACCES", "EPERM", "EPERM", "EAGAIN", "EACCES"]
    assert confined(session, work, become) == expected


@WHO
def test_limits_hold(session: Path, become: Callable[[], None]) -> None:
    def work() -> list[object]:
        with pytest.raises(MemoryError):
            bytearray(600 * MIB)
        bytearray(200 * MIB)
        kinds = ("CPU", "FSIZE", "NOFILE", "CORE", "MEMLOCK", "MSGQUEUE", "SIGPENDING")
        limits = [resource.getrlimit(getattr(resource, f"RLIMIT_{kind}")) for kind in kinds]
        return [limits, outcome(Path("big").write_bytes, bytes(MIB + 1)), os.getpriority(os.PRIO_PROCESS, 0)]

    nice = os.getpriority(os.PRIO_PROCESS, 0)
    limits, big, after = confined(session, work, become)
    assert limits == [[value] * 2 for value in (30, MIB, OPEN_FILES, 0, 0, 0, confine.PENDING_SIGNALS)]
    assert (big, after) == ("EFBIG", min(nice + confine.NICE, 19))


def test_cpu_time_ends_even_who_ignores_the_warning(session: Path) -> None:
    def work() -> None:
        signal.signal(signal.SIGXCPU, signal.SIG_IGN)
        while True:
            pass

    with pytest.raises(Killed, match=str(int(signal.SIGKILL))):
        confined(session, work, change=lambda how: replace(how, cpu_seconds=1))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_becomes_the_user_of_the_session(session: Path) -> None:
    open_to_others(session)

    def work() -> list[object]:
        Path("new").write_text("x")
        picture = (session / "in" / "picture").read_text()
        return [os.getresuid(), os.getresgid(), os.getgroups(), picture]

    assert confined(session, work, uid=54321) == [[54321] * 3, [54321] * 3, [], "picture"]
    assert (session / "ws" / "new").stat().st_uid == 54321


@WHO
def test_no_capability_is_left(session: Path, become: Callable[[], None]) -> None:
    """According to the kernel's own account of the process, read from outside."""

    def child(writer: int, reader: int) -> None:
        become()
        confine.drop_bounding_set()
        confine.confine(layers(), writable=str(session / "ws"), readable=str(session / "in"), uid=None)
        os.write(writer, b".")
        os.read(reader, 1)

    if outcome(in_child, become) != "done":
        pytest.skip("this machine has no user namespaces")
    ready, end = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            child(ready[1], end[0])
        finally:
            os._exit(0)
    os.close(ready[1])
    assert os.read(ready[0], 1) == b"."
    lines = (Path(f"/proc/{pid}") / "status").read_text().splitlines()
    os.write(end[1], b".")
    os.waitpid(pid, 0)
    for fd in (ready[0], *end):
        os.close(fd)
    status = {name: value.strip() for name, value in (line.split(":", 1) for line in lines)}
    assert {status[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Amb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"], status["Threads"]) == ("1", "2", "1")
    if become is nothing and os.geteuid() == 0:
        assert status["CapBnd"] == "0" * 16


def test_the_descriptors_of_the_rules_are_closed(session: Path) -> None:
    def work() -> list[int]:
        return [fd for fd in range(256) if outcome(os.fstat, fd) == "done"]

    assert confined(session, work) == in_child(work)


def test_it_dies_with_its_parent(session: Path) -> None:
    reader, writer = os.pipe()

    def parent() -> None:
        ready = os.pipe()
        if os.fork() == 0:
            confine.confine(layers(), writable=str(session / "ws"), readable=str(session / "in"), uid=None)
            os.write(ready[1], b".")
            time.sleep(60)
            os._exit(0)
        os.read(ready[0], 1)

    begin = time.monotonic()
    in_child(parent)
    os.close(writer)
    with open(reader, "rb") as pipe:
        assert pipe.read() == b""
    assert time.monotonic() - begin < 30


def test_every_step_that_fails_is_an_error(session: Path) -> None:
    assert outcome(confined, session, nothing, change=lambda how: replace(how, landlock_abi=ABI)) == "done"
    with pytest.raises(AssertionError, match="FileNotFoundError"):
        confined(session / "missing", nothing)
    with pytest.raises(AssertionError, match="landlock_add_rule: "):
        confined(
            session, nothing, change=lambda how: replace(how, rules=(landlock.Rule(999, landlock.READ),))
        )
    with pytest.raises(AssertionError, match="PermissionError"):
        confined(session, nothing, become_nobody_special, uid=54321)


@WHO
@pytest.mark.parametrize("abi", sorted({1, ABI}))
def test_the_self_test_passes_on_a_confined_session(
    session: Path, become: Callable[[], None], abi: int
) -> None:
    how = replace(layers(), landlock_abi=abi)

    def work() -> str:
        confine.self_test(how, outside=OUTSIDE, files=True)
        return "passed"

    assert confined(session, work, become, change=lambda how: replace(how, landlock_abi=abi)) == "passed"
    assert list((session / "ws").iterdir()) == []


def findings(
    session: Path, change: Callable[[confine.Confinement], confine.Confinement], *, uid: int | None = None
) -> str:
    """The findings of the self test, for all layers, on a session that lacks some."""

    def work() -> str:
        with pytest.raises(RuntimeError) as finding:
            confine.self_test(how, outside=OUTSIDE, files=True)
        return str(finding.value)

    how = layers()
    return str(confined(session, work, change=change, uid=uid))


def test_the_self_test_notices_a_missing_layer(session: Path) -> None:
    assert "it could read a file outside" in findings(session, lambda how: replace(how, landlock_abi=0))
    assert "it could make a socket" in findings(session, lambda how: replace(how, filter=None))

    def not_at_all() -> str:
        with pytest.raises(RuntimeError) as finding:
            confine.self_test(layers(), outside=OUTSIDE, files=True)
        return str(finding.value)

    if os.geteuid() == 0:
        assert "it holds capabilities" in in_child(not_at_all)


def test_the_self_test_notices_files_that_can_be_made_outside(session: Path) -> None:
    def change(how: confine.Confinement) -> confine.Confinement:
        return replace(how, rules=(*how.rules, landlock.rule(str(session), landlock.WRITE)))

    assert "it could make a file in .." in findings(session, change)
    assert sorted(path.name for path in session.iterdir()) == ["in", "ws"]


def leaky_filter(name: str, monkeypatch: pytest.MonkeyPatch) -> seccomp.Filter:
    """The filter, except that it allows one more call."""
    policy = seccomp._policy()
    policy[name] = policy["read"]
    monkeypatch.setattr(seccomp, "_policy", lambda: policy)
    return seccomp.Filter(platform.machine())


@pytest.mark.parametrize(
    ("name", "finding"), [("kill", "it could signal its parent"), ("clone", "it could fork")]
)
def test_the_self_test_notices_a_gap_in_the_filter(
    session: Path, monkeypatch: pytest.MonkeyPatch, name: str, finding: str
) -> None:
    leaky = leaky_filter(name, monkeypatch)
    # An old Landlock, which does not know signals: the filter alone must block them.
    assert finding in findings(session, lambda how: replace(how, filter=leaky, landlock_abi=1))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_self_test_notices_the_gap_behind_a_user_of_its_own(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that may not signal its parent anyway could still reach other sessions of the same user."""
    open_to_others(session)
    leaky = leaky_filter("kill", monkeypatch)
    change = lambda how: replace(how, filter=leaky, landlock_abi=1)  # noqa: E731
    assert "it could signal its group" in findings(session, change, uid=54321)


def test_what_no_layer_promises_is_not_tested(session: Path) -> None:
    bare = replace(layers(), landlock_abi=0, filter=None)

    def work() -> str:
        confine.self_test(bare, outside=OUTSIDE, files=False)
        return "passed"

    assert confined(session, work, change=lambda how: replace(how, landlock_abi=0, filter=None)) == "passed"


def test_children_inherit_the_place_at_the_front_of_the_queue() -> None:
    def work() -> str:
        confine.be_first_to_go()
        return str(in_child(lambda: Path("/proc/self/oom_score_adj").read_text()))

    assert in_child(work) == "1000\n"


def test_the_address_space_is_the_one_that_the_kernel_counts() -> None:
    def work() -> str:
        resource.setrlimit(resource.RLIMIT_AS, (confine.address_space() + 64 * MIB,) * 2)
        # malloc may return memory that was freed before, which the kernel has already counted.
        mmap.mmap(-1, 32 * MIB).close()
        with pytest.raises(OSError, match="Cannot allocate memory"):
            mmap.mmap(-1, 96 * MIB)
        return "held"

    assert in_child(work) == "held"
