"""`vtune parts`: listing parts, and checking that a user's file meets the contract of its kind."""

import asyncio
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.runs.commands import vtune
from tests.schema.records import SAMPLE
from vtune.errors import RecipeError, SandboxUnavailable, ServiceError
from vtune.parts import OURS
from vtune.registry import first_line
from vtune.runs.parts.checks import check as checking
from vtune.runs.parts.checks.verifier import near_misses
from vtune.runs.parts.parts import ROOMS, check_parts, contract_of, list_parts
from vtune.sandbox import Sandbox
from vtune.schema.sample import Sample
from vtune.uses import forget, use, used
from vtune.verifiers import verdict_on
from vtune.verifiers.perfect import check_full_marks
from vtune.verifiers.verifying import Verifying

OWN = ROOT / "tests/own"


pytestmark = pytest.mark.usefixtures("forgetting")


def broken(path: Path) -> dict[str, str]:
    """Name of the check -> what is broken and the fix."""
    found: list[dict[str, Any]] = check_parts([path])["parts"]
    assert {part["file"] for part in found} == {str(path)}
    checks = [check for part in found for check in part["checks"]]
    assert all(bool(check["fix"]) is not check["ok"] for check in checks)
    return {check["name"]: f"{check['found']}: {check['fix']}" for check in checks if not check["ok"]}


def test_every_kind_is_listed_and_checked() -> None:
    assert set(OURS) == set(ROOMS)
    assert all(callable(contract_of(kind)) for kind in OURS)


def test_a_wrapped_first_sentence_is_listed_in_full() -> None:
    def part() -> None:
        """Score a reply by what it says
        about the picture.

        More of it.
        """

    assert first_line(part) == "Score a reply by what it says about the picture."


def test_built_in_and_user_parts_are_listed_one_per_line() -> None:
    parts = list_parts([OWN / "anls.py"])["parts"]
    assert len(parts) == sum(map(len, OURS.values())) + 1
    assert all(part["about"] and "\n" not in part["about"] for part in parts)
    (own,) = [part for part in parts if part["file"]]
    assert (own["kind"], own["name"], own["file"]) == ("verifier", "anls", str(OWN / "anls.py"))


@pytest.mark.parametrize(
    "file",
    [
        *("anls.py", "rotate.py", "short.py", "lines.py", "maze.py", "near.py", "brief.py", "pushes.py"),
        *("worst.py", "terse.py", "cards.py"),
    ],
)
def test_a_good_part_passes_every_check(file: str) -> None:
    found = check_parts([OWN / file])
    assert found["ok"]
    assert found["parts"][0]["checks"]


@pytest.mark.parametrize(
    ("old", "new", "check", "found"),
    [
        ("1.0 - share if", "0.9 - share if", "the gold answer earns full marks", "scores 0.9, not 1"),
        ("return no_answer(sample)", "return answered(0.5, '')", "no answer earns nothing", "scores 0.5"),
        ("return no_answer(sample)", "return answered(0.0, '')", "no answer earns nothing", '"unreadable"'),
        ("TOO_FAR else 0.0", "TOO_FAR else 0.1", "a wrong answer earns nothing", "scores 0.1, not 0"),
        ("raise DataError(", "return  # (", "a broken ground truth is an error", "raise DataError"),
        ("    options(sample", "    (sample", "an unknown option is an error", "`options(sample"),
        (
            "partial_credit=True,",
            "",
            "scores are as `partial_credit` says",
            "scores 0.9: say partial_credit=True",
        ),
        (
            "    check(sample)",
            "    import time; time.sleep(0.006)",
            "fast enough",
            "say in_worker=True",
        ),
        ("share:.2f", "missing:.2f", "the gold answer earns full marks", "NameError"),
        (
            "TOO_FAR else 0.0",
            "TOO_FAR else -0.1",
            "scores are as `partial_credit` says",
            "scores -0.1: let scores",
        ),
        ('f"{share:.2f} of the text differs"', "''", "every verdict has a reason", "is '': give the reason"),
        (
            "    check(sample)",
            "    check(sample)\n    sample.verifier_parm['answer_in'] = 'tag'",
            "the sample is not changed",
            "copy what you change",
        ),
        (
            "    check(sample)",
            "    check(sample)\n    global TOO_FAR\n    TOO_FAR = 0.5 - TOO_FAR",
            "the same reply scores the same",
            "must not depend on chance or state",
        ),
        (
            "    check(sample)",
            "    from vtune.verifiers.verifier import undecided\n    raise undecided('?', sample)",
            "the gold answer earns full marks",
            "the verifier leaves an answer to a model: say asks_judge=True",
        ),
        (
            "partial_credit=True,",
            "partial_credit=True, right=lambda sample: 'none',",
            "the ground truth earns full marks",
            "the ground truth itself earns 0",
        ),
        (
            "partial_credit=True,",
            "partial_credit=True, reads_outcome=True,",
            "a broken ground truth is an error",
            "verify takes no outcome: raise DataError",
        ),
    ],
)
def test_a_verifier_that_breaks_its_contract_is_found(
    tmp_path: Path, old: str, new: str, check: str, found: str
) -> None:
    text = (OWN / "anls.py").read_text()
    assert old in text
    path = tmp_path / "mine.py"
    path.write_text(text.replace(old, new))
    assert found in broken(path)[check]


