"""The filter decides every call as a plain list says, on both architectures, and is effective on this one."""

import ctypes
import errno
import faulthandler
import fcntl
import mmap
import os
import platform
import re
import resource
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.guest.children import (
    Killed,
    give_up_capabilities,
    in_child,
    outcome,
    promise_no_new_privileges,
)
from vtune.sandbox.guest import linux, seccomp
from vtune.sandbox.guest.syscalls import TABLES

PID = 4321
MACHINES = pytest.mark.parametrize("machine", sorted(TABLES))
HERE = pytest.mark.skipif(not seccomp.supported(platform.machine()), reason="no filter for this machine")
HEADERS = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": "/usr/include/asm-generic/unistd.h",
}

ALLOWED = set(
    """
    access brk capget chdir clock_getres clock_gettime clock_nanosleep close close_range
    copy_file_range creat dup dup2 dup3 epoll_create1 epoll_ctl epoll_pwait epoll_wait eventfd2 exit
    exit_group faccessat faccessat2 fadvise64 fchdir fdatasync fstat fstatfs fsync ftruncate futex
    getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer getpgrp getpid getppid
    getrandom getresgid getresuid getrlimit getrusage gettid gettimeofday getuid lseek lstat madvise
    membarrier mkdir mkdirat mmap mprotect mremap msync munmap nanosleep newfstatat pause pipe pipe2 poll
    ppoll pread64 preadv preadv2 pselect6 pwrite64 pwritev pwritev2 read readlink readlinkat readv rename
    renameat restart_syscall rmdir rseq rt_sigprocmask rt_sigreturn sched_get_priority_max
    sched_get_priority_min sched_yield select sendfile set_robust_list set_tid_address sigaltstack
    stat statfs statx sysinfo time times umask uname unlink unlinkat write writev
    """.split()  # noqa: SIM905
)
PRETENDED = set(
    """
    chmod chown fchmod fchmodat fchmodat2 fchown fchownat futimesat lchown utime utimensat utimes
    """.split()  # noqa: SIM905
)
LISTED = {  # name: (index of an int argument, values that pass, the error for others)
    "kill": (0, {PID}, errno.EPERM),
    "tgkill": (0, {PID}, errno.EPERM),
    "getpgid": (0, {0, PID}, errno.EPERM),
    "getsid": (0, {0, PID}, errno.EPERM),
    "getpriority": (1, {0, PID}, errno.EPERM),
    "sched_getaffinity": (0, {0, PID}, errno.EPERM),
    "sched_getparam": (0, {0, PID}, errno.EPERM),
    "sched_getscheduler": (0, {0, PID}, errno.EPERM),
    "fcntl": (1, {0, 1, 2, 3, 4, 1030, 1032}, errno.EPERM),
    "setitimer": (0, {0}, errno.EPERM),
    "ioctl": (1, {0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451}, errno.ENOTTY),
    "prctl": (0, {3, 15, 16, 21, 23, 0x53564D41}, errno.EPERM),
    "arch_prctl": (0, {0x1003, 0x1004}, errno.EPERM),
    "socketpair": (0, {socket.AF_UNIX}, errno.EPERM),
    "renameat2": (4, {0, 1, 2}, errno.EPERM),
}
LOCKS = {5, 6, 7, 36, 37, 38}
"""fcntl commands."""
KEPT_SIGNALS = {14, 18}
"""SIGALRM and SIGCONT."""
WITHOUT_POINTER = {"prlimit64": 2, "sendto": 4, "recvfrom": 4}
OPEN_FLAGS = {"open": 1, "openat": 2}
ERRORS = {
    "clone": errno.EAGAIN,
    "clone3": errno.ENOSYS,
    "openat2": errno.ENOSYS,
    "fallocate": errno.EOPNOTSUPP,
    "flock": errno.ENOSYS,
}
VALUES = sorted(
    {
        0,
        1,
        2,
        3,
        4,
        7,
        8,
        9,
        16,
        1031,
        0o1000,
        0o1001,
        0o1002,
        0o1003,
        0o101,
        0x5402,
        0x5412,
        0x5452,
        PID - 1,
        PID + 1,
    }
    | {value for _, values, _ in LISTED.values() for value in values}
    | LOCKS
    | KEPT_SIGNALS
    | {PID + (1 << 32), 1 << 32, (1 << 64) - PID, (1 << 64) - 1}
)


