"""What a call returns, status by status."""

import asyncio

import numpy as np
import pytest

from tests.conftest import HANGS
from tests.sandbox.conftest import Box, decoded, encoded, picture
from vtune.errors import DataError, ServiceError
from vtune.sandbox import Execution, Limits, Sandbox
from vtune.sandbox.guest.runner import OWN_TIME
from vtune.sandbox.guest.zygote import CALM_SECONDS, FIRST_WARM
from vtune.sandbox.reply import crop_of
from vtune.sandbox.scan import Scanner


def test_variables_imports_and_functions_are_kept_between_calls(box: Box) -> None:
    runs = box.run("import json\ndef twice(x):\n    return 2 * x\na = 3", "print(json.dumps(twice(a)))")
    assert [run.status for run in runs] == ["ok", "ok"]
    assert runs[1].output == "6"


def test_the_picture_and_the_usual_names_are_predefined(box: Box) -> None:
    code = (
        "print(image_path, image.size, image.mode, np.__name__, "
        "cv2.__name__, math.pi > 3, random, os.getcwd())"
    )
    run = box.one(code, [encoded(picture(), "JPEG")])
    assert run.output.startswith("image_0.jpg (400, 300) RGB numpy cv2 True")
    assert run.output.endswith("/workspace")


def test_a_sandbox_that_is_not_started_at_once_starts_with_its_first_session() -> None:
    async def story() -> Execution:
        async with Sandbox(warm=0, at_once=False) as sandbox:
            with pytest.raises(ServiceError, match="has not started a session yet"):
                _ = sandbox.tier
            opened = await asyncio.gather(*(sandbox.open([], seed=0) for _ in range(2)))
            assert sandbox.tier in ("namespaces", "flat")
            assert await sandbox.children() == 2
            found = await opened[0].run("print(1)")
            await asyncio.gather(*(session.close() for session in opened))
            return found

    assert asyncio.run(story()).output == "1"


@pytest.mark.parametrize(("code", "after"), [("pass", 12 + FIRST_WARM), ("import sys", 12)])
def test_as_many_are_kept_ready_as_have_lived_at_the_same_time(code: str, after: int) -> None:
    async def story() -> None:
        async with Sandbox(warm=12) as sandbox:
            await ready(sandbox, FIRST_WARM)
            opened = [await sandbox.open([], seed=0) for _ in range(10)]
            await ready(sandbox, 10 + FIRST_WARM)
            opened += [await sandbox.open([], seed=0) for _ in range(4)]
            await ready(sandbox, 14 + FIRST_WARM)
            await asyncio.gather(*(session.run(code) for session in opened))
            await asyncio.gather(*(session.close() for session in opened))
            await ready(sandbox, after)

    async def ready(sandbox: Sandbox, count: int) -> None:
        async with asyncio.timeout(HANGS):
            while await sandbox.children() != count:
                await asyncio.sleep(0.02)
        # No more are made than are needed.
        await asyncio.sleep(10 * CALM_SECONDS)
        assert await sandbox.children() == count

    asyncio.run(story())


def test_a_sandbox_that_nobody_used_ends_without_having_started() -> None:
    async def story() -> Sandbox:
        async with Sandbox(at_once=False) as sandbox:
            return sandbox

    assert asyncio.run(story())._server is None


def test_several_pictures_are_predefined_as_lists(box: Box) -> None:
    images = [encoded(picture()), encoded(picture(64, 48))]
    run = box.one("print(image_paths, [i.size for i in images])", images)
    assert run.output == "['image_0.png', 'image_1.png'] [(400, 300), (64, 48)]"


def test_an_exception_comes_back_with_the_models_own_frames_only(box: Box) -> None:
    run = box.one("print('before')\ndef f():\n    return Image.open('nothing.png')\nf()")
    assert (run.status, run.output) == ("error", "before")
    assert "line 3, in f" in run.error
    assert run.error.endswith("No such file or directory: 'nothing.png'")
    assert "site-packages" not in run.error
    assert "vtune" not in run.error


