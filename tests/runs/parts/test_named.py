"""An invalid result of a user's part is reported with file, line and what to return instead."""

import asyncio
import os
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest

from tests.conftest import ROOT
from tests.runs.parts.test_parts import broken
from vtune.environments.tools import ToolEpisode
from vtune.errors import BrokenPart, DataError, RunFailed
from vtune.reward.checking import check_unscored
from vtune.runs.audit.faithfulness import _keep
from vtune.runs.parts.checks.check import gradient
from vtune.sandbox import ShownCrop
from vtune.tools.observation import Observation, unfit
from vtune.tools.toolbox import Toolbox
from vtune.uses import use
from vtune.verifiers.worker import called

OWN = ROOT / "tests/own"


pytestmark = pytest.mark.usefixtures("forgetting")


def changed(folder: Path, name: str, old: str, new: str) -> Path:
    text = (OWN / name).read_text()
    assert old in text
    path = folder / "mine.py"
    path.write_text(text.replace(old, new))
    return path


def line_of(path: Path, text: str) -> str:
    (number,) = [k for k, line in enumerate(path.read_text().splitlines(), 1) if text in line]
    return f"(mine.py:{number})"


GIVES = 'return shown(f"Turned'
CASES: dict[str, tuple[str, str, str, str, str, str]] = {
    "a tool that gives a text": (
        *("rotate.py", GIVES, "return 'hello'\n        " + GIVES, "async def run"),
        *("TypeError: it returns str, not Observation", "correct the line"),
    ),
    "a tool that gives no picture": (
        *("rotate.py", "[out.getvalue()]", "[b'not a picture']", "async def run"),
        "ValueError: it returned no picture: a picture cannot be decoded: it is not a picture",
        "return PNG or JPEG bytes",
    ),
    "an environment that gives one act": (
        *("maze.py", '": named[0]}))]', '": named[0]}))][0]', "async def observe"),
        *("TypeError: `observe` returns Act, not a list of Act", "return `[Act("),
    ),
    "a part of the reward out of its bounds": (
        *("brief.py", "return Verdict(", "return Verdict(-0.5, 'x') or Verdict(", "async def brief"),
        *("ValueError: it scores -0.5, outside of [0, 1]", "low=-0.5"),
    ),
    "a part of the reward that raises": (
        *("brief.py", "    words = len(", "    {}['x']\n    words = len(", "{}['x']"),
        *("KeyError: 'x'", "correct the line"),
    ),
    "a tool that raises": (
        *("rotate.py", GIVES, "{}['x']\n        " + GIVES, "{}['x']"),
        *("KeyError: 'x'", "correct the line; Mistake is for"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_one_mistake_is_reported_once_with_its_line_and_fix(tmp_path: Path, case: str) -> None:
    name, old, new, at, what, fix = CASES[case]
    path = changed(tmp_path, name, old, new)
    (told,) = broken(path).values()
    assert what in told
    assert line_of(path, at) in told
    assert fix in told


@pytest.mark.parametrize("own", [True, False])
def test_bytes_that_are_not_a_picture_end_the_run_for_a_custom_tool(tmp_path: Path, own: bool) -> None:
    path = changed(tmp_path, "rotate.py", "ANGLES", "ANGLES")
    use([path] if own else [])
    pictures = Mock(load=AsyncMock(side_effect=DataError("a picture cannot be decoded")))
    name = "rotate_tool" if own else "image_zoom_in_tool"
    services = Mock(pictures=pictures, tools=Toolbox({name: Mock()}))
    start = Mock(sample=Mock(tools=(name,)), services=services)
    usable = ToolEpisode(start, None)._usable(name, Observation(text="<image>", images=(b"",), status="ok"))
    if not own:
        assert asyncio.run(usable).error == f"tool `{name}` returned no picture: a picture cannot be decoded"
        return
    with pytest.raises(BrokenPart, match=r"tool `rotate_tool` of mine\.py is broken: .*no picture") as told:
        asyncio.run(usable)
    assert told.value.where.startswith(str(path))
    assert told.value.__cause__ is not None


@pytest.mark.parametrize(
    ("bbox", "fits"),
    [
        ((0.0, 0.0, 64.0, 48.0), True),
        ((-0.5, 0.0, 64.9, 48.0), True),
        ((0.0, 0.0, 66.0, 48.0), False),
        ((-2.0, 0.0, 30.0, 30.0), False),
        ((0.0, 0.0, 5000.0, 5000.0), False),
    ],
)
def test_a_region_must_lie_in_its_picture_up_to_rounding(bbox: tuple[float, ...], fits: bool) -> None:
    crop = ShownCrop(bbox=bbox, image=0, shown=None)  # type: ignore[arg-type]
    seen = Observation(text="", status="ok", crops=(crop,))
    assert (unfit(seen, [gradient()]) == "") is fits
    assert unfit(seen, [None]) == ""
    assert fits or "picture 0 has 64x48 pixels" in unfit(seen, [gradient()])


def test_a_slow_verifier_is_named_with_its_file_and_a_working_fix(tmp_path: Path) -> None:
    path = changed(tmp_path, "anls.py", "TOO_FAR", "TOO_FAR")
    use([path])
    assert (called("anls"), called("math")) == ("verifier `anls` of mine.py", "verifier `math`")
    why = f"accuracy: {called('anls')} gave no verdict in 30 s"
    lost = Mock(sample_id="s/1", reward=Mock(total=None, why=why))
    with pytest.raises(RunFailed, match=r"of mine\.py gave no verdict") as told:
        check_unscored([lost], 0.05)
    assert told.value.fix.startswith(f"make {path} faster, and start a new run")
    assert "continue with --resume" not in told.value.fix
    lost.reward.why = f"accuracy: the worker of {called('anls')} died"
    with pytest.raises(RunFailed, match="unscored") as failed:
        check_unscored([lost], 0.05)
    assert failed.value.fix.startswith(f"correct {path}, which ends its process, and start a new run")


def test_a_verifier_slow_in_a_worker_gets_no_advice_to_use_one(tmp_path: Path) -> None:
    path = changed(tmp_path, "anls.py", "partial_credit=True", "partial_credit=True, in_worker=True")
    path.write_text(path.read_text().replace("    check(sample)\n", "    import time; time.sleep(0.21)\n", 1))
    assert "say in_worker" not in (told := broken(path)["fast enough"])
    assert "do less" in told


def test_an_audit_that_cannot_be_saved_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    (tmp_path / "audit.json").write_text("{}")
    _keep(tmp_path, {"all": {"no_shares": ""}}, {})
    told = capsys.readouterr().err
    assert f"warning: {tmp_path} cannot be written to: its audit.json is of an earlier audit" in told
