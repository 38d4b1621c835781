"""The attack runner itself: a check that cannot fail would let everything pass."""

import asyncio
import contextlib
import ctypes
import io
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtune.errors import DataError, SandboxUnavailable
from vtune.sandbox import Execution, Limits, Session
from vtune.sandbox.attacks import checks, facts
from vtune.sandbox.attacks.calls import stopped
from vtune.sandbox.attacks.firing_range import Range
from vtune.sandbox.attacks.placeholders import PATTERNS, fill, kinds
from vtune.sandbox.attacks.runner import Result, Tally, ended_by, run_suite
from vtune.sandbox.attacks.suite import read_suite
from vtune.sandbox.attacks.world import SECRET_BYTES, VARIABLE, Surroundings, World, _public_folders
from vtune.sandbox.types import Isolation, Layer

pytestmark = pytest.mark.usefixtures("alone")

HEAD = "# MUST NOT: harm a file\n# CHECK: canary tree unchanged\n"
HERE = Path("a.py")
LIMITS = Limits()
OK = Execution(status="ok")


def suite(folder: Path, **codes: str) -> Path:
    """A folder with one attack per name."""
    for name, code in codes.items():
        (folder / f"{name}.py").write_text(code)
    return folder


# ---------------------------------------------------------------- suites


def test_headers_are_read_until_the_code_begins(tmp_path: Path) -> None:
    head = "# MUST NOT: fork: never\n# CHECK: refused\n# SOFT: 6.5\n# WEAK-OK: 0\n# LAYER: seccomp\n"
    (attack,) = read_suite(suite(tmp_path, **{"07_fork": head + "x = 1\n# SOFT: 9\n"}))
    assert (attack.name, attack.must_not, attack.check) == ("07_fork", "fork: never", "refused")
    assert (attack.soft, attack.weak_ok, attack.layer) == (6.5, False, "seccomp")


@pytest.mark.parametrize(
    ("head", "check"),
    [
        ("# CHECK: refused\n# CHECK: canary unchanged\n", "refused; canary unchanged"),
        ("# CHECK: canary unchanged,\n#        refused\n", "canary unchanged, refused"),
        ("# CHECK:\n#\trefused,\n#   INFO: x\n", "refused, INFO: x"),
        ("# CHECK: canary unchanged\n#   (DONE is printed where it was refused)\n", "canary unchanged"),
        ("# CHECK: a\n# said by the way\n#   also\n\n#   and\n", "a"),
    ],
)
def test_no_line_of_a_header_is_lost(tmp_path: Path, head: str, check: str) -> None:
    (attack,) = read_suite(suite(tmp_path, a=f"# MUST NOT: x\n{head}# MUST NOT: y\nprint('DONE')\n"))
    assert (attack.must_not, attack.check) == ("x; y", check)


def test_a_byte_order_mark_is_no_part_of_a_header(tmp_path: Path) -> None:
    (attack,) = read_suite(suite(tmp_path, a="\ufeff" + HEAD))
    assert attack.must_not == "harm a file"
    assert attack.source == HEAD


def test_what_a_header_leaves_out_has_a_default(tmp_path: Path) -> None:
    (attack,) = read_suite(suite(tmp_path, a=HEAD + "pass\n"))
    assert (attack.soft, attack.weak_ok, attack.layer) == (2.0, True, "")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("# CHECK: x\npass", "no `# MUST NOT:` line"),
        ("# MUST NOT: x\npass", "no `# CHECK:` line"),
        ("pass\n" + HEAD, "no `# MUST NOT:` line"),
        ("# MUST NOT:\n# CHECK: x\npass", "no `# MUST NOT:` line"),
        (HEAD + "# SOFT: soon\npass", "`# SOFT: soon` is not a time limit"),
        (HEAD + "# SOFT: 0\npass", "`# SOFT: 0` is not a time limit"),
        (HEAD + "# SOFT: nan\npass", "`# SOFT: nan` is not a time limit"),
        (HEAD + "# SOFT: 1\n# SOFT: 2\npass", "`# SOFT: 1; 2` is not a time limit"),
        (HEAD + "# WEAK-OK: 0\n# WEAK-OK: 1\npass", "`# WEAK-OK: 0; 1` is neither 0 nor 1"),
    ],
)
def test_a_bad_file_is_named_with_its_remedy(tmp_path: Path, code: str, says: str) -> None:
    suite(tmp_path, good=HEAD + "pass", wrong=code)
    with pytest.raises(DataError) as caught:
        read_suite(tmp_path)
    assert says in caught.value.what
    assert caught.value.where.endswith("wrong.py")
    assert caught.value.fix


def test_a_folder_without_attacks_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(DataError, match="no attacks found here"):
            read_suite(folder)