def test_partial_credit_for_near_misses_is_found(tmp_path: Path) -> None:
    text = (OWN / "anls.py").read_text().replace("partial_credit=True,", "")
    assert "1.0 - share if share < TOO_FAR else" in text
    text = text.replace(
        "1.0 - share if share < TOO_FAR else", "1.0 if not share else 0.5 if said in NEAR else"
    )
    path = tmp_path / "mine.py"
    path.write_text(text.replace("TOO_FAR = 0.5", "NEAR = ('no parkinh',)"))
    (found,) = broken(path).values()
    assert "'<answer>NO PARKINH</answer>' scores 0.5: say partial_credit=True" in found


@pytest.mark.parametrize(
    ("gold", "some"),
    [("12", {"11", "13", "11.9"}), ("B", {"A", "C"}), ("light blue", {"blue", "light", "light bluf"})],
)
def test_near_misses_are_not_the_answer_itself(gold: str, some: set[str]) -> None:
    found = near_misses(gold)
    assert some <= {*found}
    assert gold not in found


def left_to_a_model(folder: Path) -> Path:
    """A user's own verifier that leaves only near misses to a model."""
    text = (OWN / "anls.py").read_text()
    text = text.replace("answered, given_answer", "answered, given_answer, undecided")
    near = "    if 0.0 < share < TOO_FAR:\n        raise undecided(answer, sample)\n    return answered("
    text = text.replace("    return answered(", near).replace('{"answer_in"}', '{"answer_in", "unit"}')
    path = folder / "mine.py"
    path.write_text(text.replace("partial_credit=True,", "asks_judge=True,"))
    return path


def test_a_custom_verifier_may_combine_a_rule_with_a_model(tmp_path: Path) -> None:
    assert broken(left_to_a_model(tmp_path)) == {}
    forget(used())
    use([tmp_path / "mine.py"])
    asked = replace(SAMPLE, verifier="anls", ground_truth="NO PARKING", verifier_parm={"unit": "m"})
    seen: list[str] = []

    async def model(answer: str, sample: Sample) -> bool:
        seen.append(answer)
        return True

    async def scores(*answers: str) -> list[float]:
        async with Verifying() as verifying:
            replies = [f"<answer>{answer}</answer>" for answer in answers]
            return [(await verifying.verify(one, asked, judge=model)).score for one in replies]

    assert asyncio.run(scores("no  parking", "NO PARKIN", "keep out of here")) == [1.0, 1.0, 0.0]
    assert seen == ["NO PARKIN"]
    check_full_marks(asked, None)
    with pytest.raises(ServiceError, match="only a judge can tell whether 'NO PARKIN' is right"):
        verdict_on("<answer>NO PARKIN</answer>", asked)


def test_a_possibly_slow_combined_verifier_runs_in_a_separate_process(tmp_path: Path) -> None:
    path = left_to_a_model(tmp_path)
    text = path.read_text().replace("asks_judge=True,", "asks_judge=True, in_worker=True,")
    text = text.replace("0.0 < share < TOO_FAR", "share < TOO_FAR")
    text = text.replace('f"{share:.2f} of the text differs"', 'f"seen by {os.getpid()}"')
    path.write_text(text.replace("from vtune", "import os\nfrom vtune", 1))
    assert broken(path) == {}
    forget(used())
    use([path])
    asked = replace(SAMPLE, verifier="anls", ground_truth="NO PARKING", verifier_parm={})
    seen: list[str] = []

    async def model(answer: str, sample: Sample) -> bool:
        seen.append(answer)
        return True

    async def reasons(*answers: str) -> list[str]:
        async with Verifying(workers=1) as verifying:
            replies = [f"<answer>{answer}</answer>" for answer in answers]
            return [(await verifying.verify(one, asked, judge=model)).why for one in replies]

    by_rule, by_model = asyncio.run(reasons("keep out of here", "NO PARKIN"))
    assert by_rule.startswith("seen by")
    assert by_rule != f"seen by {os.getpid()}"
    assert by_model == "the judge finds 'NO PARKIN' the same as 'NO PARKING'"
    assert seen == ["NO PARKIN"]


BROUGHT = (
    "from vtune.errors import ServiceError\nfrom vtune.sections import Strict\nfrom vtune.tools import TOOLS"
)
TURNING = "\n\nclass Turning(Strict):\n    step: int\n"
"""A section with a required key."""