@pytest.mark.parametrize("letter", ["x", "\u6f22", "\U0001f600", "\0"])
def test_a_long_error_is_cut_to_its_end(box: Box, letter: str) -> None:
    run, after = box.run(f"a = 7\nraise ValueError({letter!r} * 1_000_000 + ' the end')", "print(a)")
    assert run.status == "error"
    assert len(run.error) <= 4000
    assert run.error.endswith("the end")
    assert after.output == "7"


def test_code_that_does_not_parse_is_an_error_that_names_the_line(box: Box) -> None:
    run = box.one("a = 1\nb = (2")
    assert run.status == "error"
    assert "SyntaxError" in run.error
    assert "line 2" in run.error


@pytest.mark.parametrize(
    "code", ["(" * 10_000, "-" * 60_000 + "1", "x\0y"], ids=["brackets", "minus", "null"]
)
def test_code_that_breaks_the_parser_is_an_error_not_a_crash(box: Box, code: str) -> None:
    assert box.one(code).status == "error"


UNPARSED = {
    "a slip": "a = 1\nb = = 2",
    "an open string": "x = 'ab",
    "return": "print(1)\nreturn 2",
    "await": "x = [await y]",
    "brackets": "(" * 300,
    "nested": "-" * 20_000 + "1",
    "crooked": "  a = 1\nb = 2\n c = 3",
    "indented": "    print(2)\n    print(3)",
    "first line not indented": "print(4)\n    print(5)",
    "tabs": "if 1:\n\tprint(6)\n        print(7)",
    "null": "x\0y",
}


