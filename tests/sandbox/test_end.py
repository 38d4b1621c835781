"""However it ends, no process and no folder is left, and a failure of ours is never blamed on the model."""

import asyncio
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sandbox.conftest import QUICK, Box, textured
from vtune.errors import ServiceError
from vtune.sandbox import Sandbox, forkserver
from vtune.sandbox.forkserver import ForkServer
from vtune.sandbox.guest.settings import Settings
from vtune.sandbox.workspace import Workspace

TRAINER = """
import asyncio, signal
from vtune.sandbox import Sandbox

# A background shell starts its children with interrupts ignored, and they inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

async def main():
    async with Sandbox(warm=0) as sandbox:
        sessions = [await sandbox.open([], seed=0) for _ in range(3)]
        print(sandbox.folder, flush=True)
        await asyncio.gather(*(session.run("while True: pass") for session in sessions))

asyncio.run(main())
"""


def processes_of(root: Path) -> list[int]:
    """The guardian, the fork server and all sessions, which have the folder on their command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(root).encode() in command:
            found.append(int(folder.name))
    return found


def wait_until_gone(root: Path) -> None:
    deadline = time.monotonic() + 60
    while (processes_of(root) or root.exists()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert processes_of(root) == []
    assert not root.exists()


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def lived(sandbox: Sandbox) -> Iterator[Box]:
    """A sandbox for several tests, which may end its fork server; nothing of it is left at the end."""
    with asyncio.Runner() as runner:
        runner.run(sandbox.__aenter__())
        yield Box(runner, sandbox)
        folder = sandbox.folder
        runner.run(sandbox.__aexit__(None, None, None))
    wait_until_gone(folder)


@pytest.fixture(scope="module")
def used() -> Iterator[Box]:
    yield from lived(Sandbox(QUICK))


@pytest.fixture
def lasting(used: Box) -> Box:
    """With a live fork server, though the previous test may have killed it."""
    used.run("pass")
    return used


@pytest.fixture(scope="module")
def single() -> Iterator[Box]:
    """One session at a time, none forked ahead."""
    yield from lived(Sandbox(replace(QUICK, sessions=1), warm=0))


@pytest.fixture(scope="module")
def double() -> Iterator[Box]:
    """Two sessions at a time, two forked ahead, and plenty of time for a call."""
    yield from lived(Sandbox(replace(QUICK, sessions=2, seconds=90.0), warm=2))


@pytest.mark.usefixtures("lasting")  # what a process's first sandbox opens for good is open by then
def test_closing_leaves_no_process_no_folder_and_no_descriptor() -> None:
    async def story() -> tuple[Path, list[int]]:
        async with Sandbox(QUICK, warm=0) as sandbox:
            closed = await sandbox.open([textured()], seed=0)
            await closed.run("import sys\nimage.save('a.png')")
            await closed.close()
            await closed.close()
            await (await sandbox.open([], seed=0)).run("import os; os._exit(1)")
            await sandbox.open([textured()], seed=0)
            root = sandbox.folder
            # One more decodes pictures.
            assert len(list(root.glob("s*"))) == 3
            return root, processes_of(root)

    before = open_descriptors()
    root, during = asyncio.run(story())
    assert len(during) == 4
    assert processes_of(root) == []
    assert not root.exists()
    assert open_descriptors() == before


def test_a_cancelled_call_leaves_nothing_and_the_session_goes_on(lasting: Box) -> None:
    async def story() -> None:
        async with await lasting.sandbox.open([], seed=0) as session:
            call = asyncio.create_task(session.run("import time\ntime.sleep(5)"))
            await asyncio.sleep(0.1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert (await session.run("print(1)")).output == "1"
        await session.close()

    lasting.runner.run(story())


def test_a_cancelled_block_leaves_nothing() -> None:
    async def block(ready: asyncio.Future[Path]) -> None:
        async with Sandbox(QUICK) as sandbox:
            sessions = [await sandbox.open([], seed=0) for _ in range(4)]
            ready.set_result(sandbox.folder)
            await asyncio.gather(*(session.run("while True: pass") for session in sessions))

    async def story() -> Path:
        ready: asyncio.Future[Path] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(block(ready))
        root = await ready
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return root

    wait_until_gone(asyncio.run(story()))


@pytest.mark.parametrize(
    "signum", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=["kill", "int", "term"]
)
def test_a_trainer_that_is_stopped_leaves_nothing(signum: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TRAINER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as trainer:
        assert trainer.stdout is not None
        root = Path(trainer.stdout.readline().strip())
        during = processes_of(root)
        trainer.send_signal(signum)
        trainer.wait(60)
    assert len(during) == 5
    wait_until_gone(root)


def guardian(sandbox: Sandbox) -> int:
    return sandbox._server.process.pid


def kill_fork_server(sandbox: Sandbox) -> None:
    os.kill(sandbox.zygote_pid, signal.SIGKILL)


def test_a_dead_fork_server_is_infra_for_its_sessions_and_replaced_for_new_ones(lasting: Box) -> None:
    sandbox = lasting.sandbox

    async def story(victim: int) -> None:
        busy, idle = [await sandbox.open([], seed=0) for _ in range(2)]
        call = asyncio.create_task(busy.run("import time\ntime.sleep(0.4)\nprint(1)"))
        await asyncio.sleep(0.1)
        os.kill(victim, signal.SIGKILL)
        ended = await call
        assert (ended.status, ended.output, ended.images) == ("infra", "", ())
        assert (await idle.run("print(1)")).status == "infra"
        assert (await idle.run("print(1)")).status == "infra"
        fresh = await sandbox.open([], seed=0)
        assert (await fresh.run("print(2)")).output == "2"
        for session in (busy, idle, fresh):
            await session.close()

    folders = []
    for number in (lambda: sandbox.zygote_pid, lambda: guardian(sandbox)):
        folders.append(sandbox.folder)
        lasting.runner.run(story(number()))
    assert len({*folders, sandbox.folder}) == 3
    for folder in folders:
        wait_until_gone(folder)


def test_an_answer_that_nobody_has_read_yet_does_not_hide_that_the_fork_server_is_dead(
    lasting: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forkserver, "END_SECONDS", 0.1)

    async def story() -> None:
        sandbox = lasting.sandbox
        server = sandbox._server
        assert server is not None
        # As on a busy machine: its end goes unnoticed for a while.
        os.kill(guardian(sandbox), signal.SIGSTOP)
        server.control.send(json.dumps({"number": 0, "ping": True}).encode())
        there = select.poll()
        there.register(server.control, select.POLLIN)
        assert there.poll(60_000)
        kill_fork_server(sandbox)
        there.modify(server.control, select.POLLHUP)
        assert there.poll(60_000)
        # The event loop has had no turn since.
        async with await sandbox.open([], seed=0) as session:
            assert (await session.run("print(1)")).output == "1"
        assert sandbox._server is not server

    lasting.runner.run(story())


def test_an_answer_whose_pictures_went_with_the_fork_server_is_infra(
    lasting: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a call that showed nothing, which would be scored."""

    async def story() -> None:
        sandbox = lasting.sandbox
        session = await sandbox.open([textured()], seed=0)
        read, folder = Workspace.read, sandbox.folder

        async def read_too_late(self: Workspace, name: str, *, max_bytes: int) -> bytes:
            kill_fork_server(sandbox)
            wait_until_gone(folder)
            return await read(self, name, max_bytes=max_bytes)

        monkeypatch.setattr(Workspace, "read", read_too_late)
        ended = await session.run("image.crop((0, 0, 4, 4)).save('crop.png')")
        assert (ended.status, ended.error) == ("infra", "the sandbox's fork server died")
        await session.close()

    lasting.runner.run(story())