@pytest.mark.parametrize(
    ("old", "new", "check", "found"),
    [
        (', example={"angle": 90}', "", "the tool opens and answers a call", "give ToolPart an `example`"),
        ("\\n{IMAGE_MARK}", "", "the tool opens and answers a call", "text has 0 <image> for 1"),
        ("check_names(arguments, self.schema)", "pass", "bad arguments are the model's mistake", "KeyError"),
        (
            'angle = arguments["angle"]',
            'angle = int(arguments["angle"])',
            "odd values are the model's mistake",
            "TypeError",
        ),
        (
            "raise Mistake(f",
            "raise ValueError(f",
            "odd values are the model's mistake",
            "ValueError: angle is one of 90, 180",
        ),
        (
            "raise Mistake(f",
            "raise ServiceError(f",
            "odd values are the model's mistake",
            '{"angle": null} ends as infra',
        ),
        (
            '"enum": list(ANGLES)',
            '"enum": set(ANGLES)',
            "the tool opens and answers a call",
            "the schema is not JSON",
        ),
        (
            'opened=opened, example={"angle": 90}',
            'opened=opened, recipe=Turning, settings={"steps": 1}, example={"angle": 90}',
            "the tool opens and answers a call",
            "`step`: field required; `steps`: extra inputs are not permitted: give ToolPart `settings`",
        ),
        ("yield Rotate()", "raise OSError('no disk')\n    yield", "fast enough", "no call was answered"),
        (
            "        angle, out = int(self.key(arguments, scene)), io.BytesIO()",
            "        self.turned = angle = getattr(self, 'turned', 0) + 90\n        out = io.BytesIO()",
            "the same call gives the same",
            "gives a different result after other calls",
        ),
        (
            "        angle, out = int(",
            "        scene.sample.extra['turned'] = True\n        angle, out = int(",
            "the sample is not changed",
            "copy what you change",
        ),
        (
            '.convert("RGB")',
            "",
            "other kinds of pictures are accepted",
            'of a picture that is CMYK, {"angle": 90} raises OSError: cannot write mode CMYK as PNG',
        ),
        (
            "opened=opened,",
            "opened=opened, check=lambda section: 1 / 0,",
            "the tool opens and answers a call",
            "division by zero",
        ),
        (
            "opened=opened,",
            "opened=opened, check_sample=lambda section, sample: sample.extra['map'],",
            "the tool opens and answers a call",
            "KeyError: 'map'",
        ),
        ("opened=opened,", "opened=None,", "the tool opens and answers a call", "give ToolPart `opened`"),
        (
            ", matrix=back(angle, *picture.size)",
            "",
            "pictures show the stated regions",
            "a red flag (`faked`)",
        ),
        (
            "return (0, -1, width, 1, 0, 0)",
            "return (0, 1, 0, -1, 0, height)",
            "pictures show the stated regions",
            "a red flag",
        ),
        (
            "return (0, -1, width, 1, 0, 0)",
            "return (0, 0, 0, 0, 0, 0)",
            "pictures show the stated regions",
            "no way back",
        ),
    ],
)
def test_a_tool_that_breaks_its_contract_is_found(
    tmp_path: Path, old: str, new: str, check: str, found: str
) -> None:
    text = (OWN / "rotate.py").read_text()
    assert old in text
    path = tmp_path / "mine.py"
    text = text.replace(old, new).replace("from vtune.tools import TOOLS", f"{BROUGHT}{TURNING}")
    path.write_text(text)
    assert found in broken(path)[check]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("", "", ""),
        (
            "TILES[4 * row + column]",
            '"b2"',
            'the call of `look` for [176.0, 120.0, 224.0, 184.0], {"tile": "b2"}, shows [64',
        ),
        ("TILES[4 * row + column]", '"e9"', "ends as error: tile is one of"),
        (
            ", [ShownCrop(bbox=tuple(map(float, box)), image=0, shown=0)]",
            "",
            "does not say which region a picture",
        ),
        ("place % 4 * width, place // 4 * height", "0, 0", "shows [0.0, 0.0, 64.0, 48.0]"),
        (
            "        left, top",
            "        width, height = picture.size\n        place, left, top = 0, 0, 0\n        left, top",
            "the calls of `look` for 3 regions all show [0.0, 0.0, 256.0, 192.0]",
        ),
    ],
)
def test_a_tool_declares_a_look_and_makes_it(tmp_path: Path, old: str, new: str, found: str) -> None:
    (text,) = re.findall(r"^# tile.py\n(.*?)^```", page("recipes/own_task.md"), re.M | re.S)
    assert old in text
    path = tmp_path / "mine.py"
    path.write_text(text.replace(old, new) if old else text)
    wrong = broken(path)
    assert found in wrong.get("`look` asks for the region", "")
    assert bool(found) is ("`look` asks for the region" in wrong)


def test_a_tool_with_required_keys_is_checked_with_its_settings(tmp_path: Path) -> None:
    text = (OWN / "rotate.py").read_text()
    text = text.replace("from vtune.tools import TOOLS", f"{BROUGHT}{TURNING}")
    text = text.replace("yield Rotate()", "assert section.step == 7\n    yield Rotate()")
    path = tmp_path / "mine.py"
    path.write_text(text.replace("opened=opened,", "opened=opened, recipe=Turning, settings={'step': 7},"))
    assert broken(path) == {}


def test_a_tool_makes_the_file_that_its_settings_name(tmp_path: Path) -> None:
    text = (OWN / "rotate.py").read_text()
    turning = TURNING.replace("step: int", "file: str")
    makes = (
        '\n\ndef made(folder):\n    (folder / "steps").write_text("7")\n'
        '    return {"file": str(folder / "steps")}\n'
    )
    text = text.replace("from vtune.tools import TOOLS", f"{BROUGHT}{turning}{makes}")
    text = text.replace("yield Rotate()", "assert open(section.file).read() == '7'\n    yield Rotate()")
    path = tmp_path / "mine.py"
    path.write_text(text.replace("opened=opened,", "opened=opened, recipe=Turning, settings=made,"))
    assert broken(path) == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(0, -1, width, 1, 0, 0)", "(0.1, -1, width, 1, 0.1, 0)"),
        ("expand=True)", "expand=True).resize((12, 16)).resize((192, 256))"),
    ],
)
def test_a_tool_whose_look_is_not_verified_gets_a_note(tmp_path: Path, old: str, new: str) -> None:
    text = (OWN / "rotate.py").read_text()
    assert old in text
    path = tmp_path / "mine.py"
    path.write_text(text.replace(old, new))
    (part,) = check_parts([path])["parts"]
    (said,) = [one for one in part["checks"] if one["name"] == "pictures show the stated regions"]
    assert said["ok"]  # an honest tool may blur
    assert re.fullmatch(r"1 look, one unverified \(.+\), which earns no more than a miss", said["found"])