@pytest.mark.parametrize("name", UNPARSED)
def test_slips_are_reported_and_repaired_alike_whoever_parses_first(
    box: Box, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = box.one(UNPARSED[name])
    monkeypatch.setattr(Scanner, "plain", lambda self, source: None)
    here = box.one(UNPARSED[name])
    assert (there.status, there.output, there.error) == (here.status, here.output, here.error)
    assert there.output or there.error


def test_code_that_does_not_parse_leaves_the_session_as_it_was(box: Box) -> None:
    runs = box.run("x = 5\ndef f():\n    1 / 0", "y = = 1", "    print(x)\n    print(x)", "f()")
    assert [run.status for run in runs] == ["ok", "error", "ok", "error"]
    assert runs[2].output == "5\n5"
    assert "ZeroDivisionError" in runs[3].error


def test_code_that_does_not_parse_tells_the_scan_nothing(box: Box) -> None:
    alias = "r = os\ndef f(p):\n    return r.remove(p)"
    assert [run.status for run in box.run("r = = 1", alias)] == ["error", "blocked"]


def test_a_warning_of_a_library_shows_no_path_of_this_machine(box: Box) -> None:
    run = box.one("plt.plot([1])\nplt.title('\u6f22')\nplt.savefig('a.png')")
    assert "UserWarning: Glyph" in run.output
    assert "/" not in run.output


def test_a_warning_of_the_compiler_quotes_its_own_line(box: Box) -> None:
    runs = box.run("y = 1 is 1", "print(1)", "x = 1 is 1")
    for run, line in ((runs[0], "y = 1 is 1"), (runs[2], "x = 1 is 1")):
        assert "SyntaxWarning" in run.output
        assert run.output.endswith(line)


def test_an_error_that_poses_as_another_is_still_an_error(box: Box) -> None:
    code = "class Odd(Exception):\n    __class__ = SystemExit\nraise Odd('odd')"
    assert box.one(code).status == "error"


def test_forbidden_code_is_blocked_and_not_run(box: Box) -> None:
    blocked, after = box.run("print('ran')\nos.remove(image_path)", "print(os.path.exists(image_path))")
    assert (blocked.status, blocked.output) == ("blocked", "")
    assert blocked.error == "blocked by policy: os.remove"
    assert after.output == "True"


def test_an_alias_made_in_an_earlier_call_is_still_known_to_the_scan(box: Box) -> None:
    assert box.run("import os as system", "system.unlink('x')")[1].status == "blocked"


def test_a_timeout_keeps_the_state_and_what_was_printed(impatient_box: Box) -> None:
    slow, after = impatient_box.run("kept = 7\nprint('so far')\nwhile True:\n    pass", "print(kept)")
    assert slow.status in ("timeout", "limit")  # depending on the machine's load
    assert slow.output == "so far"
    assert "0.5 s" in slow.error
    assert slow.seconds > 0.4
    assert (after.status, after.output) == ("ok", "7")


def test_running_out_of_time_is_the_doing_of_code_that_had_a_core_for_it(impatient_box: Box) -> None:
    spin = "import time\nbegan = time.process_time()\ntry:\n    while True: print(end='')\n"
    for code in (
        spin + "finally: print(time.process_time() - began)",
        "import time\nprint(0)\ntime.sleep(30)",
    ):
        late = impatient_box.one(code)
        if late.status == "killed":
            pytest.skip("too busy a machine: the alarm came too late")
        # Core seconds, out of 0.5: on a busy machine a loop gets few, or has not begun. The session counts
        # those before and after it too, which are more when its caches are cold.
        own, enough = float(late.output or 0), OWN_TIME * 0.5
        if own > enough + 0.02:
            assert late.status == "timeout"
        elif own < enough - 0.08:
            assert late.status == "limit"
        assert late.error.startswith("TimeoutError")


def test_code_that_refuses_to_stop_is_killed_and_the_next_call_starts_anew(impatient_box: Box) -> None:
    stubborn = """
import time
kept = 7
print('so far')
open('note.txt', 'w').write('still here')
while True:
    try:
        while True: time.sleep(0.01)
    except BaseException: pass
"""
    # The alarm is swallowed; after that only the kill is left.
    killed, lost, note = impatient_box.run(stubborn, "print(kept)", "print(open('note.txt').read())")
    assert (killed.status, killed.output) == ("killed", "so far")
    assert "variables are lost" in killed.error
    assert killed.seconds > 0.9
    assert "name 'kept' is not defined" in lost.error
    assert note.output == "still here"


def test_code_that_ends_its_process_is_killed_not_infra(box: Box) -> None:
    left, after = box.run("print('bye')\nos._exit(0)", "print(1)")
    assert (left.status, left.output) == ("killed", "bye")
    assert after.output == "1"


def test_exit_ends_the_call_and_nothing_else(box: Box) -> None:
    left, after = box.run("a = 1\nexit(2)\na = 2", "print(a)")
    assert (left.status, after.output) == ("ok", "1")


def test_leaving_with_a_text_is_an_error_that_tells_it(box: Box) -> None:
    left, after = box.run("import sys\na = 3\nsys.exit('no such thing')", "print(a)")
    assert (left.status, left.error, after.output) == ("error", "SystemExit: no such thing", "3")


def test_memory_is_limited(box: Box) -> None:
    run = box.one("x = np.ones((3 << 30,), np.uint8)")
    assert run.status == "limit"
    assert "memory" in run.error.lower()


def test_a_file_cannot_grow_beyond_its_limit(box: Box) -> None:
    run = box.one("open('big', 'wb').write(bytes(65 << 20))")
    assert run.status == "error"
    assert "File too large" in run.error


def test_printing_without_end_is_cut(box: Box) -> None:
    run = box.one("while True: print('spam ' * 100)")
    assert run.status == "limit"
    assert "line 1" in run.error
    assert len(run.output) == 8192
    assert "8192 characters" in run.error


def test_code_that_is_too_long_is_an_error(box: Box) -> None:
    assert box.one("#" * 70_000).error == "the code is longer than 65536 characters"


@pytest.mark.parametrize(
    "code",
    [
        "a = __builtins__['__import__']('_socket').socket()",
        "getattr(os, 'fo' + 'rk')()",
        "getattr(os, 'sys' + 'tem')('touch x') and 1/0",
        "getattr(os, 'ki' + 'll')(os.getppid(), 9)",
        "open(image_path, 'w')",
    ],
    ids=["socket", "fork", "system", "kill", "write the input"],
)
def test_the_kernel_refuses_what_the_scan_did_not_see(box: Box, code: str) -> None:
    run, after = box.run(code, "print(image.size, os.path.exists('x'))")
    assert run.status == "error"
    assert after.output == "(400, 300) False"


def test_a_thread_is_refused_with_a_plain_error(box: Box) -> None:
    code = "from threading import Thread\nt = Thread(target=print, args=['hello'])\nt.start()\nt.join()"
    run = box.one(code)
    assert run.status == "error"
    assert "can't start new thread" in run.error


def test_new_pictures_come_back_in_order_of_creation_with_their_own_bytes(box: Box) -> None:
    code = (
        "for n, name in enumerate(['z.png', 'a.jpg', 'm.png']):\n    Image.new('RGB', (20 + n, 9)).save(name)"
    )
    run = box.one(code + "\nfirst = open('z.png', 'rb').read()\nprint(len(first))")
    assert run.names == ("z.png", "a.jpg", "m.png")
    assert [decoded(content).shape for content in run.images] == [(9, 20, 3), (9, 21, 3), (9, 22, 3)]
    assert run.output == str(len(run.images[0]))


def test_a_changed_picture_comes_back_again_and_an_old_one_does_not(box: Box) -> None:
    first, second, third = box.run(
        "image.save('a.png')\nimage.save('b.png')", "image.rotate(90).save('a.png')", "print(1)"
    )
    assert (first.names, second.names, third.names) == (("a.png", "b.png"), ("a.png",), ())


def test_other_formats_come_back_as_png(box: Box) -> None:
    code = "image.save('a.bmp')\nimage.save('b.webp', lossless=True)\nimage.save('c.gif')"
    run = box.one(code, [encoded(picture(64, 48))])
    assert run.names == ("a.bmp", "b.webp", "c.gif")
    assert all(content.startswith(b"\x89PNG") for content in run.images)
    assert np.array_equal(decoded(run.images[1]), picture(64, 48))


def test_what_is_left_out_is_said(box: Box) -> None:
    code = "for n in range(7): Image.new('L', (20, 20)).save(f'p{n}.png')"
    run = box.one(code)
    assert len(run.images) == 5
    assert run.output == "(note: only the first 5 of 7 new pictures are shown)"


def test_a_file_that_is_no_picture_is_said(box: Box) -> None:
    run = box.one(
        "open('fake.png', 'w').write('no')\nopen('cut.png', 'wb').write(open(image_path, 'rb').read()[:900])"
    )
    assert run.images == ()
    assert "fake.png is not shown: it is not a picture" in run.output
    assert "cut.png is not shown" in run.output


def test_a_huge_picture_is_refused_by_its_header(box: Box) -> None:
    run = box.one("Image.new('1', (60_000, 1000)).save('huge.png')")
    assert run.images == ()
    assert "huge.png is not shown: it has 60000000 pixels" in run.output


@pytest.mark.parametrize("call", ["os.symlink", "os.link"])
def test_no_links_can_be_made(box: Box, call: str) -> None:
    code = f"open('real.txt', 'wb').write(open(image_path, 'rb').read())\n{call}('real.txt', 'l.png')"

    async def story() -> Execution:
        async with await box.sandbox.open([encoded(picture())], seed=0) as session:
            return await session.run(code, raw=True)

    run = box.runner.run(story())
    assert (run.status, run.names) == ("error", ())
    assert "PermissionError" in run.error


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("image.show()", "shown_1.png"),
        ("cv2.imshow('w', np.array(image))\ncv2.waitKey(0)\ncv2.destroyAllWindows()", "shown_1.png"),
        ("image.save('/mnt/data/deep/a.png')", "a.png"),
        ("image.save('out/a.png')", "out/a.png"),
        ("n = 3\nimage.save(f'/tmp/crop_{n}.png')", "crop_3.png"),
        ("cv2.imwrite(os.path.join('/home/user', 'a.png'), np.array(image))", "a.png"),
        ("folder = '/mnt/data/'\nimage.save(folder + 'a.png')", "a.png"),
    ],
)
def test_windows_and_invented_folders_end_in_the_workspace(box: Box, code: str, name: str) -> None:
    run = box.one(code)
    assert (run.status, run.names) == ("ok", (name,)), run.error