def test_attacks_are_chosen_with_or_without_their_number(tmp_path: Path) -> None:
    suite(tmp_path, **{f"{number}_{name}": HEAD for number, name in ((1, "a"), (2, "b"), (3, "c"))})
    assert [attack.name for attack in read_suite(tmp_path, ["3_c", "a"])] == ["1_a", "3_c"]
    with pytest.raises(DataError, match="no attack is named d, e") as caught:
        read_suite(tmp_path, ["a", "e", "d"])
    assert caught.value.fix == "give the names of files there, without .py"
    with pytest.raises(DataError, match="no attack is named 3_cc") as caught:
        read_suite(tmp_path, ["3_cc"])
    assert caught.value.fix == "perhaps 3_c"


# ---------------------------------------------------------------- placeholders


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("CANARY", "canary"),
        ("TOKEN", "token8"),
        ("TOKEN8", "token8"),
        ("SECRET", "secret_file"),
        ("PORT", "port"),
        ("UDPPORT", "port"),
        ("TCP", "port"),
        ("BROKER", "broker_pid"),
        ("ZYG", "zygote_pid"),
        ("ZYGPID", "zygote_pid"),
        ("VICTIM", "victim_pid"),
        ("OTHERPID", "victim_pid"),
        ("SIBPID", "sibling_pid"),
        ("SIBLING", "sibling_workspace"),
        ("SIBWS", "sibling_workspace"),
        ("USOCK", "stream_socket"),
        ("UNIX", "stream_socket"),
        ("DGRAM", "datagram_socket"),
        ("DGRAMSOCK", "datagram_socket"),
        ("ABSTRACT", "abstract_socket"),
        ("ABS", "abstract_socket"),
        ("ROOT", "root"),
        ("WS", "workspace"),
        ("SITE", "site_packages"),
        ("PYTHON", "python"),
        ("TARGETDIR", "canary"),
        ("HOSTFILE", "victim_file"),
        ("VICTIMPATH", "victim_file"),
    ],
)
def test_a_name_is_read_as_what_it_looks_like(name: str, kind: str) -> None:
    assert kinds(f"x = '{{{{{name}}}}}'", HERE) == {name: kind}


VALUES = {kind: f"<{kind}>" for _, kind in PATTERNS}


@given(st.from_regex(r"[A-Z][A-Z0-9_]{0,12}", fullmatch=True))
def test_a_placeholder_is_filled_in_or_refused_by_name(name: str) -> None:
    source = f"a = '{{{{{name}}}}}'; b = {{{{1}}}}"
    if any(re.fullmatch(pattern, name) for pattern, _ in PATTERNS):
        assert fill(source, HERE, VALUES) in {f"a = '{value}'; b = {{{{1}}}}" for value in VALUES.values()}
    else:
        with pytest.raises(DataError, match=re.escape(f"{{{{{name}}}}}")):
            fill(source, HERE, VALUES)