@pytest.mark.parametrize(
    ("old", "new", "check", "found"),
    [
        (
            "        trial=Trial(SMALL, WAY),\n",
            "",
            "an episode opens and answers a turn",
            "give EnvironmentPart a `trial`",
        ),
        ("        trial=Trial(SMALL, WAY),\n", "", "fast enough", "no turn was observed"),
        (
            '"right", "right", "down"',
            '"right", "right"',
            "the turns of the trial end the episode",
            "does not end the conversation",
        ),
        (
            '"right", "right", "down"',
            '"up", "right", "right", "down"',
            "the turns of the trial end the episode",
            "ends as error",
        ),
        ("raise Mistake(f", "raise KeyError(f", "odd turns are the model's mistake", "KeyError"),
        (
            "        named = [",
            "        turn.last and 1 / 0\n        named = [",
            "a last turn is also observed",
            "division by zero",
        ),
        (
            "return Maze(sample",
            "sample.extra['opened'] = True\n    return Maze(sample",
            "the sample is not changed",
            "keep state in the episode",
        ),
        (
            'environment="maze",',
            'environment="maze", tools=("zom",),',
            "the tools of the trial open",
            "there is no tool `zom`",
        ),
        (
            "return Outcome(float(there)",
            "return Outcome(1.5",
            "an episode opens and answers a turn",
            "got 1.5",
        ),
        (
            "return Maze(sample",
            "return MAZES.setdefault('', Maze(sample",
            "two trajectories share no state",
            "",
        ),
        (
            "    async def outcome",
            "    async def close(self):\n        1 / 0\n\n    async def outcome",
            "an episode opens and answers a turn",
            "ZeroDivisionError",
        ),
    ],
)
def test_an_environment_that_breaks_its_contract_is_found(
    tmp_path: Path, old: str, new: str, check: str, found: str
) -> None:
    text = (OWN / "maze.py").read_text()
    assert old in text
    text = text.replace(old, new, 1).replace("CELL = 28", "CELL = 28\nMAZES = {}")
    if "setdefault" in new:
        text = text.replace('.split("/"))', '.split("/")))')
    path = tmp_path / "mine.py"
    path.write_text(text)
    assert found in broken(path)[check]


ANSWERS = """        if not turn.text:
            return [Act(shown("Go on."))]
        if len(named)"""
ONE_STEP = {
    'ground_truth="S../#.G"': 'ground_truth="SG"',
    '("right", "right", "down")': '("right",)',
    "        if self.cells[place]": "        if self.cells[place] or True",
}


@pytest.mark.parametrize(
    ("changes", "check", "found"),
    [
        (
            {},
            "the turns of the trial end the episode",
            "the trial has one turn, which ends it: no turn with an answer is",
        ),
        ({"Trial(SMALL, WAY)": "Trial(SMALL, WAY, once=True)"}, "", ""),
        (
            {"Trial(SMALL, WAY)": "Trial(SMALL, WAY, once=True)", "        if len(named)": ANSWERS},
            "odd turns are the model's mistake",
            "the trial says `once`, but '' is answered: 'Go on.'",
        ),
        (
            {"Trial(SMALL, WAY)": "Trial(SMALL, WAY, once=True)", '("right",)': '("right", "left")'},
            "the turns of the trial end the episode",
            "the trial says `once`, but has 2 turns",
        ),
    ],
)
def test_an_environment_is_checked_with_a_turn_that_it_answers(
    tmp_path: Path, changes: dict[str, str], check: str, found: str
) -> None:
    text = (OWN / "maze.py").read_text()
    for old, new in (ONE_STEP | changes).items():
        old = old if old in text else ONE_STEP[old]
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "mine.py"
    path.write_text(text)
    wrong = broken(path)
    assert found in wrong.get(check, "")
    assert bool(wrong) is bool(check)


@pytest.mark.parametrize(
    ("old", "new", "check", "found"),
    [
        (
            "        if len(named)",
            "        assert len(named) == 1 or not self.moves\n        if len(named)",
            "odd turns are the model's mistake",
            "AssertionError",
        ),
        (
            "[self.drawn()])\n        return [Act",
            "[self.drawn()], [ShownCrop(bbox=(90, 0, 118, 28), image=0, shown=0)])\n        return [Act",
            "an episode opens and answers a turn",
            "and picture 0 has",
        ),
    ],
)
def test_an_environment_is_checked_midway_and_by_its_pictures(
    tmp_path: Path, old: str, new: str, check: str, found: str
) -> None:
    text = (OWN / "maze.py").read_text()
    assert old in text
    text = text.replace(
        "from vtune.schema.sample", "from vtune.sandbox import ShownCrop\nfrom vtune.schema.sample"
    )
    path = tmp_path / "mine.py"
    path.write_text(text.replace(old, new))
    assert found in broken(path)[check]


def test_without_a_sandbox_an_environment_that_needs_none_is_not_blamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def up(sandbox: Sandbox) -> None:
        raise SandboxUnavailable("no tier: landlock: the kernel lacks it")

    monkeypatch.setattr(Sandbox, "_up", up)
    assert broken(OWN / "maze.py") == {}