@pytest.mark.parametrize(
    "path", ["/mnt/data/image_0.png", "./image_0.png", "/path/to/image_0.png", "x/image_0.png"]
)
@pytest.mark.parametrize("read", ["Image.open({}).size", "cv2.imread({}).shape[1::-1]"])
def test_the_input_is_found_under_any_folder(box: Box, path: str, read: str) -> None:
    assert box.one(f"print({read.format(repr(path))})").output == "(400, 300)"


def test_a_figure_comes_back_as_a_picture(box: Box) -> None:
    pytest.importorskip("matplotlib")
    run = box.one("import matplotlib.pyplot as plt\nplt.imshow(image.crop((10, 20, 60, 90)))\nplt.show()")
    assert run.names == ("figure_1.png",)
    assert [(crop.bbox, crop.shown) for crop in run.crops] == [((10, 20, 60, 90), 0)]


def test_the_same_seed_and_code_give_the_same_output_and_pictures(box: Box) -> None:
    code = """
print(random.random(), np.random.rand(), hash("x"), os.path.abspath("a.png"))
cv2.imwrite("a.png", np.random.randint(0, 255, (40, 40, 3)))
"""
    first, again = box.run(code, seed=5)[0], box.run(code, seed=5)[0]
    other = box.run(code, seed=6)[0]
    assert (first.output, first.images) == (again.output, again.images)
    assert first.output != other.output
    assert first.images != other.images