@pytest.mark.parametrize("code", ["raise ValueError", "import os\nos._exit(1)"], ids=["error", "death"])
@pytest.mark.parametrize("lost", ["in/image_0.png", "in", "ws"])
def test_files_that_somebody_else_removed_are_not_blamed_on_the_code(
    lasting: Box, code: str, lost: str
) -> None:
    async def story() -> None:
        async with await lasting.sandbox.open([textured()], seed=0) as session:
            path = session.workspace.parent / lost
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
            ended = await session.run(code)
            assert (ended.status, ended.error) == ("infra", "the session's files were removed from outside")

    lasting.runner.run(story())


def test_a_sandbox_that_cannot_start_a_session_says_so(lasting: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        sandbox = lasting.sandbox
        monkeypatch.setattr("vtune.sandbox.forkserver.BOOT", "raise SystemExit('no fork server today')")
        kill_fork_server(sandbox)
        with pytest.raises(ServiceError, match="no fork server today"):
            await sandbox.open([], seed=0)

    lasting.runner.run(story())


def test_a_fork_server_that_is_late_is_not_taken_for_a_broken_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vtune.sandbox.forkserver.BOOT", "import time; time.sleep(60)")
    monkeypatch.setattr("vtune.sandbox.forkserver.START_SECONDS", 0.1)

    async def story() -> None:
        async with Sandbox(QUICK):
            pass

    with pytest.raises(ServiceError, match=r"not ready after 0\.1 s") as caught:
        asyncio.run(story())
    assert caught.value.fix == "try again when the machine is less busy"


def test_a_lack_of_descriptors_is_a_service_error_and_the_sandbox_goes_on(lasting: Box) -> None:
    async def story() -> None:
        sandbox = lasting.sandbox
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            with pytest.raises(ServiceError, match="ulimit -n"):
                await sandbox.open([], seed=0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        session = await sandbox.open([], seed=0)
        assert (await session.run("print(1)")).output == "1"
        await session.close()

    lasting.runner.run(story())


def test_opening_waits_until_the_machine_has_room(double: Box) -> None:
    async def story() -> None:
        sandbox = double.sandbox
        assert sandbox.capacity == 2
        first, second = [await sandbox.open([], seed=0) for _ in range(2)]
        third = asyncio.create_task(sandbox.open([], seed=0))
        await asyncio.sleep(0.2)
        assert not third.done()
        await first.close()
        assert (await (await third).run("print(3)")).output == "3"
        await second.close()
        await third.result().close()

    double.runner.run(story())


def test_folders_that_nobody_may_enter_are_removed_too(lasting: Box) -> None:
    async def story() -> None:
        session = await lasting.sandbox.open([], seed=0)
        run = await session.run("os.umask(0o777)\nos.makedirs('a/b/c')\nopen('f', 'w')", raw=True)
        assert run.status in ("ok", "error")
        folder = session.workspace.parent
        await session.close()
        assert not folder.exists()

    lasting.runner.run(story())


def session_folders(sandbox: Sandbox) -> set[str]:
    return {path.name for path in sandbox.folder.glob("s*")}


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 4, 6])
def test_an_opening_that_is_cancelled_leaves_nothing(single: Box, turns: int) -> None:
    async def story() -> None:
        sandbox = single.sandbox
        before = open_descriptors()
        opening = asyncio.create_task(sandbox.open([textured()], seed=0))
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])
        if not opening.cancelled():  # a busy machine held this process up until all answers were there
            await opening.result().close()
        # The only place is free again, and a late answer is dropped.
        session = await asyncio.wait_for(sandbox.open([], seed=0), 10)
        assert (await session.run("print(1)")).output == "1"
        assert session_folders(sandbox) == {session.workspace.parent.name}
        await session.close()
        assert session_folders(sandbox) == set()
        assert open_descriptors() == before

    single.runner.run(story())


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_a_restart_that_is_cancelled_keeps_the_files(lasting: Box, turns: int) -> None:
    async def story() -> None:
        sandbox = lasting.sandbox
        session = await sandbox.open([textured()], seed=0)
        await session.run("open('note', 'w').write('kept')")
        await session.run("os._exit(1)")
        call = asyncio.create_task(session.run("pass"))
        for _ in range(turns):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        run = await session.run("print(open('note').read(), image.size)")
        assert (run.status, run.output) == ("ok", "kept (400, 300)")
        await session.close()

    lasting.runner.run(story())