def test_an_environments_trial_has_the_tools_of_its_sample(tmp_path: Path) -> None:
    text = (OWN / "maze.py").read_text()
    offered = "image_zoom_in_tool", "text_search_tool"
    text = text.replace('environment="maze",', f'environment="maze", tools={offered},')
    asked = f"    assert start.services.tools.names(sample.tools) == {offered}\n    return Maze(sample"
    path = tmp_path / "mine.py"
    path.write_text(text.replace("    return Maze(sample", asked))
    assert broken(path) == {}


@pytest.mark.parametrize(
    ("old", "new", "check", "found"),
    [
        ("Pushes(PolicyLoss):", "Pushes(PolicyLoss, extra='ignore'):", "the section is", "unknown key"),
        ("* tokens.logprobs)", "* tokens.logprobs.roll(1))", "the order of sequences", "loss changes by"),
        (
            "tokens.advantages *",
            "tokens.advantages.mul_(2) *",
            "one loss value per token",
            "it changes `tokens.advantages`",
        ),
        (
            "tokens.advantages *",
            "tokens.advantages.data.mul_(2) *",
            "tokens are not changed",
            "the loss changed `advantages`",
        ),
        ("* tokens.logprobs)", "* tokens.logprobs.mean())", "other sequences change nothing", "is alone"),
        ("* tokens.logprobs)", "@ tokens.logprobs)", "one loss value per token", "shape () for 17 tokens"),
        ("* tokens.logprobs)", "/ tokens.old_logprobs.exp())", "one loss value per token", "has no gradient"),
        (
            "* tokens.logprobs)",
            "* ratio_of(tokens) ** 9)",
            "loss and gradient",
            "its loss is inf for a token",
        ),
        ("tokens.advantages *", "(tokens.advantages + 1) *", "no advantage, no gradient", "a gradient is"),
        ("(-((1", "(((1", "the gradient follows", "has the gradient"),
        ("likely) **", "2 * likely) **", "the gradient follows", "the opposite sign"),
        (
            "example=",
            "coincides_on_policy=True, example=",
            "`coincides_on_policy` is correct",
            "is not -advantage",
        ),
        ('"fade": 1.0', '"fade": 0.0', "`coincides_on_policy` is correct", "say coincides_on_policy=True"),
        (
            "* tokens.logprobs)",
            "* tokens.logprobs + 0 * likely.max())",
            "a batch without tokens is accepted",
            "max()",
        ),
        (
            "* tokens.logprobs)",
            "* tokens.logprobs, tokens.off_policy if len(likely) else None)",
            "a batch without tokens",
            "None for some",
        ),
    ],
)
def test_a_loss_that_breaks_its_contract_is_found(
    tmp_path: Path, old: str, new: str, check: str, found: str
) -> None:
    text = (OWN / "pushes.py").read_text().replace("Tokens\n", "Tokens, ratio_of\n")
    assert old in text
    path = tmp_path / "mine.py"
    path.write_text(text.replace(old, new))
    (told,) = [why for name, why in broken(path).items() if name.startswith(check)]
    assert found in told


