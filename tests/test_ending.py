"""How a process exits at Ctrl-C, SIGTERM and SIGHUP, and with a live process group."""

import functools
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import HANGS, ROOT
from vtune import errors
from vtune.runs.processes.watcher import _hears_ctrl_c

PROGRAM = """
import sys, threading, time
from datetime import timedelta
import torch
from torch import distributed
from vtune.cli import main

freed = threading.Event()
joined = {}  # outlives what joins: a group that is given up waits for its threads

class Slow(torch.Tensor):
    def __del__(self):
        freed.set()
        time.sleep(SECONDS)  # gloo's thread frees it while the main thread ends

def train():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    store = distributed.HashStore()

    def join(rank):
        joined[rank] = distributed.ProcessGroupGloo(store, rank, 2, timedelta(seconds=60))

    second = threading.Thread(target=join, args=(1,))
    second.start()
    join(0)
    second.join()
    # Gloo's thread alone has it, and waits for the second.
    joined[0].allreduce([torch.ones(8).as_subclass(Slow)])
    joined[1].allreduce([torch.ones(8)]).wait()
    freed.wait()
    sys.stdout.write("trained")
    raise SystemExit(CODE)

main.app = train
"""


WITHIN = "try:\n    main.main()\nexcept SystemExit:\n    time.sleep(3)\nsys.exit(7)"
CASES = {
    "None": ("main.start()", "None", "2"),
    "3": ("main.start()", "3", "2"),
    "within": (WITHIN, "0", "0"),
    "bare": ("train()", "0", "2"),
}
"""Name -> the last code of a process, its exit code, and how many seconds freeing gloo's tensor takes."""

FORKS = """
import json, os, sys, tempfile
import torch
from torch import distributed
from vtune.cli import main

ended = {}
for name, program in json.loads(sys.argv[1]).items():
    out = tempfile.TemporaryFile()
    child = os.fork()
    if child == 0:
        # To the end of the interpreter, as a process that ran this alone.
        os.dup2(out.fileno(), 1)
        exec(program)
        sys.exit()
    _, status = os.waitpid(child, 0)
    out.seek(0)
    ended[name] = os.waitstatus_to_exitcode(status), out.read().decode()
print(json.dumps(ended))
"""


@pytest.fixture(scope="module")
def ended() -> dict[str, tuple[int, str]]:
    """Exit code and output for each case; the cases are forks of one process that has imported torch."""
    programs = {
        name: PROGRAM.replace("CODE", code).replace("SECONDS", wait) + last
        for name, (last, code, wait) in CASES.items()
    }
    command = [sys.executable, "-c", FORKS, json.dumps(programs)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANGS, check=False)
    assert done.returncode == 0, done.stderr
    return {name: (code, said) for name, (code, said) in json.loads(done.stdout).items()}


@pytest.mark.slow
@pytest.mark.parametrize(("code", "wanted"), [("None", 0), ("3", 3)])
def test_a_process_exits_with_its_code_while_a_gloo_thread_is_alive(
    code: str, wanted: int, ended: dict[str, tuple[int, str]]
) -> None:
    assert ended[code] == (wanted, "trained")


@pytest.mark.slow
def test_a_program_that_runs_a_command_keeps_its_own_exit_code(ended: dict[str, tuple[int, str]]) -> None:
    assert ended["within"] == (7, "trained")


@pytest.mark.slow
def test_normal_interpreter_teardown_would_crash(ended: dict[str, tuple[int, str]]) -> None:
    """The reason for our own exit path; if this test ever fails, torch no longer needs it."""
    # One time in ten too little of the interpreter is left for the thread even to abort.
    assert ended["bare"][0] in (-signal.SIGABRT, -signal.SIGSEGV)


HALF_WRITTEN = """
import asyncio, signal, subprocess, sys, time
from pathlib import Path
from vtune.cli import main
from vtune.files.writing import atomic_file

signal.signal(signal.SIGINT, HANDLER)

def work():
    try:
        with atomic_file(Path(sys.argv[1], "out.parquet")) as partial:
            partial.write_text("half")
            sys.stderr.write("begun\\n")
            sys.stderr.flush()
            WAITS
    except KeyboardInterrupt:
        child = "import signal as s; print({s.getsignal(n) for n in (s.SIGTERM, s.SIGHUP)} == {s.SIG_DFL})"
        Path(sys.argv[1], "child").write_bytes(subprocess.check_output([sys.executable, "-c", child]))
        raise SystemExit(130) from None  # as typer does

main.app = work
main.start()
"""