def test_an_input_that_is_no_picture_is_our_error(box: Box) -> None:
    with pytest.raises(DataError, match="input image 0"):
        box.one("print(1)", [b"not a picture"])


def test_64_sessions_run_side_by_side_without_mixing(box: Box) -> None:
    async def story() -> list[str]:
        sessions = await asyncio.gather(*(box.sandbox.open([], seed=n) for n in range(64)))
        await asyncio.gather(*(session.run(f"mine = {n}") for n, session in enumerate(sessions)))
        runs = await asyncio.gather(*(session.run("print(mine)") for session in sessions))
        await asyncio.gather(*(session.close() for session in sessions))
        return [run.output for run in runs]

    assert box.runner.run(story()) == [str(n) for n in range(64)]


def test_info_says_what_isolation_is_in_force(box: Box) -> None:
    info = box.sandbox.info()
    assert info["tier"] == box.sandbox.tier
    assert info["layers"]["seccomp"] is True
    assert info["layers"]["landlock"] or info["layers"]["private_uid"]
    assert (info["tier"] == "namespaces") is info["layers"]["namespaces"]
    assert info["limits"]["seconds"] == 10


def test_a_sandbox_can_be_used_in_one_event_loop_after_another() -> None:
    async def story() -> str:
        async with Sandbox(Limits()) as sandbox, await sandbox.open([], seed=0) as session:
            return (await session.run("print('hello')")).output

    assert [asyncio.run(story()), asyncio.run(story())] == ["hello", "hello"]


@pytest.mark.parametrize(
    "bbox", [[1, 2, 1, 4], [3, 2, 1, 4], [1, 2, float("nan"), 4], [1, 2, float("inf"), 4]]
)
def test_a_reply_with_something_that_is_not_a_box_is_refused(bbox: list[float]) -> None:
    assert crop_of({"image": 0, "bbox": [1, 2, 3, 4], "shown": None}, 1, {}).bbox == (1, 2, 3, 4)
    with pytest.raises(ValueError, match="a crop of the box"):
        crop_of({"image": 0, "bbox": bbox, "shown": None}, 1, {})


def test_files_of_a_lost_process_are_taken_away_while_others_are_served() -> None:
    async def fill(sandbox: Sandbox) -> None:
        session = await sandbox.open([], seed=0)
        place = session.workspace.parent
        run = await session.run("import os\nfor i in range(50000): os.mkdir(f'd{i}')")
        assert (run.status, "variables and files are lost" in run.error) == ("killed", True)
        again = await session.run("print(len(os.listdir('.')))")
        assert (again.status, again.output) == ("ok", "0")
        other = await sandbox.open([], seed=1)
        assert (await other.run("print(1)")).output == "1"
        await other.close()
        await session.close()
        assert not [path for path in place.parent.iterdir() if path == place or path.name.startswith("old-")]

    async def run() -> None:
        async with Sandbox(Limits(workspace_files=300), warm=1) as sandbox:
            await fill(sandbox)

    asyncio.run(run())