def decide(program: bytes, number: int, arguments: tuple[int, ...], arch: int) -> tuple[int, int]:
    """The filter's decision, and the number of steps: a small model of the kernel's packet filter machine."""
    data = struct.pack("<iIQ6Q", ctypes.c_int(number).value, arch, 0, *arguments)
    accumulator = position = steps = 0
    while True:
        code, if_true, if_false, value = struct.unpack_from("<HBBI", program, 8 * position)
        position += 1
        steps += 1
        if code == 0x06:
            return value, steps
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif code == 0x54:
            accumulator &= value
        elif code == 0x05:
            position += value
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[
                code
            ]
            position += if_true if holds else if_false


def refused(number: int) -> int:
    return 0x00050000 | number


def expected(name: str | None, arguments: tuple[int, ...]) -> int:
    answer = refused(errno.EPERM)
    if name in ALLOWED:
        answer = 0x7FFF0000
    elif name in PRETENDED:
        answer = refused(0)
    elif name in ERRORS:
        answer = refused(ERRORS[name])
    elif name == "fcntl" and arguments[1] % (1 << 32) in LOCKS:
        answer = refused(errno.ENOSYS)
    elif name == "rt_sigaction":
        kept = arguments[0] % (1 << 32) in KEPT_SIGNALS and arguments[1]
        answer = refused(errno.EPERM) if kept else 0x7FFF0000
    elif name in LISTED:
        index, values, error = LISTED[name]
        answer = 0x7FFF0000 if arguments[index] % (1 << 32) in values else refused(error)
    elif name in WITHOUT_POINTER:
        foreign = name == "prlimit64" and arguments[0] % (1 << 32) not in (0, PID)
        allowed = not arguments[WITHOUT_POINTER[name]] and not foreign
        answer = 0x7FFF0000 if allowed else refused(errno.EPERM)
    elif name in OPEN_FLAGS:
        flags = arguments[OPEN_FLAGS[name]]
        harmless = not flags & os.O_TRUNC or flags & os.O_ACCMODE in (os.O_WRONLY, os.O_RDWR)
        answer = 0x7FFF0000 if harmless else refused(errno.EPERM)
    elif name is not None and name.endswith("xattr"):
        answer = refused(errno.ENOTSUP)
    return answer


def patterns() -> Iterator[tuple[int, ...]]:
    """Each value in all places, and in each place on its own."""
    for value in VALUES:
        yield (value,) * 6
        for index in range(6):
            yield tuple(value if place == index else 0 for place in range(6))


@MACHINES
def test_every_call_is_decided_as_the_list_says(machine: str) -> None:
    program = seccomp.Filter(machine).program(PID)
    names = {number: name for name, number in TABLES[machine].items()}
    arguments = list(patterns())
    wrong = [
        (number, names.get(number), values)
        for number in range(601)
        for values in (
            arguments if names.get(number) not in ALLOWED | PRETENDED | {None} else arguments[::29]
        )
        if decide(program, number, values, seccomp.AUDIT_ARCH[machine])[0]
        != expected(names.get(number), values)
    ]
    assert wrong == []


def test_the_list_has_no_unknown_name() -> None:
    names = ALLOWED | PRETENDED | set(LISTED) | set(WITHOUT_POINTER) | set(OPEN_FLAGS) | set(ERRORS)
    names.add("rt_sigaction")
    assert names <= set(TABLES["x86_64"])
    # The newer architecture only has calls that take a folder, and no fork.
    old = "access arch_prctl chmod chown creat dup2 epoll_wait futimesat getdents getpgrp lchown lstat"
    old += " mkdir open pause pipe poll readlink rename rmdir select stat time unlink utime utimes"
    assert names - set(TABLES["aarch64"]) == set(old.split())


@MACHINES
def test_another_machine_or_interface_is_killed(machine: str) -> None:
    program = seccomp.Filter(machine).program(PID)
    own = seccomp.AUDIT_ARCH[machine]
    read = TABLES[machine]["read"]
    kill = 0x80000000
    for arch in {0x40000003, *seccomp.AUDIT_ARCH.values()} - {own}:
        assert decide(program, read, (0,) * 6, arch)[0] == kill
    assert decide(program, read | 0x40000000, (0,) * 6, own)[0] == kill
    assert decide(program, -1, (0,) * 6, own)[0] == kill