@pytest.mark.parametrize("handler", ["signal.default_int_handler", "signal.SIG_IGN"])
@pytest.mark.parametrize("waits", ["time.sleep(60)", "asyncio.run(asyncio.sleep(60))"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_order_to_stop_ends_a_command_as_ctrl_c_does(
    handler: str, waits: str, number: signal.Signals, tmp_path: Path
) -> None:
    """Also in the background of a shell, where Ctrl-C is ignored; half-written files are removed."""
    program = HALF_WRITTEN.replace("HANDLER", handler).replace("WAITS", waits)
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "begun\n"
        process.send_signal(number)
        said = process.stderr.read()
    assert process.returncode == 130, said
    assert said.startswith("interrupted\n")  # asyncio may complain about its loop afterwards
    (child,) = tmp_path.iterdir()
    assert child.read_text() == "True\n", "what is started meanwhile would ignore orders to stop"


def test_under_nohup_a_closed_terminal_does_not_end_a_command(tmp_path: Path) -> None:
    program = HALF_WRITTEN.replace("HANDLER", "signal.default_int_handler").replace(
        "WAITS", "time.sleep(0.5)"
    )
    command = ["nohup", sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "begun\n"
        process.send_signal(signal.SIGHUP)
    assert process.returncode == 0
    assert (tmp_path / "out.parquet").read_text() == "half"


SPEAKS = """
import os, signal, sys, time
from pathlib import Path
from vtune.cli import main

def work():
    try:
        print("begun", file=sys.stderr, flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        print("saving", file=sys.stderr, flush=True)  # nobody is there to read it
        print("saving")
        Path(sys.argv[1]).touch()
        raise SystemExit(130) from None

main.app = work
main.start()
"""


def spoken(folder: Path, *, to: str, number: signal.Signals) -> tuple[int, bool]:
    """The exit status of a command whose reader goes away and that then gets a signal; whether it saved."""
    ours, theirs = pty.openpty() if to == "terminal" else os.pipe()
    command = [sys.executable, "-c", SPEAKS, str(folder / "saved")]
    process = subprocess.Popen(command, cwd=ROOT, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    while b"begun" not in said:
        said += os.read(ours, 100)
    os.close(ours)
    process.send_signal(number)
    return process.wait(HANGS), (folder / "saved").exists()


@pytest.mark.parametrize("to", ["terminal", "pipe"])
def test_a_closed_terminal_does_not_keep_a_command_from_saving(to: str, tmp_path: Path) -> None:
    """Nor does the end of the process that it talks to, such as `tee`, which gets the same signal."""
    assert spoken(tmp_path, to=to, number=signal.SIGHUP) == (130, True)


def test_a_pipe_that_is_closed_for_another_reason_is_an_error(tmp_path: Path) -> None:
    assert spoken(tmp_path, to="pipe", number=signal.SIGTERM) == (1, False)


LOST = """
import os, signal, sys, time
from vtune.cli import main

signal.signal(signal.SIGINT, HANDLER)
heard = []

class Garbage:
    def __del__(self):
        os.kill(os.getpid(), signal.NUMBER)
        heard.append(self)  # not reached: Python drops what is raised here

def work():
    if BROKEN:
        class Broken:
            def __del__(self): raise ValueError("its own")
        Broken()
    Garbage()
    assert not heard
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        raise SystemExit(130) from None

main.app = work
main.start()
"""


@pytest.mark.parametrize(
    ("number", "handler"),
    [
        ("SIGINT", "signal.default_int_handler"),
        ("SIGTERM", "signal.SIG_IGN"),
        ("SIGTERM", "signal.default_int_handler"),
    ],
)
@pytest.mark.parametrize("broken", [False, True])
def test_an_interrupt_swallowed_by_a_finalizer_is_raised_again(
    number: str, handler: str, broken: bool
) -> None:
    program = LOST.replace("NUMBER", number).replace("HANDLER", handler).replace("BROKEN", str(broken))
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=HANGS
    )
    assert ended.returncode == 130
    assert ended.stderr.endswith("interrupted\n")
    assert ("ValueError: its own" in ended.stderr) is broken
    assert "KeyboardInterrupt" not in ended.stderr


ENDS = """
import atexit, os, signal, time
from vtune.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)

def flush(number):
    if number == 0:
        os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.1)
    print("flushed", number)

for number in (2, 1, 0):
    atexit.register(flush, number)

main.app = lambda: None
main.start()
"""


def test_only_one_exit_handler_is_interrupted() -> None:
    ended = subprocess.run([sys.executable, "-c", ENDS], cwd=ROOT, capture_output=True, text=True)
    assert ended.stdout == "flushed 1\nflushed 2\n"


TWICE = """
import os, signal, sys
from vtune.cli import ending, main

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.modules["torch"] = sys  # as if a command had loaded it
ending._flush_files = lambda: os.kill(os.getpid(), signal.SIGINT)

def work():
    raise SystemExit(130)

main.app = work
main.start()
"""


def test_ctrl_c_while_a_command_is_ending_prints_no_traceback() -> None:
    ended = subprocess.run([sys.executable, "-c", TWICE], cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (130, "interrupted\n")


EARLY = """
import os, signal, sys

class Presses:
    def find_spec(name, *_):
        if name == WHERE:
            os.kill(os.getpid(), signal.SIGINT)

sys.argv = ["vtune", "parts", "list"]
sys.meta_path.insert(0, Presses)
signal.signal(signal.SIGINT, HANDLER)
from vtune.cli.entry import start
start()
"""


@pytest.mark.parametrize("where", ["vtune.cli.rl", "vtune.runs.parts"])
def test_ctrl_c_while_the_command_is_imported_prints_no_traceback(where: str) -> None:
    """And as usual once the verb runs, which imports the rest."""
    code = EARLY.replace("WHERE", repr(where)).replace("HANDLER", "signal.default_int_handler")
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    early = "interrupted before anything was started: run the command again\n"
    assert (ended.returncode, ended.stderr) == (130, early if where == "vtune.cli.rl" else "interrupted\n")


def test_ctrl_c_that_is_ignored_stays_so_while_the_command_is_imported() -> None:
    """A shell starts background jobs in this way."""
    code = EARLY.replace("WHERE", repr("vtune.cli.rl")).replace("HANDLER", "signal.SIG_IGN")
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_rank_interrupted_at_startup_prints_nothing(tmp_path: Path) -> None:
    """The failure was in another rank, and rank 0's output is what the user should read."""
    (tmp_path / "sitecustomize.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    ended = subprocess.run(
        [sys.executable, "-m", "vtune.cli.main", "parts", "list"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", errors.WITHIN: "1"},
        preexec_fn=functools.partial(_hears_ctrl_c, os.getpid()),
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


@pytest.mark.parametrize("number", [1, 2])
def test_a_stream_closed_at_startup_is_not_replaced_by_another_file(number: int, tmp_path: Path) -> None:
    """`>&-`: otherwise the next opened file would get its descriptor and receive what is printed."""
    words = ["data", "make", "lens", "--train", "4", "--eval", "4", "--traces", "4", "--out", str(tmp_path)]
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@" {number}>&-', "sh", sys.executable, "-m", "vtune.cli.main", *words],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False)
    assert (ended.stdout, ended.stderr)[number - 1] == ""
    for file in tmp_path.glob("*.parquet"):
        content = file.read_bytes()
        assert (content[:4], content[-4:]) == (b"PAR1", b"PAR1")
    assert len(list(tmp_path.glob("*.parquet"))) == 3


EXITS = """
import ctypes, os, sys
from vtune.cli import main

def work():
    CALL

main.app = work
main.start()
"""
C_EXIT = "ctypes.CDLL(None).exit(0)"


def exits(call: str) -> "subprocess.CompletedProcess[str]":
    """A command that has ended in this way."""
    code = EXITS.replace("CALL", call)
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)


def test_a_library_cannot_end_the_command_as_if_it_had_succeeded() -> None:
    ended = exits(C_EXIT)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: a library ended the process by C's `exit`\n  at   <string>:6\n")


def test_a_thread_of_a_library_cannot_end_the_command_either() -> None:
    thread = "c.pthread_create(ctypes.byref(n), None, c.exit, None); c.pthread_join(n, None)"
    ended = exits(f"c = ctypes.CDLL(None); n = ctypes.c_ulong(); {thread}")
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: a library ended the process by C's `exit`\n  fix")


@pytest.mark.parametrize("code", [0, 3])
def test_a_process_that_a_library_has_forked_may_exit(code: int) -> None:
    forks = "c = ctypes.PyDLL(None); pid = c.fork(); pid or c.exit(7)"
    ended = exits(f"{forks}; print(os.waitpid(pid, 0)[1]); sys.exit({code})")
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, f"{7 << 8}\n", "")