# ---------------------------------------------------------------- the world and the checks on it


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world whose site-packages may be poisoned."""
    site = tmp_path_factory.mktemp("site-packages")
    (site / "numpy").mkdir()
    (site / "numpy" / "__init__.py").write_text("# numpy\n")
    (site / "old.pth").write_text("# old\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sysconfig.get_path", lambda name: str(site))
        with World() as world:
            yield world


def victim(world: World) -> int:
    return world.victim.pid


def settle() -> None:
    """Give a signal time to arrive."""
    time.sleep(0.3)


def strays(
    before: Surroundings, after: Surroundings, world: World, text: str = "", writable: tuple[Path, ...] = ()
) -> list[Path]:
    found = checks.strays(before, after, text=text, token8=world.token[:8], uid=None, writable=writable)
    return list(found)


ON_CANARIES: dict[str, Callable[[Path], object]] = {
    "delete": lambda canary: (canary / "victim.txt").unlink(),
    "overwrite": lambda canary: (canary / "victim.txt").write_text("x"),
    "append": lambda canary: (canary / "secret.txt").open("a").write("x"),
    "create": lambda canary: (canary / "new.txt").touch(),
    "create below": lambda canary: (canary / "inner" / "new.txt").touch(),
    "rename": lambda canary: (canary / "victim.txt").rename(canary / "other.txt"),
    "mode": lambda canary: (canary / "victim.txt").chmod(0o600),
    "mode of a folder": lambda canary: canary.chmod(0o700),
    "times": lambda canary: os.utime(canary / "victim.txt", (1, 1)),
    "link": lambda canary: os.link(canary / "victim.txt", canary.parent / "link"),
    "attribute": lambda canary: os.setxattr(canary / "victim.txt", "user.x", b"1"),
    "remove all": lambda canary: subprocess.run(["rm", "-r", str(canary)], check=True),
    "a socket": lambda canary: (canary.parent / "stream.sock").unlink(),
}


@pytest.mark.parametrize("harm", ON_CANARIES.values(), ids=ON_CANARIES)
def test_every_change_of_a_host_file_is_seen_and_repaired(
    world: World, harm: Callable[[Path], object]
) -> None:
    before = world.look()
    harm(world.canary)
    after = world.look()
    assert list(checks.canary(before, after))
    assert not [*checks.victim(before, after), *checks.runtime(before, after)]
    (world.folder / "link").unlink(missing_ok=True)
    world.repair(before, [])
    repaired = world.look().canary
    kept = [name for name in before.canary if name.startswith("canary/")]
    assert len(kept) > 3
    assert {name: repaired[name] for name in kept} == {name: before.canary[name] for name in kept}


def test_a_change_of_owner_is_seen(world: World) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give files away")
    before = world.look()
    os.chown(world.canary / "victim.txt", 12345, 12345)
    assert list(checks.canary(before, world.look())) == ["host file: canary/victim.txt has another owner"]
    world.repair(before, [])


def test_nothing_done_is_nothing_found(world: World) -> None:
    before, after = world.look(), world.look()
    found = [checks.canary, checks.victim, checks.runtime, checks.devices, checks.shared]
    assert [line for check in found for line in check(before, after)] == []
    assert (strays(before, after, world), world.listeners.reached()) == ([], [])


ON_VICTIM: dict[str, Callable[[int], object]] = {
    "kill": lambda pid: os.kill(pid, signal.SIGKILL),
    "stop": lambda pid: os.kill(pid, signal.SIGSTOP),
    "rank": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
    "policy": lambda pid: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)),
}


@pytest.mark.parametrize("harm", ON_VICTIM.values(), ids=ON_VICTIM)
def test_harm_to_a_foreign_process_is_seen_and_repaired(world: World, harm: Callable[[int], object]) -> None:
    before = world.look()
    harm(victim(world))
    settle()
    after = world.look()
    assert list(checks.victim(before, after))
    assert not list(checks.canary(before, after))
    world.repair(before, [])
    again = world.look()
    assert not list(checks.victim(again, world.look()))
    assert again.victim is not None


def test_a_process_that_is_tied_to_a_core_is_seen(world: World) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one core only")
    before = world.look()
    os.sched_setaffinity(victim(world), {min(os.sched_getaffinity(0))})
    assert list(checks.victim(before, world.look()))
    world.repair(before, [])


ON_RUNTIME: dict[str, Callable[[Path], object]] = {
    "a .pth file": lambda site: (site / "evil.pth").touch(),
    "a package": lambda site: (site / "evil").mkdir(),
    "a changed module": lambda site: (site / "numpy" / "__init__.py").write_text("evil"),
    "a changed .pth file": lambda site: (site / "old.pth").write_text("import os"),
    "a missing .pth file": lambda site: (site / "old.pth").unlink(),
}


@pytest.mark.parametrize("harm", ON_RUNTIME.values(), ids=ON_RUNTIME)
def test_a_poisoned_runtime_is_seen_and_repaired(world: World, harm: Callable[[Path], object]) -> None:
    before = world.look()
    harm(world.site_packages)
    assert list(checks.runtime(before, world.look()))
    world.repair(before, [])
    repaired = world.look()
    assert repaired.runtime_names == before.runtime_names
    contents = {name: entry.content for name, entry in repaired.runtime.items()}
    assert contents == {name: entry.content for name, entry in before.runtime.items()}


def test_a_device_with_another_mode_is_seen(world: World) -> None:
    before = world.look()
    assert "/dev/null" in before.devices
    _, owner, group = before.devices["/dev/null"]
    after = replace(before, devices=before.devices | {"/dev/null": (0o600, owner, group)})
    assert list(checks.devices(before, after)) == ["/dev/null has another mode or owner"]


def test_files_left_in_public_folders_are_laid_to_the_attack_by_name(world: World) -> None:
    before = world.look()
    mine = [Path("/tmp", name) for name in (f"x-{world.token[:8]}", "vt_Evil_1", "told-of-42")]
    foreign = Path("/tmp/somebody-else-vtune")
    try:
        for path in (*mine, foreign):
            path.touch()
        found = strays(before, world.look(), world, text="wrote told-of-42")
    finally:
        world.repair(before, mine)
        foreign.unlink()
    assert sorted(found) == sorted(mine)
    assert not any(path.exists() for path in mine)


def test_what_python_names_is_laid_to_the_attack_only_where_a_session_can_write(world: World) -> None:
    before = world.look()
    semaphore = Path("/tmp/sem.mp-vtune-test")
    try:
        semaphore.touch()
        after = world.look()
    finally:
        semaphore.unlink()
    assert strays(before, after, world, writable=(Path("/dev/shm"),)) == []
    assert strays(before, after, world, writable=(semaphore.parent,)) == [semaphore]


def test_a_system_v_object_is_seen_and_removed(world: World) -> None:
    before = world.look()
    libc = ctypes.CDLL(None)
    made = (libc.shmget(0, 4096, 0o600), libc.semget(0, 1, 0o600), libc.msgget(0, 0o600))
    assert min(made) >= 0
    assert len(list(checks.shared(before, world.look()))) == 3
    world.repair(before, [])
    assert list(checks.shared(before, world.look())) == []


def knock(kind: int, family: int, address: object) -> None:
    with socket.socket(family, kind) as caller:
        caller.connect(address)
        if kind == socket.SOCK_DGRAM:
            caller.send(b"x")


def test_every_listener_notices_a_visitor_once(world: World) -> None:
    listeners = world.listeners
    stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
    visits = {
        "TCP port": (stream, socket.AF_INET, ("127.0.0.1", listeners.port)),
        "UDP port": (datagram, socket.AF_INET, ("127.0.0.1", listeners.port)),
        "Unix socket": (stream, socket.AF_UNIX, str(listeners.stream_path)),
        "Unix datagram socket": (datagram, socket.AF_UNIX, str(listeners.datagram_path)),
        "abstract Unix socket": (stream, socket.AF_UNIX, f"\0{listeners.abstract}"),
    }
    for kind, visit in visits.items():
        knock(*visit)
        assert listeners.reached() == [kind]
        assert list(checks.reached([kind])) == [f"reached a {kind}"]
    assert listeners.reached() == []


def test_the_world_leaves_nothing_behind() -> None:
    before = os.environ.get(VARIABLE)
    with World() as world:
        assert os.environ[VARIABLE] == world.token
        assert (world.canary / "secret.txt").stat().st_size == SECRET_BYTES
        folder, pid = world.folder, victim(world)
    assert (folder.exists(), facts.process(pid), os.environ.get(VARIABLE)) == (False, None, before)


# ---------------------------------------------------------------- what came back


def leaks(world: World, execution: Execution, workspace: Path) -> list[str]:
    return list(checks.leaked(execution, workspace, needle=world.needle, picture=world.secret_picture()))


def test_the_secret_is_found_wherever_it_comes_out(world: World, tmp_path: Path) -> None:
    stored = (world.canary / "secret.png").read_bytes()
    anew = io.BytesIO()
    PIL.Image.open(io.BytesIO(stored)).convert("RGBA").save(anew, "PNG")
    assert world.needle.encode() not in anew.getvalue()
    outs = [
        replace(OK, output=f"a {world.token} b"),
        replace(OK, error=world.token),
        replace(OK, images=(b"", stored)),
        replace(OK, images=(anew.getvalue(),)),
        replace(OK, names=(f"{world.token}.png",)),
    ]
    assert [len(leaks(world, execution, tmp_path)) for execution in outs] == [1] * len(outs)
    assert leaks(world, replace(OK, output=world.token[:8], images=(b"no picture",)), tmp_path) == []


def test_the_secret_is_found_in_the_workspace(world: World, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(world.canary / "secret.txt")
    assert leaks(world, OK, tmp_path) == []
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "copy.bin").write_bytes(b"\0" * 9 + world.token.encode())
    assert leaks(world, OK, tmp_path) == ["the secret is in the workspace, in 'copy.bin'"]


@pytest.mark.parametrize(
    ("check", "output", "fires"),
    [
        ("refused", "mount DONE 0", True),
        ("no new process; canary unchanged", "run DONE b''", True),
        ("no socket created", "16 DONE <socket>", True),
        ("MemoryError; host alive", "DONE 1000", True),
        ("refused", "mount refused OSError", False),
        ("canary tree unchanged", "chmod DONE None", False),
        ("refused", "ABANDONED", False),
        ("names of canary files absent from stdout", "['victim.txt']", True),
        ("names of canary files absent from stdout", "refused: '/tmp/canary'", False),
        ("canary tree unchanged", "refused: '/tmp/canary/victim.txt'", False),
        ("no foreign cmdline in stdout", "9 cmdline python train.py", True),
        ("refused", "9 cmdline python train.py", False),
        ("only this session affected; library import unaffected", "EVIL", True),
        ("only this session affected; library import unaffected", "fine", False),
    ],
)
def test_what_a_snippet_says_of_itself_counts_where_its_check_says_so(
    tmp_path: Path, check: str, output: str, fires: bool
) -> None:
    (attack,) = read_suite(suite(tmp_path, a=f"# MUST NOT: x\n# CHECK: {check}\n"))
    found = checks.disclosed(replace(OK, output=output), attack, command_line="python train.py")
    assert bool(list(found)) is fires


@pytest.mark.parametrize(
    ("check", "output", "fires"),
    [
        ("INFO: size absent", f"stat DONE ('SIZE', {SECRET_BYTES})", True),
        ("INFO: size absent", f"1{SECRET_BYTES}", False),
        ("INFO: size absent", "refused", False),
        ("canary unchanged\n# CHECK: INFO: size absent", f"{SECRET_BYTES}", True),
        ("refused", str(SECRET_BYTES), False),
    ],
)
def test_the_size_of_the_secret_counts_for_attacks_on_metadata(
    tmp_path: Path, check: str, output: str, fires: bool
) -> None:
    (attack,) = read_suite(suite(tmp_path, a=f"# MUST NOT: x\n# CHECK: {check}\n"))
    assert bool(list(checks.metadata(replace(OK, output=output), attack))) is fires


@pytest.mark.parametrize(
    "execution",
    [
        replace(OK, output="x" * 20_000),
        replace(OK, error="x" * 20_000),
        replace(OK, images=(b"",) * 6),
        replace(OK, images=(bytes((64 << 20) + 1),)),
    ],
    ids=["output", "error", "pictures", "bytes"],
)
def test_too_much_of_anything_is_seen(execution: Execution) -> None:
    assert len(list(checks.too_much(execution, LIMITS))) == 1
    assert list(checks.too_much(replace(OK, output="x" * LIMITS.output_chars), LIMITS)) == []


def test_a_late_call_is_seen() -> None:
    limits = Limits(seconds=2, grace=0.5)
    late = ["the call came back after 3.6 s; 3.5 s were allowed"]
    assert list(checks.late(3.6, limits, slowdown=1, waited=0)) == late
    assert list(checks.late(3.4, limits, slowdown=1, waited=0)) == []
    assert list(checks.late(12.4, limits, slowdown=10, waited=0)) == []
    assert list(checks.late(12.6, limits, slowdown=10, waited=0))
    assert list(checks.late(12.6, limits, slowdown=10, waited=0.2)) == []


def test_an_overfull_workspace_is_seen(tmp_path: Path) -> None:
    limits = Limits(workspace_files=1, workspace_mb=1)
    (tmp_path / "deep").mkdir()
    for number in range(20):
        (tmp_path / "deep" / str(number)).touch()
    assert facts.usage(tmp_path, most=100) == (21, os.lstat(tmp_path / "deep").st_blocks * 512)
    assert facts.usage(tmp_path, most=5)[0] == 5
    assert list(checks.overfilled(21, 0, limits)) == ["21 files in the workspace, whose quota is 1"]
    assert len(list(checks.overfilled(0, (4 << 20) + 1, limits))) == 1
    assert list(checks.overfilled(20, 4 << 20, limits)) == []


def test_a_changed_input_and_a_file_beside_the_workspace_are_seen(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "image_0.png").write_bytes(b"picture")
    inputs, beside = facts.tree(tmp_path / "in"), facts.names(tmp_path)
    assert not list(checks.inputs(inputs, facts.tree(tmp_path / "in")))
    (tmp_path / "in" / "image_0.png").write_bytes(b"another")
    (tmp_path / "d").mkdir()
    assert list(checks.inputs(inputs, facts.tree(tmp_path / "in")))
    assert list(checks.neighbour(inputs, facts.tree(tmp_path / "in")))
    assert list(checks.beside(beside, facts.names(tmp_path))) == ["beside the workspace: d is new"]
    assert list(checks.beside(beside, {"d"})) != []


def test_a_forged_answer_is_a_breach_and_an_honest_failure_is_none() -> None:
    assert list(checks.answered("42", replace(OK, output="42"))) == []
    assert list(checks.answered("42", replace(OK, output="")))
    assert list(checks.answered("42", replace(OK, status="infra")))
    assert list(checks.answered("42", replace(OK, status="killed"))) == []
    assert list(checks.works("another session", "42", replace(OK, status="killed")))
    assert list(checks.works("another session", "42", replace(OK, output="41")))
    assert list(checks.works("another session", "42", replace(OK, output="42"))) == []


def test_memory_and_processes_that_stay_are_seen() -> None:
    before = facts.peak_memory()
    assert 10 << 20 < before < 100 << 30
    assert list(checks.memory(before, before + (513 << 20)))
    assert list(checks.memory(before, before + (100 << 20))) == []
    assert list(checks.left_over(3, 5)) == ["2 processes are left over"]
    assert list(checks.left_over(3, 3)) == []


# ---------------------------------------------------------------- processes


@pytest.fixture
def child() -> Iterator[Callable[[str], int]]:
    """Starts Python code as a child process, waits until it says that it is ready, and returns its id."""
    children: list[subprocess.Popen[bytes]] = []

    def start(code: str) -> int:
        command = [sys.executable, "-I", "-S", "-c", code.format(ready="print(1, flush=True)")]
        children.append(subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True))
        output = children[-1].stdout
        assert output is not None
        assert output.readline() == b"1\n"
        return children[-1].pid

    yield start
    for one in children:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)
        one.communicate()


Seen = tuple[facts.ProcessFacts | None, facts.ProcessFacts | None, facts.ProcessFacts | None]


def watch(pid: int) -> Seen:
    first = facts.process(pid)
    now = asyncio.run(stopped(pid, first))
    time.sleep(0.15)
    return first, now, facts.process(pid)


def test_a_session_that_goes_on_after_its_call_is_seen(child: Callable[[str], int]) -> None:
    pid = child("{ready}\nwhile True: pass")
    busy = " ".join(checks.running(*watch(pid), killed=False))
    assert "of CPU after the call" in busy
    assert "is not stopped" in busy
    assert list(checks.running(*watch(pid), killed=True)) == ["the killed session lives on"]
    os.kill(pid, signal.SIGSTOP)
    settle()
    assert list(checks.running(*watch(pid), killed=False)) == []
    os.kill(pid, signal.SIGKILL)
    settle()
    assert list(checks.running(*watch(pid), killed=True)) == []


def test_a_session_that_was_only_slow_to_stop_does_not_go_on(child: Callable[[str], int]) -> None:
    pid = child("import time\n{ready}\ntime.sleep(60)")
    first = facts.process(pid)
    assert first is not None
    stop = threading.Timer(0.3, os.kill, (pid, signal.SIGSTOP))
    stop.start()
    try:
        assert list(checks.running(*watch(pid), killed=False)) == []
    finally:
        stop.join()
    stopped = replace(first, state="T", ticks=first.ticks + checks.SPARE_TICKS)
    assert list(checks.running(first, stopped, stopped, killed=False)) == []
    later = replace(stopped, ticks=stopped.ticks + 1)
    assert list(checks.running(first, stopped, later, killed=False)) == ["used 0.06 s of CPU after the call"]
    assert list(checks.running(first, later, later, killed=False)) == ["used 0.06 s of CPU after the call"]


def test_a_crowded_core_is_told_from_a_quiet_one(child: Callable[[str], int]) -> None:
    core = min(os.sched_getaffinity(0))
    crowd = [child(f"import os\nos.sched_setaffinity(0, {{{{{core}}}}})\n{{ready}}\nwhile 1: pass")]
    crowd += [child("{ready}\nwhile 1: pass") for _ in range(4)]
    before = facts.turns(crowd[0])
    for pid in crowd:
        os.sched_setaffinity(pid, {core})
    time.sleep(0.4)
    after = facts.turns(crowd[0])
    assert before is not None
    assert after is not None
    assert after.slowdown_since(before) > 2
    for pid in crowd:
        os.kill(pid, signal.SIGSTOP)
    settle()
    stopped = facts.turns(crowd[0])
    settle()
    later = facts.turns(crowd[0])
    assert stopped is not None
    assert later is not None
    assert later.slowdown_since(stopped) == 1
    assert facts.turns(1 << 30) is None


def test_threads_capabilities_rank_and_cpu_time_of_a_session_are_checked(child: Callable[[str], int]) -> None:
    idle = "import time\n{ready}\ntime.sleep(60)"
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (60, 60))\n"
    thread = "import threading\nthreading.Thread(target=time.sleep, args=(60,)).start()\n"
    held = facts.process(child(limit + idle))
    assert held is not None
    held = replace(held, capabilities=0)
    assert list(checks.confined(held, held)) == []
    assert list(checks.confined(held, None)) == []
    threads = facts.process(child(limit + "import time\n" + thread + idle))
    endless = facts.process(child(idle))
    assert threads is not None
    assert endless is not None
    assert list(checks.confined(held, replace(threads, capabilities=0))) == ["has 2 threads"]
    assert "has no limit of CPU time" in list(checks.confined(held, endless))
    assert list(checks.confined(held, replace(held, capabilities=1 << 21)))
    assert list(checks.confined(held, replace(held, nice=held.nice - 1)))
    assert list(checks.confined(held, replace(held, policy=1)))


def test_a_fork_server_that_dies_or_is_replaced_is_seen(child: Callable[[str], int]) -> None:
    pid = child("import time\n{ready}\ntime.sleep(60)")
    before = facts.process(pid)
    assert before is not None
    assert list(checks.server(before, facts.process(pid))) == []
    assert list(checks.server(before, replace(before, started=before.started + 1)))
    os.kill(pid, signal.SIGSTOP)
    settle()
    assert list(checks.server(before, facts.process(pid)))
    os.kill(pid, signal.SIGKILL)
    settle()
    assert list(checks.server(before, facts.process(pid))) == ["the fork server died"]


def test_open_descriptors_are_reported(child: Callable[[str], int]) -> None:
    pid = child("import os, time\nos.dup2(0, 17)\n{ready}\ntime.sleep(60)")
    found = facts.descriptors(pid)
    assert found is not None
    assert 17 in found
    assert facts.descriptors(1 << 30) is None


def test_only_its_own_files_may_be_open_in_a_fresh_session() -> None:
    usual = {0: "/dev/null", 1: "/memfd:output", 3: "/dev/null", 4: "/box/s1/in/a.png", 10: "socket:[1]"}
    assert list(checks.inherited(usual, Path("/box/s1"))) == []
    for what in ("/data/answers", "/box/s2/in/a.png", "socket:[2]", "anon_inode:[pidfd]"):
        assert list(checks.inherited(usual | {5: what}, Path("/box/s1"))) == [
            f"descriptor 5 ({what}) was open before any code ran"
        ]


def test_children_are_found_in_every_generation(child: Callable[[str], int], tmp_path: Path) -> None:
    first = child("import os, time\nif os.fork(): time.sleep(60)\n{ready}\ntime.sleep(60)")
    found = facts.descendants(os.getpid(), group=-1, below=tmp_path)
    assert {first} < found
    assert os.getpid() not in found


def test_orphans_are_found_by_their_session_and_by_their_folder(
    child: Callable[[str], int], tmp_path: Path
) -> None:
    pid = child(
        f"import os, time\nos.chdir({str(tmp_path)!r})\nif os.fork(): os._exit(0)\n{{ready}}\ntime.sleep(60)"
    )
    settle()
    ours = facts.descendants(os.getpid(), group=-1, below=tmp_path / "none")
    (by_folder,) = facts.descendants(os.getpid(), group=-1, below=tmp_path) - ours
    (by_session,) = facts.descendants(os.getpid(), group=pid, below=tmp_path / "none") - ours
    try:
        assert by_folder == by_session != pid
    finally:
        os.kill(by_folder, signal.SIGKILL)


# ---------------------------------------------------------------- against a real sandbox

PR_SET_NAME = 15
ATTACKS = {
    "1_write": HEAD + "open('{{CANARY}}/victim.txt', 'a').write('x')\n",
    "2_read": HEAD + "# LAYER: landlock\nprint(open('{{SECRET}}').read())\n",
    "3_loop": "# MUST NOT: run on\n# CHECK: timeout\n# SOFT: 0.5\nwhile True: pass\n",
    "4_risky": HEAD + "# WEAK-OK: 0\nprint(1)\n",
}


ODD = {
    "braces": HEAD + "N = 1\nprint(f'{{N}}')",
    "fine": HEAD + "print(1)",
    "parser": "# MUST NOT: crash\n# CHECK: error or session death\n" + "(" * 500,
    "raises": HEAD + "compile('x = (', 'x', 'exec')",
    "syntax": "# MUST NOT: x\n# CHECK: refused\nif True\n    print('DONE')",
    "two": "# MUST NOT: x\n# CHECK: refused\n# CHECK: canary unchanged\nprint('DONE')",
}
"""Attacks that are wrong themselves, or never run, and one that succeeds."""
RAISING = {"a_boom": HEAD + "print('boom')", "b_after": HEAD + "print(1)"}


def shoot(folder: Path, isolation: Isolation, *without: Layer, **codes: str) -> Tally:
    attacks = read_suite(suite(folder, **ATTACKS, **codes))
    seen = []
    try:
        tally = asyncio.run(
            run_suite(attacks, isolation=isolation, without=frozenset(without), done=seen.append)
        )
    except SandboxUnavailable as error:
        pytest.skip(f"this machine offers no such sandbox: {error}")
    assert len(seen) == len(attacks)
    assert [result.attack.name for result in tally.results] == sorted([*ATTACKS, *codes])
    return tally


@pytest.fixture(scope="module")
def best(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """How each attack ended in the best tier, in one suite for all: starting a sandbox takes a second."""
    honest = Session.run

    async def run(self: Session, code: str, *, raw: bool = False) -> Execution:
        if "boom" in code:
            raise MemoryError
        return await honest(self, code, raw=raw)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "run", run)
        tally = shoot(tmp_path_factory.mktemp("suite"), "auto", **ODD, **RAISING)
    return {result.attack.name: result for result in tally.results}


def test_a_suite_holds_in_the_best_tier(best: dict[str, Result]) -> None:
    results = [best[name] for name in ATTACKS]
    assert [(result.outcome, result.breaches) for result in results] == [("held", ())] * 4
    statuses = [result.status for result in results]
    # Depending on the machine's load.
    assert statuses in (["error", "error", late, "ok"] for late in ("timeout", "limit", "killed"))
    assert [result.stopped_by for result in results[1:]] == ["landlock", "soft limit", ""]


def test_without_landlock_the_breaches_are_reported_and_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Sessions share our user here, and vLLM tests running in parallel create semaphores in /dev/shm.
    public = [folder for folder in _public_folders() if folder != Path("/dev/shm")]
    monkeypatch.setattr("vtune.sandbox.attacks.world._public_folders", lambda: public)
    tally = shoot(tmp_path, "flat", "landlock")
    outcomes = [result.outcome for result in tally.results]
    assert outcomes == ["breach", "breach", "held", "skipped"], tally.results[2].breaches
    write, read = tally.results[:2]
    assert any("victim.txt" in breach for breach in write.breaches)
    assert any("secret is in the output" in breach for breach in read.breaches)
    assert not any("host file" in breach for breach in read.breaches)


def test_a_session_can_make_public_files_only_without_landlock(tmp_path: Path) -> None:
    async def story(*without: Layer) -> set[Path]:
        with World() as world:
            async with Range(world, LIMITS, "flat", frozenset(without)) as place:
                return place._writable

    try:
        assert asyncio.run(story()) == set()
        assert Path("/tmp") in asyncio.run(story("landlock"))
    except SandboxUnavailable as error:
        pytest.skip(f"this machine offers no such sandbox: {error}")
    assert not list(Path("/tmp").glob("vtune-probe-*"))


def test_an_attack_that_cannot_be_run_is_an_error_and_the_others_run(best: dict[str, Result]) -> None:
    found = {name: (best[name].outcome, best[name].status, best[name].note) for name in ODD}
    assert found["braces"][0] == "error"
    assert "{{N}}" in found["braces"][2]
    # Only its author knows whether an attack targets the parser.
    assert found["syntax"] == ("held", "error", "the code never ran: SyntaxError: expected ':'")
    assert found["parser"][:2] == ("held", "error")
    assert found["parser"][2].startswith("the code never ran")
    assert found["raises"] == ("held", "error", "the code raised SyntaxError: '(' was never closed")
    assert found["fine"] == ("held", "ok", "")
    assert found["two"][:2] == ("breach", "ok")


def test_a_process_that_an_attack_leaves_is_its_own_breach_and_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Silently: neither its output nor the pool, which fills up in the meantime, gives it away.
    name = f"left-{os.getpid()}"
    fork = "import ctypes, os, time\nif os.fork() == 0:\n    os.setsid()\n"
    fork += f"    ctypes.CDLL(None).prctl({PR_SET_NAME}, b'{name}')\n    time.sleep(600)\n"
    attacks = read_suite(suite(tmp_path, a=HEAD + fork, b=HEAD + "print(1)"))
    monkeypatch.setattr("vtune.sandbox.attacks.firing_range.SETTLE_SECONDS", 2.0)
    done: list[bool] = []
    tally = asyncio.run(
        run_suite(
            attacks,
            isolation="flat",
            without=frozenset({"seccomp"}),
            done=lambda result: done.append(name in running_names()),
        )
    )
    assert [result.outcome for result in tally.results] == ["breach", "held"]
    assert tally.results[0].breaches == ("1 processes are left over",)
    assert done == [False, False]


def running_names() -> set[str]:
    """The short names of all live processes, without zombies."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
            if rest.split()[0] not in "ZX":
                found.add(name)
    return found


