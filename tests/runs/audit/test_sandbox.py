"""`vtune sandbox run` and `vtune sandbox attack`."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import PIL.Image
import pytest

from tests.conftest import HANGS
from tests.report.test_tables import printed
from tests.runs.commands import Ended, vtune
from vtune.errors import INTERRUPTED
from vtune.report.attacks import render_attacks, render_snippet
from vtune.runs.audit import attack as attack_run
from vtune.sandbox.attacks.runner import Result, Tally
from vtune.sandbox.attacks.suite import SHIPPED, Attack

pytestmark = pytest.mark.usefixtures("alone")

HEAD = "# MUST NOT: harm\n# CHECK: canary tree unchanged\n"
INFO = {
    "tier": "flat",
    "layers": {"landlock": 7, "seccomp": True, "namespaces": False},
    "notes": ["namespaces: flat was asked for"],
}


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    PIL.Image.radial_gradient("L").convert("RGB").save(path)
    return path


def typed(code: bytes) -> io.TextIOWrapper:
    """Standard input in the C locale, which passes any byte as a lone surrogate."""
    return io.TextIOWrapper(io.BytesIO(code), encoding="utf-8", errors="surrogateescape")


def run(tmp_path: Path, code: str, *words: str | Path) -> Ended:
    file = tmp_path / "snippet.py"
    file.write_text(code)
    return vtune("sandbox", "run", file, *words)


def test_a_snippet_shows_what_it_printed_and_cropped(tmp_path: Path, photo: Path) -> None:
    code = "part = image.crop((1, 2, 31, 42))\npart.save('out/part.png')\nprint(image.size)"
    out = tmp_path / "kept"
    ended = run(tmp_path, code, "--image", photo, "--out", out, "--json")
    assert ended.code == 0, ended.err
    result = json.loads(ended.out)
    assert (result["status"], result["output"], result["error"]) == ("ok", "(256, 256)", "")
    assert result["crops"] == [{"bbox": [1.0, 2.0, 31.0, 42.0], "image": 0, "shown": 0}]
    (shown,) = result["images"]
    assert (shown["name"], shown["width"], shown["height"]) == ("out/part.png", 30, 40)
    assert Path(shown["path"]).parent == out
    assert PIL.Image.open(shown["path"]).size == (30, 40)


def test_failing_code_exits_with_1_and_the_reason(tmp_path: Path) -> None:
    ended = run(tmp_path, "print('before')\n1 / 0")
    assert ended.code == 1
    assert "ZeroDivisionError" in ended.out
    assert "before" in ended.out


def test_code_is_scanned_like_a_models_code(tmp_path: Path) -> None:
    ended = run(tmp_path, "import subprocess", "--json")
    assert (ended.code, json.loads(ended.out)["status"]) == (1, "blocked")


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", typed(b"print(6 * 7)"))
    assert json.loads(vtune("sandbox", "run", "-", "--json").out)["output"] == "42"


@pytest.mark.parametrize(
    ("stream", "why"),
    [(typed(b"print('\xe9')"), "write it in UTF-8"), (None, "closed"), (typed(b"#" * (17 << 20)), "16 MiB")],
    ids=["Latin-1", "closed", "too long"],
)
def test_standard_input_without_code_gives_a_message(
    monkeypatch: pytest.MonkeyPatch, stream: io.TextIOWrapper | None, why: str
) -> None:
    monkeypatch.setattr("sys.stdin", stream)
    ended = vtune("sandbox", "run", "-")
    assert ended.code == 2
    assert "standard input" in ended.err
    assert why in ended.err


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    assert run(tmp_path, "\ufeffprint(6 * 7)").code == 0


def test_the_seed_determines_random_numbers(tmp_path: Path) -> None:
    drawn = [run(tmp_path, "print(random.random())", "--seed", seed).out.split()[-1] for seed in "112"]
    assert drawn[0] == drawn[1] != drawn[2]


def test_an_unreadable_file_exits_with_2(tmp_path: Path, photo: Path) -> None:
    missing = vtune("sandbox", "run", tmp_path / "none.py")
    assert (missing.code, missing.out) == (2, "")
    assert "the code cannot be read" in missing.err
    assert run(tmp_path, "print(1)", "--image", tmp_path / "none.png").code == 2
    photo.write_bytes(photo.read_bytes()[:-100])
    cut = run(tmp_path, "print(1)", "--image", photo)
    assert (cut.code, "it is damaged" in cut.err) == (2, True)
    photo.write_bytes(b"no picture")
    broken = run(tmp_path, "print(1)", "--image", photo)
    assert broken.code == 2
    assert "this is not a picture" in broken.err
    assert str(photo) in broken.err
    (tmp_path / "file").touch()
    blocked = run(tmp_path, "Image.new('L', (9, 9)).save('a.png')", "--out", tmp_path / "file" / "x")
    assert blocked.code == 2
    assert "cannot be written" in blocked.err


def test_a_bad_suite_exits_with_2_and_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print(1)")
    ended = vtune("sandbox", "attack", "--dir", tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert "# MUST NOT:" in ended.err
    assert str(tmp_path / "a.py") in ended.err
    assert vtune("sandbox", "attack", "--dir", tmp_path / "none").code == 2


def test_the_shipped_suite_can_be_read() -> None:
    from vtune.sandbox.attacks.suite import read_suite

    attacks = read_suite(SHIPPED)
    assert len(attacks) > 20
    assert all(attack.layer for attack in attacks)


def test_a_suite_without_breaches_exits_with_0_and_one_with_breaches_with_1(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(HEAD + "open('{{CANARY}}/new.txt', 'w')")
    held = vtune("sandbox", "attack", "--dir", tmp_path, "--json")
    assert held.code == 0, held.err
    result = json.loads(held.out)
    assert (result["held"], result["breached"], result["skipped"]) == (1, 0, 0)
    assert {
        "name",
        "must_not",
        "check",
        "held",
        "breaches",
        "status",
        "seconds",
        "note",
        "stopped_by",
    } <= set(result["attacks"][0])
    control = vtune(
        "sandbox", "attack", "--dir", tmp_path, "--isolation", "flat", "--without", "landlock", "--json"
    )
    assert control.code == 1, control.err
    result = json.loads(control.out)
    assert (result["held"], result["breached"], result["without"]) == (0, 1, ["landlock"])
    # Without landlock, files that other tests leave in public folders count, too.
    assert any("new.txt is new" in breach for breach in result["attacks"][0]["breaches"])


def told(outcome: str, name: str = "a", **more: object) -> Result:
    attack = Attack(
        name=name,
        path=Path("a.py"),
        must_not="read [secrets]",
        check="refused",
        soft=2.0,
        weak_ok=True,
        layer="",
        source="",
    )
    return Result(attack=attack, outcome=outcome, **more)  # type: ignore[arg-type]


def test_a_known_leak_is_listed_but_is_not_a_breach(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run_suite(attacks: object, **options: object) -> Tally:
        leak = told("allowed leak", status="ok", breaches=("printed the size of a host file",), note="known")
        return Tally(info=INFO, results=(told("held", status="ok"), leak, told("skipped")))

    monkeypatch.setattr(attack_run, "run_suite", run_suite)
    ended = vtune("sandbox", "attack", "--json")
    result = json.loads(ended.out)
    assert ended.code == 0
    assert [result[count] for count in ("held", "breached", "allowed", "skipped")] == [1, 0, 1, 1]
    assert [row["held"] for row in result["attacks"]] == [True, False, False]


def test_an_attack_that_cannot_run_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run_suite(attacks: object, **options: object) -> Tally:
        return Tally(info=INFO, results=(told("held"), told("error", note="nothing is known")))

    monkeypatch.setattr(attack_run, "run_suite", run_suite)
    ended = vtune("sandbox", "attack", "--json")
    result = json.loads(ended.out)
    assert (ended.code, result["held"], result["breached"], result["errors"]) == (1, 1, 0, 1)
    text = printed(render_attacks(result), width=160)
    assert "ERROR" in text
    assert "1 held, 0 breached, 1 that could not be run" in text


def test_an_interrupted_suite_leaves_nothing_behind(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    # Unix socket paths must be short, and pytest's folders are deep.
    temporary = Path(tempfile.mkdtemp())
    request.addfinalizer(lambda: shutil.rmtree(temporary))
    # A shell makes its background jobs ignore Ctrl-C, but not SIGTERM.
    (tmp_path / "a.py").write_text(HEAD + "# SOFT: 60\nopen('here', 'w')\nwhile True: pass")
    command = [sys.executable, "-m", "vtune.cli.main", "sandbox", "attack", "--dir", tmp_path]
    running = subprocess.Popen(
        command,
        env=os.environ | {"TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    try:
        ends = time.monotonic() + HANGS
        while not list(temporary.rglob("here")) and time.monotonic() < ends:
            time.sleep(0.02)
        assert list(temporary.glob("vtune-canary-*"))
        running.send_signal(signal.SIGTERM)
        assert running.wait(HANGS) == INTERRUPTED
    finally:
        running.kill()
    assert list(temporary.iterdir()) == []


def test_a_folder_too_deep_for_a_socket_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    ended = vtune("sandbox", "attack", "--only", "info_stat")
    assert ended.code == 2
    assert "set TMPDIR to a folder with a shorter name" in ended.err
    assert list(deep.iterdir()) == []


def test_the_table_distinguishes_breaches() -> None:
    breach = told("breach", "b", status="ok", breaches=("host file: x is gone",), stopped_by="")
    held = told("held", status="killed", seconds=2.512, stopped_by="seccomp")
    rows = [attack_run._row(result) for result in (held, breach)]
    result = INFO | {
        "without": ["uid"],
        "attacks": rows,
        "held": 1,
        "breached": 1,
        "allowed": 0,
        "skipped": 2,
        "errors": 0,
    }
    text = printed(render_attacks(result), width=160)
    assert "tier flat; layers: landlock ABI 7, seccomp on, namespaces off" in text
    assert "NEGATIVE CONTROL: run without uid" in text
    assert "note: namespaces: flat was asked for" in text
    assert "1 held, 1 breached, 2 skipped" in text
    assert "read [secrets]" in text
    (line,) = [line for line in text.splitlines() if "BREACH" in line]
    assert " b " in line
    assert "host file: x is gone" in text
    assert "2.51" in next(line for line in text.splitlines() if "seccomp" in line and "killed" in line)


def test_a_snippets_turn_is_shown_in_full() -> None:
    result = {
        "tier": "flat",
        "status": "error",
        "seconds": 0.01234,
        "output": "one\ntw\x1b[2Jo",
        "error": "ValueError: [x]",
        "images": [{"name": "a.png", "width": 3, "height": 4, "bytes": 70, "path": None}],
        "crops": [{"bbox": [1.0, 2.5, 3.0, 4.0], "image": 0, "shown": None}],
    }
    assert printed(render_snippet(result)).splitlines() == [
        "error in 0.012 s, tier flat",
        "output:",
        "  one",
        "  tw\ufffd[2Jo",
        "error:",
        "  ValueError: [x]",
        "picture 0: a.png, 3x4, 70 bytes",
        "crop: (1, 2.5, 3, 4) of input 0, not shown",
    ]