def test_a_session_cannot_switch_the_pool_off(double: Box) -> None:
    async def story() -> None:
        sandbox = double.sandbox
        session = await sandbox.open([], seed=0)
        for status in (1, 97):
            assert (await session.run(f"os._exit({status})")).status == "killed"
        await session.close()
        await asyncio.sleep(0.5)
        # Idle sessions have folders already, as do processes waiting to be used again.
        assert len(session_folders(sandbox)) == 2 + len(sandbox._kept)

    double.runner.run(story())


def test_after_the_end_nothing_starts_again() -> None:
    async def story() -> Path:
        async with Sandbox(QUICK) as sandbox:
            session = await sandbox.open([], seed=0)
        assert (await session.run("print(1)")).status == "infra"
        with pytest.raises(ServiceError, match="ended"):
            await sandbox.open([], seed=0)
        await session.close()
        return sandbox.folder

    wait_until_gone(asyncio.run(story()))


def test_closing_ends_a_call_that_runs(double: Box) -> None:
    async def story() -> None:
        sandbox = double.sandbox
        session = await sandbox.open([], seed=0)
        call = asyncio.create_task(session.run("import time\ntime.sleep(60)"))
        await asyncio.sleep(0.2)
        began = time.monotonic()
        await session.close()
        assert (await call).status in ("killed", "infra")
        assert (await session.run("print(1)")).status == "infra"
        assert time.monotonic() - began < 30
        assert session_folders(sandbox).isdisjoint({session.workspace.parent.name})

    double.runner.run(story())


