"""What a user's part does behind the command's back is noticed, and named with its file."""

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.conftest import HANGS, ROOT
from tests.runs.commands import environment
from tests.schema.records import SAMPLE
from vtune.cli import waiting
from vtune.cli.waiting import Waiting
from vtune.errors import BrokenPart, RecipeError
from vtune.metrics.scored import scored_by
from vtune.runs.agent import tools
from vtune.runs.agent.tools import ToolsRecipe, tools_of
from vtune.update.losses import Tokens
from vtune.update.losses.section import read_loss
from vtune.update.objective import policy_terms
from vtune.uses import use
from vtune.verifiers import verdict_on

pytestmark = pytest.mark.usefixtures("forgetting")

OWN = ROOT / "tests/own"
ASKED = replace(SAMPLE, verifier="anls", ground_truth="red", verifier_parm={})
FIRST = "    check(sample)\n"


def own(folder: Path, does: str, *, before: str = FIRST, file: str = "anls.py") -> Path:
    """A user's file that does something more at the beginning of its function, or where it is loaded."""
    text = (OWN / file).read_text(encoding="utf-8")
    assert before in text
    path = folder / file
    path.write_text(
        text.replace(before, f"{before[: len(before) - len(before.lstrip())]}{does}\n{before}", 1)
    )
    return path


def test_a_verifier_cannot_end_the_command_as_if_it_had_succeeded(tmp_path: Path) -> None:
    use([path := own(tmp_path, "__import__('os')._exit(0)")])
    with pytest.raises(
        BrokenPart, match=r"verifier `anls` of anls.py is broken: RuntimeError: os._exit\(0\)"
    ) as e:
        verdict_on("<answer>red</answer>", ASKED)
    assert SAMPLE.id in e.value.what
    assert e.value.where.startswith(f"{path}:")


def test_a_library_of_a_verifier_that_ends_the_command_is_named(tmp_path: Path) -> None:
    path = own(tmp_path, "__import__('ctypes').CDLL(None).exit(0)")
    check = [sys.executable, "-m", "vtune.cli.main", "parts", "check", str(path)]
    done = subprocess.run(check, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 1
    assert "verifier `anls` of anls.py is broken: RuntimeError: a library that it calls ended" in done.stderr
    assert f"(sample 'check/1')\n  at   {path}:" in done.stderr


def test_a_file_that_ends_the_process_while_it_is_loaded_is_named(tmp_path: Path) -> None:
    path = own(tmp_path, "from os import _exit; _exit(0)", before="TOO_FAR")
    with pytest.raises(RecipeError, match=r"cannot be loaded: RuntimeError: os._exit\(0\)"):
        use([path])


def test_a_process_that_a_part_has_forked_may_end(tmp_path: Path) -> None:
    forks = "pid = os.fork(); pid or os._exit(7); sample.extra['s'] = os.waitpid(pid, 0)[1]"
    use([own(tmp_path, f"import os; {forks}")])
    asked = replace(ASKED, extra={})
    assert verdict_on("<answer>red</answer>", asked).score == 1
    assert os.waitstatus_to_exitcode(asked.extra["s"]) == 7  # type: ignore[arg-type]


@pytest.mark.parametrize("fails", ["", "; 1 / 0"])
def test_a_verifier_leaves_the_working_folder_as_it_is(tmp_path: Path, fails: str) -> None:
    use([own(tmp_path, f"from contextlib import chdir; chdir('/').__enter__(){fails}")])
    before = Path.cwd()
    with pytest.raises(
        BrokenPart, match="ZeroDivision" if fails else "it changes the working folder to /: use full"
    ):
        verdict_on("<answer>red</answer>", ASKED)
    assert Path.cwd() == before


@pytest.mark.parametrize("moves", ["os.chdir('/')", "contextlib.chdir('/').__enter__()"])
def test_a_file_that_moves_the_process_while_it_is_loaded_is_refused(moves: str, tmp_path: Path) -> None:
    path, before = own(tmp_path, f"import os, contextlib; {moves}", before="TOO_FAR"), Path.cwd()
    with pytest.raises(RecipeError, match=r"cannot be loaded: RuntimeError: .* the w.*: use full paths"):
        use([path])
    assert Path.cwd() == before


def test_no_part_moves_the_process(tmp_path: Path) -> None:
    """Also a scorer, whose calls are not watched as those of a verifier are."""
    use([path := own(tmp_path, "__import__('os').chdir('/')", before="    by_source", file="worst.py")])
    before = Path.cwd()
    with pytest.raises(BrokenPart, match=r"os.chdir\('/'\) would move the whole command: use full") as e:
        scored_by("worst", [])
    assert e.value.where.startswith(f"{path}:")
    assert Path.cwd() == before


def test_a_part_may_be_elsewhere_for_a_moment(tmp_path: Path) -> None:
    use([own(tmp_path, "import contextlib\n    with contextlib.chdir('/'): pass")])
    assert verdict_on("<answer>red</answer>", ASKED).score == 1


@pytest.mark.parametrize("field", ["advantages", "old_logprobs"])
def test_a_loss_that_changes_its_tokens_in_place_is_an_error(tmp_path: Path, field: str) -> None:
    use([own(tmp_path, f"tokens.{field}.mul_(2)", before="    likely = ", file="pushes.py")])
    recipe = read_loss({"algorithm": "pushes", "kl_weight": 0.0, "fade": 1.0})
    now = torch.tensor([-0.1, -0.2], requires_grad=True)
    one = torch.zeros(2, dtype=torch.long)
    tokens = Tokens(now, torch.tensor([-0.1, -0.2]), torch.tensor([0.5, -0.5]), one > 0, one)
    with pytest.raises(BrokenPart, match=f"it changes `tokens.{field}`"):
        policy_terms(recipe, tokens)


@pytest.mark.parametrize("when", ["opens", "closes"])
def test_a_tool_that_does_not_open_or_close_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], when: str
) -> None:
    monkeypatch.setattr(waiting, "LOOK", 0.01)
    monkeypatch.setattr(tools, "OPENING", 0.05)
    late = "import asyncio; await asyncio.sleep(0.5)"
    path = own(tmp_path, late, before="    yield Rotate()", file="rotate.py")
    if when == "closes":
        path.write_text(
            (OWN / "rotate.py").read_text().replace("    yield Rotate()", f"    yield Rotate()\n    {late}")
        )
    use([path])

    async def run() -> None:
        async with tools_of(ToolsRecipe.model_validate({"rotate_tool": {}}), tmp_path / "record.jsonl"):
            pass

    with Waiting():
        asyncio.run(run())
    said = capsys.readouterr().err
    assert said.startswith("tool `rotate_tool` of rotate.py has not returned for 0 s: it is at rotate.py:")
    assert "(import asyncio; await" in said
    assert said.count("has not returned") < 6  # the wait doubles; there are 50 looks


def test_a_thread_that_keeps_the_process_from_ending_is_named(tmp_path: Path) -> None:
    lives = "(threading.main_thread().join(), time.sleep(3))"
    starts = f"import threading, time\nthreading.Thread(target=lambda: {lives}).start()"
    path = own(tmp_path, starts, before="TOO_FAR")
    code = (
        "import sys; from vtune.cli import ending, main; ending.THREADS_S = 0.1; "
        "sys.argv = ['vtune', 'parts', 'list', sys.argv[1]]; main.start()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, path],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=HANGS,
        check=False,
    )
    assert ended.returncode == 0
    assert "done, but waiting for the thread Thread-1 (<lambda>), at anls.py:" in ended.stderr
