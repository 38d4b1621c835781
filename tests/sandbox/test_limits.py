"""What a session may not exceed, and what it can neither fake nor hide."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.conftest import HANGS
from tests.sandbox.conftest import QUICK, Box, encoded, picture, running, textured
from vtune.errors import SandboxUnavailable, ServiceError
from vtune.sandbox import Execution, Isolation, Limits, Sandbox, Session
from vtune.sandbox.turns import Turns
from vtune.sandbox.watch import Stopped, watch

SMALL = replace(QUICK, seconds=5.0, workspace_mb=8, workspace_files=50, file_mb=4)
FIND_QUESTION = """
import sys, json, struct
frame = sys._getframe()
while frame and "message" not in frame.f_locals:
    frame = frame.f_back
question = frame.f_locals["message"]["n"]
def say(answer):
    content = json.dumps(answer).encode()
    os.write(10, struct.pack("!I", len(content)) + content)
good = {"n": question, "status": "ok", "error": "", "written": [], "broken": [], "crops": []}
"""


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def stopped(session: Session) -> None:
    """Wait until it is stopped, as it must be soon after each call."""
    ends = time.monotonic() + HANGS
    while state(session.pid) != "T" and time.monotonic() < ends:
        await asyncio.sleep(0.01)
    assert state(session.pid) == "T"


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def in_session(box: Box, story: Callable[[Session], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with await box.sandbox.open([textured()], seed=0) as session:
            await story(session)

    box.runner.run(whole())


@pytest.fixture(scope="module")
def small_box() -> Iterator[Box]:
    with running(SMALL) as box:
        yield box


def test_a_session_is_stopped_between_calls(box: Box) -> None:
    async def story(session: Session) -> None:
        await session.run("x = 1")
        await stopped(session)

    in_session(box, story)


def test_a_forged_answer_buys_no_time(impatient_box: Box) -> None:
    async def story(session: Session) -> None:
        forged = await session.run(FIND_QUESTION + "print('forged')\nsay(good)\nwhile True: pass", raw=True)
        assert (forged.status, forged.output) == ("ok", "forged")
        await stopped(session)
        before = cpu_ticks(session.pid)
        await asyncio.sleep(0.3)
        assert cpu_ticks(session.pid) == before
        # The call never ended, so the session cannot answer the next one.
        assert (await session.run("print(1)")).status == "killed"
        assert (await session.run("print(2)")).output == "2"

    in_session(impatient_box, story)


@pytest.mark.parametrize(
    "code",
    [
        "say({**good, 'n': 'another'})",
        "say(good)\nsay(good)",
        "say({**good, 'status': 'infra'})",
        "say({**good, 'status': 'unparsed'})",
        "say({**good, 'error': 5})",
        "say({**good, 'written': 7})",
        "say({**good, 'crops': [{'image': 9, 'bbox': [1, 2, 3, 4], 'shown': None}]})",
        "say({**good, 'crops': [{'image': 0, 'bbox': [0, 0, 1e999, 4], 'shown': None}]})",
        "say({**good, 'crops': 'no'})",
        "say([1])",
        "os.write(10, struct.pack('!I', 1 << 30))",
        "os.write(10, struct.pack('!I', 100000) + b'[' * 100000)",
        "os.close(10)",
    ],
)
def test_a_session_that_meddles_with_its_answers_is_killed_and_replaced(box: Box, code: str) -> None:
    async def story(session: Session) -> None:
        runs = [await session.run(FIND_QUESTION + code, raw=True), await session.run("print(6 * 7)")]
        # An answer written ahead is detected at the next request.
        assert "killed" in [run.status for run in runs]
        assert (await session.run("print(6 * 7)")).output == "42"

    in_session(box, story)


def test_a_session_that_denies_that_code_parses_is_asked_once_more_and_then_killed(box: Box) -> None:
    deny = FIND_QUESTION + "frame.f_locals['self']._execute = lambda *a, **k: ('unparsed', '')"

    async def story(session: Session) -> None:
        assert (await session.run(deny, raw=True)).status == "ok"
        assert "SyntaxError" in (await session.run("a = = 1")).error
        denied = await session.run("print(6 * 7)")
        assert (denied.status, "interfered" in denied.error) == ("killed", True)
        assert (await session.run("print(6 * 7)")).output == "42"

    in_session(box, story)


def test_parsing_that_takes_all_the_time_is_not_given_it_twice() -> None:
    # Replaces the parser: both of its runs count, and so do its files.
    slow = "import ast, time\ntimes = iter(range(2))\ndef parse(source, name):\n"
    slow += "    image.crop((0, 0, 9, 9)).save(f'{next(times)}.png')\n    time.sleep(4)\n"
    slow += "    raise SyntaxError\nast.parse = parse"

    async def story() -> Execution:
        limits = replace(QUICK, seconds=3.0, grace=3.0)
        async with Sandbox(limits) as sandbox, await sandbox.open([encoded(picture())], seed=0) as session:
            assert (await session.run(slow, raw=True)).status == "ok"
            return await session.run("print(1)")

    late = asyncio.run(story())
    assert (late.status, late.names) == ("killed", ("0.png", "1.png"))
    assert late.seconds < 7.8  # 6, not 8


def test_a_flood_of_files_is_stopped_early_and_swept_away(small_box: Box) -> None:
    async def story(session: Session) -> None:
        run = await session.run("for i in range(10**6): open(f'f{i}', 'w').close()")
        assert run.status == "killed"
        assert "more than 50 files" in run.error
        assert run.seconds < SMALL.seconds
        assert [path.name for path in session.workspace.iterdir()] == []
        assert (
            await session.run("print(sorted(os.listdir()), image.size)")
        ).output == "['image_0.png'] (400, 300)"

    in_session(small_box, story)


def test_a_disk_is_not_filled(small_box: Box) -> None:
    async def story(session: Session) -> None:
        run = await session.run("for i in range(100): open(f'f{i}', 'wb').write(bytes(4 << 20))")
        assert run.status == "killed"
        assert "more than 8 MiB" in run.error

    in_session(small_box, story)


def test_what_a_killed_call_left_is_shown(small_box: Box) -> None:
    async def story(session: Session) -> None:
        run = await session.run("image.save('a.png')\nprint('so far')\nos._exit(1)")
        assert (run.status, run.names) == ("killed", ("a.png",))
        assert run.output == "so far"

    in_session(small_box, story)


def test_the_hard_limit_comes_in_time(impatient_box: Box) -> None:
    hostile = "import time\nwhile True:\n try:\n  while True: time.sleep(0.01)\n except BaseException: pass"
    run = impatient_box.one(hostile)
    assert run.status == "killed"
    assert 1.0 <= run.seconds < 10


def test_a_session_that_does_not_read_its_question_is_killed_in_time(impatient_box: Box) -> None:
    async def story() -> Execution:
        async with await impatient_box.sandbox.open([], seed=0) as session:
            await session.run(FIND_QUESTION + "say(good)\nimport time\nwhile True: time.sleep(1)", raw=True)
            # Longer than the buffer between two processes.
            return await session.run("#" + "\U0001f600" * 60_000)

    run = impatient_box.runner.run(story())
    assert run.status == "killed"
    assert run.seconds < 10


def test_sessions_with_many_folders_do_not_stretch_each_others_limit(impatient_box: Box) -> None:
    hostile = "import time\nwhile True:\n try:\n  for i in range(1900): os.makedirs(f'd{i}', exist_ok=True)\n"
    hostile += "  while True: time.sleep(0.01)\n except BaseException: pass"

    async def story() -> list[Execution]:
        sessions = [await impatient_box.sandbox.open([], seed=0) for _ in range(8)]
        runs = await asyncio.gather(*(session.run(hostile) for session in sessions))
        await asyncio.gather(*(session.close() for session in sessions))
        return list(runs)

    runs = impatient_box.runner.run(story())
    assert {run.status for run in runs} == {"killed"}
    assert max(run.seconds for run in runs) < 10


def test_time_that_the_trainer_was_busy_does_not_count(impatient_box: Box) -> None:
    async def story() -> Execution:
        async with await impatient_box.sandbox.open([], seed=0) as session:
            call = asyncio.create_task(session.run("print('done')"))
            await asyncio.sleep(0.001)
            # Like an engine that generates in this process.
            time.sleep(QUICK.seconds + QUICK.grace + 0.2)
            return await call

    run = impatient_box.runner.run(story())
    assert (run.status, run.output) == ("ok", "done")


@pytest.mark.parametrize("before", [0.0, 30.0])
@pytest.mark.parametrize(
    ("waited", "taken", "seconds"), [(0.0, 1.0, 0.2), (0.4, 1.0, 0.6), (60.0, 1.0, 1.2), (0.0, 9.0, 0.0)]
)
def test_time_for_which_others_had_the_cores_is_given_back_once(
    waited: float, taken: float, seconds: float, before: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code has ended, and its pictures are being located; the extension is limited in seconds.

    Waiting times of the process in earlier calls do not count.
    """
    clock = SimpleNamespace(now=5.0)
    monkeypatch.setattr("vtune.sandbox.watch.time", SimpleNamespace(monotonic=lambda: clock.now))

    class Starved:
        def waited(self) -> float:
            return before + (waited if clock.now > 5.1 else 0.0)

        def unlinked_bytes(self) -> int:
            return 0

    class Empty:
        def over_quota(self, unlinked: int) -> str:
            return ""

    async def story() -> None:
        limits = Limits(seconds=1.0, grace=0.2)
        look = watch(Starved(), Empty(), limits, Turns(), taken=taken)  # type: ignore[arg-type]
        while clock.now < 100:
            try:
                clock.now += await look()
            except Stopped:
                return

    asyncio.run(story())
    assert clock.now - 5.0 == pytest.approx(seconds)