@pytest.mark.parametrize(
    ("file", "old", "new", "check", "found"),
    [
        (
            "near.py",
            "self._levels.full,",
            "0.5,",
            "a look at the target earns `full`",
            "the look earns 0.5, not 1",
        ),
        (
            "near.py",
            "self._levels.miss,",
            "0.25,",
            "nothing shown earns nothing",
            "the look earns 0.25, not 0",
        ),
        (
            "near.py",
            "            picture_size(trajectory.images[picture])",
            "            try:\n                picture_size(trajectory.images[picture])\n"
            "            except Exception:\n                return Verdict(0.0, '')",
            "a failure is unscored, never 0",
            "no picture can be read, but the judge gives the score 0",
        ),
        (
            "near.py",
            "x, y = (crop.bbox",
            "assert crop.bbox[0] in (56, 5)\n            x, y = (crop.bbox",
            "looks in between have a score",
            "AssertionError",
        ),
        (
            "near.py",
            "Verdict(self._levels.miss,",
            "Verdict(self._levels.miss if trajectory.calls[k].crops else -0.9,",
            "looks in between have a score",
            "a look earns -0.9",
        ),
        (
            "near.py",
            'if crop.look != "verified":',
            "if crop.shown is None:",
            "a faked look is not rewarded",
            "a score of 1 for black in place of the region that the call claims: the judge believes `Call.",
        ),
        (
            "near.py",
            'if crop.look != "verified":',
            'if "faked" in (crop.look, *trajectory.calls[k].flags):',
            "a faked look is not rewarded",
            "a score of 1 for noise in place of the region that the call claims: the judge believes "
            '`Call.crops`, which code writes itself: reward a look only where `crop.look` is "verified"',
        ),
        (
            "near.py",
            "if await self.shows_target(sample, trajectory, k):",
            "if [crop for crop in trajectory.calls[k].crops if crop.bbox[0] == 56]:",
            "a faked look is not rewarded",
            "the judge believes `Call.crops`",
        ),
        (
            "near.py",
            'if crop.look != "verified":',
            'if crop.look == "faked":\n'
            "                from vtune.errors import ServiceError\n"
            '                raise ServiceError("down")\n'
            '            if crop.look != "verified":',
            "a faked look is not rewarded",
            "black in place of the region that the call claims is not scored: down",
        ),
        (
            "near.py",
            "def shows_small",
            "def shows_tiny",
            "`shows_small` answers the audit",
            "no method `shows_small(",
        ),
        (
            "near.py",
            "        return False\n\n\ndef",
            "        return True\n\n\ndef",
            "`shows_small` answers the audit",
            "is True",
        ),
        (
            "near.py",
            "bool(sample.evidence)",
            "False",
            "a look at the target earns `full`",
            "give EvidencePart an",
        ),
        (
            "brief.py",
            "max(0.0, 1.0 - words / section.words)",
            "-0.5",
            "scores lie within the bounds",
            "[0, 1]",
        ),
        (
            "brief.py",
            "    words = len(scene",
            "    from vtune.errors import DataError\n    if not scene.trajectory.reply.strip():\n"
            "        raise DataError('no words')\n    words = len(scene",
            "scores lie within the bounds",
            "earn the least",
        ),
        (
            "brief.py",
            "words = len(scene",
            "import random\n    words = random.randrange(20) * len(scene",
            "the same trajectory scores the same",
            "and then",
        ),
        (
            "near.py",
            '"near: on a target"',
            "''",
            "a look at the target earns `full`",
            "a level of 1 has no reason",
        ),
        (
            "near.py",
            "            picture_size(trajectory.images[picture])",
            "            sample.extra['seen'] = picture_size(trajectory.images[picture])",
            "sample and trajectory are not changed",
            "copy what you change",
        ),
        (
            "brief.py",
            'f"{words} words"',
            "''",
            "every score has a reason",
            " is '': give the reason in `why`",
        ),
        (
            "brief.py",
            "    words = len(scene",
            "    scene.sample.extra['seen'] = True\n    words = len(scene",
            "sample and trajectory are not changed",
            "copy what you change",
        ),
        (
            "brief.py",
            "Brief(PartSection)",
            "Brief(PartSection, extra='ignore')",
            "the section refuses unknown keys",
            "accepts an unknown key",
        ),
        (
            "brief.py",
            "    words = len(scene",
            "    seen = scene.trajectory.images[0].data.startswith(b'not') * 9\n    words = seen + len(scene",
            "what failed on our side is null",
            "a picture cannot be read, but the part gives 0.",
        ),
        (
            "brief.py",
            "    words = len(scene",
            "    import time; time.sleep(0.02)\n    words = len(scene",
            "fast enough",
            "ms for a trajectory, 10 ms at most: do less",
        ),
        (
            "brief.py",
            "words = len(scene",
            "words = len(scene.found['accuracy'].__dataclass_fields__.keys() & {'score'}) * len(scene",
            "null where other parts are null",
            "return Unscored(why)",
        ),
    ],
)
def test_a_reward_part_that_breaks_its_contract_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, old: str, new: str, check: str, found: str
) -> None:
    monkeypatch.setattr("vtune.runs.parts.checks.reward.SLOWEST", 0.01)  # missing the real limit takes long
    text = (OWN / file).read_text()
    assert old in text
    path = tmp_path / "mine.py"
    path.write_text(text.replace(old, new))
    (told,) = [why for name, why in broken(path).items() if name.startswith(check)]
    assert found in told


AGREES = """    try:
        same = await scene.judges.same_conclusion(scene.trajectory.reply, "blue")
    except ServiceError as error:
        return Unscored(error.what)
    return Verdict(float(same), "as the model says")
"""
"""A part of the reward that asks the model."""


@pytest.mark.parametrize(
    ("old", "new", "check", "found"),
    [
        ("", "", "", ""),
        (
            "lambda text: 'TRUE'",
            "lambda text: 'perhaps'",
            "scores lie within the bounds",
            "wrote 'perhaps' instead",
        ),
        (
            "Unscored(error.what)",
            "Unscored('')",
            "what failed on our side is null",
            "the reason of Unscored is ''",
        ),
        (
            "Unscored(error.what)",
            "Verdict(0.0, 'down')",
            "what failed on our side is null",
            "the model does not answer, but the part gives 0, not 1: do not catch the error",
        ),
    ],
)
def test_a_reward_part_that_asks_a_model_is_checked_with_its_sample_replies(
    tmp_path: Path, old: str, new: str, check: str, found: str
) -> None:
    text = (OWN / "brief.py").read_text()
    start, end = text.index("    words = len("), text.index("REWARDS.add")
    text = f"{text[:start]}{AGREES}\n\n{text[end:]}".replace("Scene\n", "Scene, Unscored\n")
    text = text.replace("from vtune.reward", "from vtune.errors import ServiceError\nfrom vtune.reward", 1)
    text = text.replace('"words": 20}', "\"words\": 20}, says=lambda text: 'TRUE'")
    assert old in text
    path = tmp_path / "mine.py"
    path.write_text(text.replace(old, new) if old else text)
    wrong = broken(path)
    assert next(iter(wrong), "") == check
    assert found in wrong.get(check, "")


LOOKS = """        shows = await self._client.ask_for(Prompt("", "Is it there?"), [], read, "yes or no")
        return Verdict(self._levels.full if shows else self._levels.miss, "says the model")
"""
"""An evidence judge that asks the model."""