def test_an_attack_that_raises_in_the_trainer_is_a_breach(best: dict[str, Result]) -> None:
    assert [best[name].outcome for name in RAISING] == ["breach", "held"]
    assert "raised MemoryError() in the trainer" in best["a_boom"].breaches[0]


@pytest.mark.parametrize(
    ("execution", "layer"),
    [
        (Execution(status="timeout"), "soft limit"),
        (Execution(status="limit", error="TimeoutError: the code ran longer than 2 s"), "soft limit"),
        (Execution(status="limit", error="MemoryError: the session's memory limit was reached"), ""),
        (Execution(status="killed", error="the code wrote more than 2000 files"), "quota"),
        (Execution(status="killed", error="TimeoutError: the code ran longer than 2 s"), "hard limit"),
        (Execution(status="killed", error="the code interfered with the session's answers"), "protocol"),
        (Execution(status="killed", error="the code ended its own process"), "end of its process"),
        (Execution(status="ok", output="fork refused OSError"), "kernel"),
        (Execution(status="error", error="PermissionError: [Errno 13]"), "kernel"),
        (Execution(status="ok", output="42"), ""),
    ],
)
def test_how_a_call_ended_shows_what_stopped_it(execution: Execution, layer: str) -> None:
    assert ended_by(execution) == layer