@pytest.mark.parametrize("at_once", [False, True], ids=["first", "another"])
def test_no_fork_server_outlives_an_end_that_comes_while_it_starts(
    at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it start anything for callers that waited for it, however long its end takes."""
    folders: list[Path] = []
    start, end = ForkServer.start, ForkServer.end

    async def lingering(server: ForkServer) -> None:
        await asyncio.sleep(0.3)
        await end(server)

    async def story() -> None:
        begun = asyncio.Event()

        async def slowly(settings: Settings) -> ForkServer:
            folders.append(Path(settings.folder))
            begun.set()
            await asyncio.sleep(0.2)
            return await start(settings)

        async with Sandbox(QUICK, warm=0, at_once=at_once) as sandbox:
            monkeypatch.setattr(ForkServer, "start", slowly)
            if at_once:
                kill_fork_server(sandbox)
                wait_until_gone(sandbox.folder)
            opening = [asyncio.create_task(sandbox.open([], seed=0)) for _ in range(3)]
            await begun.wait()
            monkeypatch.setattr(ForkServer, "end", lingering)
        found = await asyncio.gather(*opening, return_exceptions=True)
        assert [type(one) for one in found] == [ServiceError] * 3, found
        with pytest.raises(ServiceError, match="the sandbox has ended"):
            await sandbox.open([], seed=0)

    asyncio.run(story())
    assert len(folders) == 1
    wait_until_gone(folders[0])


def test_a_sandbox_that_nobody_wants_does_not_warn(capfd: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        async with Sandbox(isolation="unsafe", at_once=False) as sandbox:
            assert capfd.readouterr().err == ""
            async with await sandbox.open([], seed=0):
                assert capfd.readouterr().err.count("WARNING: the sandbox is off (unsafe)") == 1

    asyncio.run(story())


def test_it_is_up_once_both_of_its_processes_have_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guardian names the fork server after forking it, which may be late on a busy machine."""
    receive, told = ForkServer._receive, []

    async def the_other_way_round(server: ForkServer) -> bytes:
        if not told:
            told.extend(
                sorted([await receive(server), await receive(server)], key=lambda one: b"zygote" in one)
            )
        return told.pop(0)

    async def story() -> None:
        monkeypatch.setattr(ForkServer, "_receive", the_other_way_round)
        async with Sandbox(QUICK, warm=0) as sandbox:
            assert sandbox.zygote_pid in processes_of(sandbox.folder)
            async with await sandbox.open([], seed=0) as session:
                assert (await session.run("print(3)")).status == "ok"

    asyncio.run(story())