@pytest.mark.parametrize(
    ("old", "new", "check", "found"),
    [
        ("", "", "", ""),
        (", says=says", "", "", ""),
        (
            "full if shows",
            "full if not shows",
            "a look at the target earns `full`",
            "the look earns 0, not 1",
        ),
        (
            "        shows = await",
            "        self._client.ask_for = down\n        shows = await",
            "a look at the target earns `full`",
            "down",
        ),
        ("return {", "return text or {", "nothing shown earns nothing", "the look earns 1, not 0"),
        (
            "        shows = await",
            "        if any(crop.bbox[0] > 50 for crop in trajectory.calls[k].crops):\n"
            "            return Verdict(self._levels.full, 'it says so')\n        shows = await",
            "a faked look is not rewarded",
            "a score of 1 for black",
        ),
    ],
)
def test_an_evidence_judge_that_asks_a_model_is_checked_with_its_sample_replies(
    tmp_path: Path, old: str, new: str, check: str, found: str
) -> None:
    text = (OWN / "near.py").read_text()
    start, end = text.index("        for picture in"), text.index("    async def shows_target")
    text = f"{text[:start]}{LOOKS}\n{text[end:]}"
    text = text.replace("levels: EvidenceLevels) ->", "levels: EvidenceLevels, client: JudgeClient) ->")
    text = text.replace("= levels\n", "= levels\n        self._client = client\n")
    text = text.replace("return Near(levels)", "return Near(levels, client)")
    text = text.replace('"no evidence boxes"', '"no evidence boxes", asks_model=True, says=says')
    text = text.replace(
        "class Near:",
        "def read(text: str) -> bool | None:\n    return {'yes': True, 'no': False}.get(text)\n\n\n"
        "def says(text: str, shows: bool) -> str:\n    return 'yes' if shows else 'no'\n\n\nclass Near:",
    )
    text = text.replace("from vtune.reward", "from vtune.judge.prompts import Prompt\nfrom vtune.reward", 1)
    assert old in text
    path = tmp_path / "mine.py"
    path.write_text(text.replace(old, new) if old else text)
    wrong = broken(path)
    assert next(iter(wrong), "") == check
    assert found in wrong.get(check, "")
    looks = {one["name"]: one["found"] for one in check_parts([path])["parts"][0]["checks"]}
    told = "not tested, because a model decides: give EvidencePart `says`, the model's replies"
    assert (looks["a look at the target earns `full`"] == told) is (old == ", says=says")


@pytest.mark.parametrize("says", [True, False])
def test_without_a_model_a_too_small_target_does_not_count_as_shown(tmp_path: Path, says: bool) -> None:
    """Without `says` nobody knows what a look earns, and yet an answer without the model is none."""
    text = (
        (OWN / "near.py").read_text().replace('"no evidence boxes"', '"no evidence boxes", asks_model=True')
    )
    text = text.replace("        return False\n\n\ndef", f"        return {says}\n\n\ndef")
    path = tmp_path / "mine.py"
    path.write_text(text)
    wrong = broken(path).get("`shows_small` answers the audit", "")
    assert wrong.startswith("shows_small is True, and no model answers") is says


@pytest.mark.parametrize("judged", ["picture", "text"])
def test_a_judge_that_ignores_claimed_regions_is_not_called_gullible(tmp_path: Path, judged: str) -> None:
    """One goes by the size of the picture that came back, one by what was printed."""
    text = (OWN / "near.py").read_text()
    start, end = text.index("        for crop in"), text.index("    async def shows_small")
    by = "len(trajectory.images) > 1" if judged == "picture" else '"cup" in trajectory.calls[k].output'
    text = f"{text[:start]}        return {by}\n\n{text[end:]}"
    text = text.replace("class Near", "from dataclasses import replace\n\n\nclass Near", 1)
    text = text.replace("import EVIDENCE, EvidencePart", "import EVIDENCE, EvidencePart, Example")
    nothing = "looked.nothing, images=looked.nothing.images[:1], calls=(bare,)"
    gold = "looked.gold, calls=(replace(looked.gold.calls[0], output='the cup'),)"
    example = (
        "def example() -> Example:\n    from vtune.runs.parts.checks.evidence import standard\n\n"
        "    looked = standard()\n    bare = replace(looked.nothing.calls[0], images=(), crops=())\n"
        f"    return Example(looked.sample, replace({gold}), replace({nothing}))\n\n\nEVIDENCE.add("
    )
    reads = ", reads_text=True" if judged == "text" else ""
    text = text.replace("EVIDENCE.add(", example)
    text = text.replace('"no evidence boxes"', f'"no evidence boxes", example=example{reads}')
    path = tmp_path / "mine.py"
    path.write_text(text)
    assert "a faked look is not rewarded" not in broken(path)
    checks = {one["name"]: one["found"] for one in check_parts([path])["parts"][0]["checks"]}
    wanted = {
        "picture": "the judge does not use the region that a call claims",
        "text": "not tested: the judge reads what a call returns",
    }
    assert checks["a faked look is not rewarded"].startswith(wanted[judged])


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("return 0.5", "the verifier returns float, not Verdict: return Verdict("),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_verifier_without_a_verdict_is_reported_once(tmp_path: Path, body: str, what: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text((OWN / "anls.py").read_text().replace("    check(sample)\n", f"    {body}\n"))
    assert len(checks := check_parts([path])["parts"][0]["checks"]) == 1
    assert f"{checks[0]['found']}: {checks[0]['fix']}".startswith(what)


def test_a_slow_check_says_what_it_is_waiting_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checking, "PATIENCE", 0.05)
    path = tmp_path / "mine.py"
    path.write_text(
        (OWN / "anls.py")
        .read_text()
        .replace("    check(sample)\n", "    import time; time.sleep(0.3); 1 / 0\n")
    )
    check_parts([path])
    (line,) = [one for one in capsys.readouterr().err.splitlines() if "still waiting" in one]
    assert line.startswith("the gold answer earns full marks: no end after 0.05 s, at mine.py:")
    assert "(import time; time.sleep(0.3); 1 / 0)" in line