@pytest.mark.parametrize("isolation", ["flat", "unsafe"])
def test_a_tier_can_be_asked_for(isolation: Isolation, capfd: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        async with Sandbox(QUICK, isolation=isolation) as sandbox:
            assert sandbox.tier == sandbox.info()["tier"] == isolation
            session = await sandbox.open([encoded(picture())], seed=0)
            assert (await session.run("print(image.size)")).output == "(400, 300)"
            reached = (await session.run("print(open('/etc/passwd').read())", raw=True)).status
            assert (reached == "ok") is (isolation == "unsafe")

    asyncio.run(story())
    assert ("WARNING" in capfd.readouterr().err) is (isolation == "unsafe")


def test_a_limit_on_open_files_that_no_fork_server_can_live_with_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        async with Sandbox(QUICK):
            raise AssertionError("it started")

    monkeypatch.setattr("resource.getrlimit", lambda _: (128, 200))
    with pytest.raises(SandboxUnavailable, match=r"at most 200 open files") as caught:
        asyncio.run(story())
    assert "ulimit -Hn" in (caught.value.fix or "")


def test_without_a_sufficient_layer_nothing_starts() -> None:
    async def story() -> None:
        # A kernel without Landlock, and no namespaces.
        async with Sandbox(QUICK, isolation="flat", landlock_abi=0):
            raise AssertionError("it started")

    with pytest.raises(SandboxUnavailable, match="landlock"):
        asyncio.run(story())


def test_pictures_that_do_not_fit_into_a_session_are_reported() -> None:
    # A bit per pixel in the file, three bytes in the session.
    large = encoded(np.zeros((4000, 4000), dtype=bool))
    with running(replace(QUICK, memory_mb=400)) as box:
        with pytest.raises(ServiceError, match=r"do not fit into the 400 MiB of sandbox\.memory_mb"):
            box.one("pass", images=[large] * 8)
        assert box.one("print(len(images))", images=[large]).output == "1"