@MACHINES
def test_no_call_takes_many_steps(machine: str) -> None:
    program = seccomp.Filter(machine).program(PID)
    steps = [decide(program, number, (0,) * 6, seccomp.AUDIT_ARCH[machine])[1] for number in range(601)]
    assert max(steps) <= 45  # the longest list of options, after the search


@pytest.mark.parametrize("machine", sorted(HEADERS))
def test_the_numbers_are_those_of_the_kernel_headers(machine: str) -> None:
    header = Path(HEADERS[machine])
    if not header.exists():
        pytest.skip(f"{header} is not installed")
    text = header.read_text()
    numbers = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+)\s+(\d+)", text)}
    if machine == "aarch64":  # calls that differ on 32-bit machines are written differently
        numbers |= {name: int(number) for name, number in re.findall(r"#define __NR3264_(\w+)\s+(\d+)", text)}
        numbers["newfstatat"] = numbers.pop("fstatat")
    table = TABLES[machine]
    newer = {name for name in table if name not in numbers}
    assert newer <= {"fchmodat2", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"}
    assert {name: numbers[name] for name in table if name in numbers} == {
        name: number for name, number in table.items() if name not in newer
    }


def test_an_unknown_machine_has_no_filter() -> None:
    assert [seccomp.supported(name) for name in ("riscv64", "i686", "x86_64", "aarch64")] == [
        False,
        False,
        True,
        True,
    ]


def filtered(*actions: tuple[object, ...]) -> list[str]:
    """The outcome of each action (function and arguments) in a filtered child."""

    def work() -> list[str]:
        load()
        return [outcome(*action) for action in actions]  # type: ignore[arg-type]

    result: list[str] = in_child(work)
    assert len(result) == len(actions) > 0
    return result


def load() -> None:
    promise_no_new_privileges()
    seccomp.Filter(platform.machine()).load(os.getpid())


@HERE
def test_no_sockets_but_pairs() -> None:
    families = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, 16, 17, 40)
    assert filtered(*((socket.socket, family) for family in families)) == ["EPERM"] * len(families)

    def pair() -> str:
        load()
        one, other = socket.socketpair()
        one.sendall(b"through")
        return other.recv(10).decode()

    assert in_child(pair) == "through"


@HERE
def test_no_process_thread_or_program() -> None:
    assert filtered((os.fork,), (os.execv, "/bin/true", ["true"])) == ["EAGAIN", "EPERM"]
    assert filtered((subprocess.run, ["/bin/true"]))[0] in ("EPERM", "EAGAIN")

    def thread() -> str:
        load()
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threading.Thread(target=print).start()
        return "refused"

    assert in_child(thread) == "refused"


@HERE
def test_no_signal_but_to_oneself() -> None:
    parent = os.getpid()

    def work() -> list[str]:
        load()
        me = os.getpid()
        return [outcome(os.kill, pid, 0) for pid in (parent, 0, -1, 1, me)]

    assert in_child(work) == ["EPERM", "EPERM", "EPERM", "EPERM", "done"]
    with pytest.raises(Killed, match=str(int(signal.SIGABRT))):
        in_child(lambda: (load(), faulthandler.disable(), os.abort()))