def test_the_command_exits_with_1_for_a_broken_contract_and_2_if_nothing_loads(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text((OWN / "anls.py").read_text().replace("1.0 - share", "0.9 - share"))
    ended = vtune("parts", "check", path)
    assert ended.code == 1
    assert "BROKEN  the gold answer earns full marks" in ended.out
    path.write_text("x = \n")
    ended = vtune("parts", "check", path)
    assert ended.code == 2
    assert f"{path}:1" in ended.err


def test_a_recipe_or_suite_stands_for_the_files_that_it_uses(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text((OWN / "anls.py").read_text().replace("1.0 - share", "0.9 - share"))
    suite = tmp_path / "suite.yaml"
    suite.write_text(f"uses: [mine.py, {OWN}/rotate.py]\nseed: 0\n")
    found = check_parts([suite])
    assert [(part["name"], Path(part["file"]).name) for part in found["parts"]] == [
        ("anls", "mine.py"),
        ("rotate_tool", "rotate.py"),
    ]
    assert not found["ok"]
    assert [Path(one["file"]).name for one in found["files"]] == ["mine.py", "rotate.py"]
    listed = [part for part in list_parts([suite])["parts"] if part["file"]]
    assert [part["name"] for part in listed] == ["anls", "rotate_tool"]


def test_a_format_whose_rows_name_a_verifier_of_another_file_is_checked_beside_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text((OWN / "lines.py").read_text().replace('"exact"', '"anls"'))
    alone = broken(tmp_path / "mine.py")
    assert "unknown verifier 'anls'" in alone["ground truths can be judged"]
    assert "vtune parts check FORMAT.py VERIFIER.py" in alone["ground truths can be judged"]
    ended = vtune("parts", "check", tmp_path / "mine.py", OWN / "anls.py", "--json")
    assert ended.code == 0, ended.out
    assert [part["name"] for part in json.loads(ended.out)["parts"]] == ["lines", "anls"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("suite.yaml", "seed: 0\n", "names no files under its own `uses`"),
        ("suite.yaml", "uses: []\n", "names no files under its own `uses`"),
        ("suite.yaml", "- 1\n", "names no files under its own `uses`"),
        ("suite.yaml", "uses: [mine.txt]\n", "mine.txt is not a Python file"),
        ("suite.yaml", "uses: [\n", "not YAML"),
        ("mine.txt", "x = 1\n", "mine.txt is not a Python file"),
    ],
)
def test_a_file_that_is_not_python_is_never_run(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    for verb in ("check", "list"):
        ended = vtune("parts", verb, tmp_path / name)
        assert ended.code == 2
        assert said in ended.err
        assert "SyntaxError" not in ended.err


@pytest.mark.parametrize(
    ("file", "name", "taken"),
    [("near.py", "near", "auto"), ("near.py", "near", "both"), ("rotate.py", "rotate_tool", "none")],
)
def test_a_name_that_cannot_be_used_is_refused(tmp_path: Path, file: str, name: str, taken: str) -> None:
    (tmp_path / "mine.py").write_text((OWN / file).read_text().replace(f'"{name}"', f'"{taken}"'))
    with pytest.raises(RecipeError, match=f"`{taken}` is reserved") as told:
        check_parts([tmp_path / "mine.py"])
    assert told.value.where.startswith(f"{tmp_path}/mine.py:")


def test_the_page_shows_the_parts_that_are_tested() -> None:
    for page, names in {
        "cli/parts.md": ("anls.py", "maze.py"),
        "vtune/update/README.md": ("pushes.py",),
        "vtune/tools/README.md": ("rotate.py",),
        "vtune/reward/README.md": ("near.py", "brief.py"),
        "vtune/curate/README.md": ("short.py",),
        "vtune/rollout/README.md": ("terse.py",),
        "vtune/metrics/README.md": ("worst.py",),
        "cli/data.md": ("lines.py", "cards.py"),
    }.items():
        blocks = (ROOT / page).read_text().split("```python\n")[1:]
        shown = [block.split("```")[0] for block in blocks if block.startswith('"""')]
        assert shown == [(OWN / name).read_text() for name in names], page


def test_the_check_output_on_the_page_is_correct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(OWN)
    said = "".join(re.findall(r"^```text\n(\$ vtune parts check .*?)^```", page("cli/parts.md"), re.M | re.S))
    shown = [block.partition("\n") for block in said.split("$ vtune parts check ")[1:]]
    assert {file for file, _, _ in shown} >= {"anls.py", "rotate.py", "near.py", "brief.py", "maze.py"}
    for file, _, text in shown:
        assert timeless(text) == timeless(vtune("parts", "check", file).out)


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def timeless(text: str) -> str:
    """A text without the parts that depend on the machine's speed."""
    return re.sub(r"[\d.]+ ms for", "… ms for", text)