@HERE
def test_metadata_stays_as_it_was_and_nobody_complains(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("x")
    victim.chmod(0o640)
    before = victim.stat()
    path = str(victim)
    assert (
        filtered((os.chmod, path, 0o777), (os.chown, path, 12345, 12345), (os.utime, path, (1, 1)))
        == ["done"] * 3
    )
    after = victim.stat()
    assert (after.st_mode, after.st_uid, after.st_mtime_ns) == (
        before.st_mode,
        before.st_uid,
        before.st_mtime_ns,
    )
    assert filtered((os.setxattr, path, "user.x", b"1"), (os.listxattr, path)) == ["ENOTSUP"] * 2


@HERE
def test_no_links_pipes_devices_or_hidden_memory(tmp_path: Path) -> None:
    new = str(tmp_path / "new")
    (tmp_path / "old").write_text("x")
    actions = (
        (os.symlink, "/etc", new),
        (os.link, str(tmp_path / "old"), new),
        (os.mkfifo, new),
        (os.mknod, new),
        (os.memfd_create, "x"),
        (os.chroot, str(tmp_path)),
        (os.nice, 1),
    )
    assert filtered(*actions) == ["EPERM"] * len(actions)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


@HERE
@pytest.mark.parametrize("mode", [os.O_RDONLY, os.O_ACCMODE], ids=["reading", "neither"])
def test_what_is_not_opened_for_writing_is_not_truncated(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "file"
    file.write_text("content")
    assert filtered((os.open, str(file), mode | os.O_TRUNC)) == ["EPERM"]
    assert filtered((os.truncate, str(file), 0)) == ["EPERM"]
    assert file.read_text() == "content"
    assert filtered((os.open, str(file), os.O_WRONLY | os.O_TRUNC)) == ["done"]
    assert file.read_text() == ""


@HERE
def test_limits_can_be_read_and_not_set() -> None:
    kind = resource.RLIMIT_CPU

    def work() -> list[str]:
        load()
        with pytest.raises((OSError, ValueError)):
            resource.setrlimit(kind, (1, 1))
        return [outcome(resource.getrlimit, kind), outcome(resource.prlimit, 0, kind)]

    assert in_child(work) == ["done", "done"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the 32-bit interface is one of x86")
def test_the_32_bit_interface_kills() -> None:
    def work() -> int:
        load()
        code = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"  # eax = 20 (getpid); int 0x80; ret
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
        return int(function())

    with pytest.raises(Killed, match=str(int(signal.SIGSYS))):
        in_child(work)


@HERE
def test_image_libraries_work_as_before(tmp_path: Path) -> None:
    import cv2
    import matplotlib as mpl
    import numpy as np
    import PIL.Image

    mpl.use("Agg")
    from matplotlib import pyplot

    cv2.setNumThreads(0)

    def work() -> list[str]:
        load()
        os.chdir(tmp_path)
        pixels = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)
        PIL.Image.fromarray(pixels).resize((900, 900)).save("pil.png")
        with PIL.Image.open("pil.png") as picture:
            picture.convert("L").rotate(30).save("pil.jpg")
        assert cv2.imwrite("cv.png", cv2.GaussianBlur(cv2.imread("pil.jpg"), (5, 5), 0))
        np.save("array.npy", np.linalg.svd(pixels[..., 0].astype(float))[1])
        assert np.load("array.npy", mmap_mode="r").shape == (300,)
        figure = pyplot.figure()
        figure.gca().plot([1, 2])
        figure.savefig("figure.png")
        Path("folder").mkdir()
        Path("pil.jpg").rename("folder/moved.jpg")
        Path("folder/moved.jpg").unlink()
        Path("folder").rmdir()
        return sorted(path.name for path in Path().iterdir())

    assert in_child(work) == ["array.npy", "cv.png", "figure.png", "pil.png"]


@HERE
def test_a_timer_interrupts() -> None:
    def work() -> str:
        seen: list[int] = []
        signal.signal(signal.SIGALRM, lambda number, frame: seen.append(number))
        load()
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while not seen:
            pass
        return signal.Signals(seen[0]).name

    assert in_child(work) == "SIGALRM"


@HERE
def test_nobody_else_takes_over_what_wakes_or_ends_a_call() -> None:
    def work() -> list[str]:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        load()
        kept = [outcome(signal.signal, number, signal.SIG_IGN) for number in (signal.SIGALRM, signal.SIGCONT)]
        others = [outcome(signal.signal, signal.SIGUSR1, signal.SIG_IGN), outcome(signal.getsignal, 14)]
        others_of_cpu_time = (signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
        timers = [outcome(signal.setitimer, which, 1.0) for which in others_of_cpu_time]
        return [*kept, *others, *timers]

    assert in_child(work) == ["EPERM", "EPERM", "done", "done", "EPERM", "EPERM"]


@HERE
def test_a_session_has_no_locks(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    def work() -> list[str]:
        fd = os.open(tmp_path / "file", os.O_RDWR)
        load()
        return [
            outcome(fcntl.flock, fd, fcntl.LOCK_SH),
            outcome(fcntl.flock, fd, fcntl.LOCK_UN),
            outcome(fcntl.lockf, fd, fcntl.LOCK_EX | fcntl.LOCK_NB),
        ]

    assert in_child(work) == ["ENOSYS"] * 3


def test_a_refusal_of_the_kernel_is_an_error() -> None:
    def work() -> str:
        # Neither the right to load a filter nor the promise that replaces it.
        give_up_capabilities()
        return outcome(seccomp.Filter(platform.machine()).load, os.getpid())

    assert in_child(work) == "EACCES"


def test_a_call_that_the_table_lacks_is_an_error() -> None:
    assert outcome(linux.syscall, "no_such_call") == "ENOSYS"
