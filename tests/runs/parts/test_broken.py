"""A user's part of any kind that raises ends the command with one error that names its file and line."""

import asyncio
import io
import json
import pickle
import re
import sys
import tempfile
import traceback
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image

from tests.conftest import ROOT
from tests.environments.worlds import maze, using, way
from tests.reward.build import TARGET, looks, sample
from tests.reward.serving import serving
from tests.rollout.scripted import ScriptedEngine
from tests.runs.commands import Ended, setting, vtune
from tests.schema.records import SAMPLE
from tests.scripted import draw_with
from vtune.cli import main
from vtune.config import find, load_recipe
from vtune.errors import BrokenPart, DataError, RunFailed
from vtune.models.policy import Policy
from vtune.parts import OURS
from vtune.registry import TABLES
from vtune.reward.recipe import RewardService
from vtune.reward.score import Scorer
from vtune.rollout.engine import Completion, Request
from vtune.runs.agent.tools import ToolsRecipe, tools_of
from vtune.runs.curate.recipe import DataRecipe
from vtune.runs.curate.rows import Rows
from vtune.runs.curate.workers import _look_at
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.parquet import write_samples
from vtune.schema.sample import Evidence, Sample
from vtune.schema.trajectory import Trajectory
from vtune.schema.verdict import Verdict
from vtune.tools.calls import Asked
from vtune.tools.observation import Observation
from vtune.tools.result_cache import ResultCache
from vtune.tools.tool import Scene
from vtune.uses import broken, forget, use, used
from vtune.verifiers import verdict_on
from vtune.verifiers.verifying import Verifying

OWN = ROOT / "tests/own"
WORDS = '<tool_call>{"name": "rotate_tool", "arguments": {"angle": 90}}</tool_call>'
SAID = "<think>Red.</think><answer>red</answer>"

SCORER = """
from vtune.metrics.benchmarks import SCORERS

def middle(marks):
    return {"score": 0.5}

SCORERS.add("middle", middle)
"""
STYLE = """
from vtune.rollout.prompts import STYLES, PromptStyle

def bare(sample, names, sizes, schemas, draw):
    return sample.prompt

STYLES.add("bare", PromptStyle(bare))
"""
PROTOCOL = """
from vtune.protocols import PROTOCOLS
from vtune.protocols.protocol import Protocol, Rule

def ask(question, sample):
    return question

def grade(text, sample):
    raise NotImplementedError

PROTOCOLS.add("mine", Protocol(about="Mine.", other=Rule(ask=ask, grade=grade, scorer=None)))
"""


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgetting: None) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


def own(name: str) -> str:
    return (OWN / name).read_text(encoding="utf-8")


CASES = {
    "verifier": (own("anls.py"), '    said, right = (" ".join'),
    "tool": (own("rotate.py"), "        angle, out = "),
    "environment": (own("maze.py"), "        self.moves += 1"),
    "format": (own("lines.py"), '        columns = line.split("\\t")'),
    "filter": (own("short.py"), "    count = len("),
    "evidence": (own("near.py"), "        if await self.shows_target("),
    "reward": (own("brief.py"), "    words = len("),
    "loss": (own("pushes.py"), "    likely = tokens"),
    "scorer": (SCORER, '    return {"score"'),
    "prompt": (STYLE, "    return sample.prompt"),
    "protocol": (PROTOCOL, "    return question"),
}
"""Kind -> a file with one part of that kind, and the line before which it raises."""


WHOLE = {"loss", "scorer"}
"""Kinds whose functions are given no sample, or all of them."""


def breaking(kind: str, folder: Path) -> Path:
    """A user's file whose part raises when used."""
    text, line = CASES[kind]
    assert text.count(line) == 1
    indent = line[: len(line) - len(line.lstrip())]
    path = folder / "mine.py"
    path.write_text(text.replace(line, f"{indent}1 / 0  # here\n{line}"), encoding="utf-8")
    return path


def blotches() -> bytes:
    """A picture in which no two places look the same."""
    noise = np.random.default_rng(0).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(noise).resize((112, 84)).save(out, "PNG")
    return out.getvalue()


def rows(kind: str) -> list[Sample]:
    """Two questions that make a run use the part."""
    if kind == "environment":
        with using():
            return [maze(f"maze/{number}") for number in range(2)]
    row = replace(
        SAMPLE,
        prompt=(Message("user", f"{IMAGE}Which colour is the wall?"),),
        images=(Picture(data=blotches()),),
        ground_truth="red",
        choices=(),
        verifier="anls" if kind == "verifier" else "exact",
        ability="visual_search",
        evidence=(Evidence("wall", 0, (50.0, 30.0, 80.0, 60.0)),),
        tools=("rotate_tool" if kind == "tool" else "image_zoom_in_tool",),
    )
    return [replace(row, id=f"check/{number}") for number in range(2)]


SETTINGS = {
    "tool": {"tools": "{rotate_tool: {}}"},
    "evidence": {"reward__evidence__judges": "[near]"},
    "reward": {"reward__parts": "{brief: {weight: 0.5, words: 20}}"},
    "loss": {"loss": "{algorithm: pushes, fade: 0.5, aggregation: token_mean, kl_weight: 0.0}"},
    "prompt": {"rollout__prompt": "bare"},
    "scorer": {"scorer": "middle"},
    "protocol": {"protocol": "mine"},
}
ZOOM = (
    '<tool_call>{"name": "image_zoom_in_tool", "arguments": {"bbox_2d": [400, 300, 800, 800], '
    '"label": "wall"}}</tool_call>'
)
SCRIPTS = {"tool": [WORDS, SAID], "evidence": [ZOOM, SAID]}


def script(kind: str) -> list[str]:
    if kind == "environment":
        with using():
            return list(way())
    return SCRIPTS.get(kind, [SAID])


def run(kind: str, path: Path, tiny: Path, more: dict[str, object]) -> Ended:
    """A command that uses the part of a file."""
    folder = path.parent
    if kind == "format":
        table = folder / "rows.tsv"
        table.write_text("a\tb\tc\n")
        return vtune("data", "import", "lines", table, "--uses", path, "--out", folder / "rows.parquet")
    data = folder / "rows.parquet"
    write_samples(data, rows(kind))
    if kind == "filter":
        text = f"records: samples\nuses: [mine.py]\nsources: {{mine: {{files: [{data}]}}}}\n"
        (folder / "own.yaml").write_text(f"{text}filters: [{{filter: short, words: 3}}]\n")
        return vtune("curate", folder / "own.yaml", "--out", folder / "out")
    common = {
        "uses": f"[{path}]",
        "data": f"[{data}]",
        "rollout__max_tokens": 2000,
        "rollout__max_new_tokens": 400,
        "seed": 0,
    }
    zoom = {} if kind in ("tool", "environment") else {"tools": "{zoom: {space: relative_1000, min_side: 4}}"}
    given = setting(**(common | zoom | SETTINGS.get(kind, {}) | more))
    if kind in ("scorer", "protocol"):
        words = ("eval", "--suite", "lens", "--model", tiny, "--out", folder / "out")
        return vtune(*words, *given, *setting(rollouts=1, threads=1))
    sizes = setting(
        model=tiny, steps=1, prompts_per_step=2, group_size=2, update__threads=1, update__warmup_steps=0
    )
    return vtune("rl", "--recipe", "codev-tiny", "--out", folder / "out", *sizes, *given)


class Spoken(ScriptedEngine):
    """Gives scripted turns in each conversation."""

    def __init__(self, policy: Policy, lines: list[str]) -> None:
        super().__init__(policy.chat, ["never"])
        self._lines = lines

    async def generate(self, request: Request) -> Completion:
        return await ScriptedEngine(self._chat, [self._lines[request.key[-1]]]).generate(request)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    lines = script(request.getfixturevalue("kind"))

    def engine(policy: Policy, max_batch: int, **_: object) -> Spoken:
        return Spoken(policy, lines)

    draw_with(monkeypatch, engine)


def test_every_kind_has_a_case() -> None:
    assert set(CASES) == set(OURS) - {"family"}  # `vtune parts check` tests it with a model


@pytest.mark.usefixtures("scripted")
@pytest.mark.parametrize("kind", CASES)
def test_a_part_that_raises_is_one_error_with_its_line(kind: str, tiny: Path, tmp_path: Path) -> None:
    path = breaking(kind, tmp_path)
    ended = run(kind, path, tiny, {})
    line = path.read_text().split("\n").index(next(x for x in path.read_text().split("\n") if "# here" in x))
    assert ended.code == 1, ended.err
    said = ended.err[ended.err.index("error: ") :]
    first, at, fix, log = said.splitlines()
    assert first.startswith(f"error: {TABLES[kind].word} `")
    broken, _, row = first.partition(" (")
    assert broken.endswith("of mine.py is broken: ZeroDivisionError: division by zero")
    assert bool(row) is (kind not in WHOLE), first
    assert at == f"  at   {path}:{line + 1}"
    assert "vtune parts check" in fix
    kept = Path(log.removeprefix("  log  ")).read_text()
    assert "Traceback" not in ended.err
    assert "1 / 0  # here" in kept


@pytest.mark.parametrize("room", [True, False], ids=["room", "no room"])
def test_a_log_is_written_only_for_errors_in_user_files(
    room: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path if room else tmp_path / "gone"))
    for error in (RunFailed("the vLLM has died"), BrokenPart("verifier `anls` is broken")):
        error.__cause__ = KeyError("\udc80")
        monkeypatch.setattr(main, "app", Mock(side_effect=error))
        with pytest.raises(SystemExit) as ended:
            main.main()
        assert ended.value.code == 1
        first, *log = capsys.readouterr().err.splitlines()
        assert first == f"error: {error}"
        assert len(log) == (room and isinstance(error, BrokenPart))
    logs = list(tmp_path.glob("*.log"))
    assert len(logs) == room
    assert all("KeyError" in file.read_text() for file in logs)


def told(error: BaseException) -> tuple[str, str]:
    failed = broken(error)
    assert failed is not None
    return failed.what, failed.where


def of_anls(tmp_path: Path, old: str, new: str) -> Path:
    text = own("anls.py")
    assert old in text
    path = tmp_path / "mine.py"
    path.write_text(text.replace(old, new), encoding="utf-8")
    use([path])
    return path


ASKED = replace(SAMPLE, verifier="anls", ground_truth="no parking", choices=())


def verdict_of(row: Sample = ASKED) -> Verdict:
    async def asked() -> Verdict:
        async with Verifying(workers=1) as verifying:
            return await verifying.verify("<answer>no parking</answer>", row)

    return asyncio.run(asked())


def test_a_verifier_in_a_separate_process_is_blamed_with_its_traceback(tmp_path: Path) -> None:
    of_anls(tmp_path, "partial_credit=True", "partial_credit=True, in_worker=True")
    assert verdict_of().score == 1.0
    forget(used())
    path = of_anls(tmp_path, "    said, right", "    1 / 0  # here\n    said, right")
    path.write_text(path.read_text().replace("partial_credit=True", "partial_credit=True, in_worker=True"))
    forget(used())
    use([path])
    with pytest.raises(RunFailed, match=r"`anls` of mine\.py is broken: ZeroDivisionError") as failed:
        verdict_of()
    assert failed.value.where.startswith(f"{path}:")
    assert "1 / 0  # here" in "".join(traceback.format_exception(failed.value))


@pytest.mark.parametrize("worker", ["", ", in_worker=True"])
def test_a_broken_verifier_names_the_sample_and_its_log_has_the_reply(worker: str, tmp_path: Path) -> None:
    path = of_anls(tmp_path, "    said, right", "    1 / 0\n    said, right")
    path.write_text(path.read_text().replace("partial_credit=True", f"partial_credit=True{worker}"))
    forget(used())
    use([path])
    with pytest.raises(BrokenPart) as failed:
        verdict_of()
    assert f"sample {ASKED.id!r}, source {ASKED.source!r}" in failed.value.what
    log = "".join(traceback.format_exception(failed.value))
    assert "reply of 27 characters: '<answer>no parking</answer>'" in log
    with pytest.raises(BrokenPart) as failed:
        verdict_on(f"{'x' * 9000}<answer>no parking</answer>", ASKED)
    assert "x" * 4000 in (log := "".join(traceback.format_exception(failed.value)))
    assert "x" * 4001 not in log


@pytest.mark.parametrize("worker", ["", ", in_worker=True"])
def test_a_verifier_that_returns_no_verdict_is_blamed(worker: str, tmp_path: Path) -> None:
    path = of_anls(tmp_path, "return answered(", "return max(0, 0) or float(0) if sample else answered(")
    path.write_text(path.read_text().replace("partial_credit=True", f"partial_credit=True{worker}"))
    forget(used())
    use([path])
    with pytest.raises(RunFailed, match="it returns float, not Verdict") as failed:
        verdict_of()
    line = (
        path.read_text()
        .splitlines()
        .index(next(x for x in path.read_text().splitlines() if "def verify" in x))
    )
    assert failed.value.where == f"{path}:{line + 1}"
    assert failed.value.fix.startswith("return Verdict(score, why)")


@pytest.mark.parametrize("worker", ["", ", in_worker=True"])
def test_a_broken_verifier_ends_scoring_and_leaves_nothing_unscored(worker: str, tmp_path: Path) -> None:
    path = of_anls(tmp_path, "return answered(", "return max(0, 0) or float(0) if sample else answered(")
    path.write_text(path.read_text().replace("partial_credit=True", f"partial_credit=True{worker}"))
    forget(used())
    use([path])
    reward = load_recipe(find("codev-tiny", "recipes.rl"), RLRecipe).reward

    async def run() -> list[Trajectory]:
        async with Scorer(reward) as scorer:
            return await scorer.score([replace(sample(TARGET), verifier="anls")], [looks(TARGET)])

    with pytest.raises(RunFailed, match="it returns float, not Verdict"):
        asyncio.run(run())


@pytest.mark.parametrize("worker", ["", ", in_worker=True"])
def test_a_verifier_that_scores_below_0_is_blamed(worker: str, tmp_path: Path) -> None:
    path = of_anls(tmp_path, "return answered(", "return answered(-0.5, 'no') if sample else answered(")
    path.write_text(path.read_text().replace("partial_credit=True", f"partial_credit=True{worker}"))
    forget(used())
    use([path])
    with pytest.raises(RunFailed, match=r"`anls` of mine\.py is broken: OutOfRange: it scores -0\.5"):
        verdict_of()


@pytest.mark.parametrize("worker", ["", ", in_worker=True"])
def test_a_verifier_with_undeclared_partial_credit_is_blamed(worker: str, tmp_path: Path) -> None:
    path = of_anls(tmp_path, "return answered(", "return answered(0.5, 'half') if sample else answered(")
    text = path.read_text().replace("partial_credit=True", f"partial_credit=True{worker}")
    path.write_text(text)
    forget(used())
    use([path])
    assert verdict_of().score == 0.5
    path.write_text(text.replace("partial_credit=True", "partial_credit=False"))
    forget(used())
    use([path])
    with pytest.raises(
        RunFailed, match=r"`anls` of mine\.py is broken: OutOfRange: it scores 0\.5, between"
    ) as failed:
        verdict_of()
    assert failed.value.where == str(path)
    assert "say partial_credit=True in its Verifier(…), or give 0 or 1" in failed.value.fix


@pytest.mark.parametrize("worker", ["", ", in_worker=True"])
def test_a_custom_verifier_can_read_the_row_wherever_it_runs(worker: str, tmp_path: Path) -> None:
    read = '(sample.extra["unit"], sample.evidence[0].label, len(sample.images)) == ("m", "wall", 1)'
    path = of_anls(
        tmp_path, "return answered(", f"return answered(float({read}), '') if sample else answered("
    )
    path.write_text(path.read_text().replace("partial_credit=True", f"partial_credit=True{worker}"))
    forget(used())
    use([path])
    box = (Evidence("wall", 0, (5.0, 5.0, 9.0, 9.0)),)
    row = replace(ASKED, images=(Picture(data=blotches()),), evidence=box, extra={"unit": "m"})
    assert verdict_of(row).score == 1.0


def test_the_right_file_is_blamed(tmp_path: Path) -> None:
    path = of_anls(tmp_path, "TOO_FAR = 0.5", "TOO_FAR = 0.5\n\n\ndef fall(error):\n    raise error")
    fall = sys.modules[used()[0].module].fall

    def fallen(error: BaseException) -> BaseException:
        try:
            fall(error)
        except BaseException as raised:  # noqa: BLE001 - anything may be raised
            return raised
        raise AssertionError

    at = f"{path}:{path.read_text().splitlines().index('    raise error') + 1}"
    assert told(fallen(KeyError("x"))) == ("verifier `anls` of mine.py is broken: KeyError: 'x'", at)
    assert told(fallen(SystemExit(3)))[1] == at
    ours = ValueError("ours")
    assert told(ExceptionGroup("two", [ours, fallen(KeyError("x"))]))[1] == at
    for innocent in (ours, fallen(DataError("the row's")), fallen(KeyboardInterrupt())):
        assert broken(innocent) is None


def test_a_file_of_two_parts_names_both(tmp_path: Path) -> None:
    again = 'VERIFIERS.add("other", VERIFIERS["anls"])\n\n\ndef fall():\n    raise KeyError(1)\n'
    path = tmp_path / "mine.py"
    path.write_text(f"{own('anls.py')}\n{again}")
    use([path])
    with pytest.raises(KeyError) as raised:
        sys.modules[used()[0].module].fall()
    assert told(raised.value)[0].startswith("verifier `anls` or verifier `other` of mine.py is broken")


def test_an_error_in_a_ray_worker_is_blamed_on_the_part(tmp_path: Path) -> None:
    path = breaking("filter", tmp_path)
    data = tmp_path / "rows.parquet"
    write_samples(data, rows("filter"))
    text = f"records: samples\nuses: [mine.py]\nsources: {{mine: {{files: [{data}]}}}}\n"
    (tmp_path / "own.yaml").write_text(f"{text}filters: [{{filter: short, words: 3}}]\n")
    recipe = load_recipe(tmp_path / "own.yaml", DataRecipe)
    (task,) = Rows("samples", recipe.used).tasks([(1, recipe.filters[0])], None)
    row = _look_at({"task": pickle.dumps(task), "uses": pickle.dumps(used())})
    found = pickle.loads(row["found"])
    assert isinstance(found, RunFailed)
    assert found.where.startswith(f"{path}:")


def test_a_part_that_fails_in_a_service_ends_the_run_with_its_line(tiny: Path, tmp_path: Path) -> None:
    path = breaking("reward", tmp_path)
    text = (ROOT / "recipes/rl/codev-tiny.yaml").read_text()
    own_part = "  parts: {brief: {weight: 0.5, words: 20}}\n  evidence:\n"
    recipe = tmp_path / "own.yaml"
    recipe.write_text("uses: [mine.py]\n" + text.replace("  evidence:\n", own_part))
    reward = load_recipe(recipe, RLRecipe).reward
    with serving("--recipe", str(recipe)) as served:
        remote = reward.model_copy(update={"service": RewardService(urls=(served.url,), deadline_s=60.0)})

        async def run() -> None:
            async with Scorer(remote) as scorer:
                await scorer.score([sample(TARGET)], [looks(TARGET)])

        with pytest.raises(RunFailed, match=r"reward `brief` of mine\.py is broken: ZeroDivision") as failed:
            asyncio.run(run())
    assert failed.value.where.startswith(f"{path}:")
    assert "of the reward service" in failed.value.where


def called_of(text: str, folder: Path, angle: list[int] | int = 90) -> Observation:
    """The result of a call of `rotate_tool` from a user's file with this text."""
    (folder / "mine.py").write_text(text)
    use([folder / "mine.py"])
    recipe = ToolsRecipe.model_validate({"rotate_tool": {}})

    async def called() -> Observation:
        async with tools_of(recipe, folder / "search.jsonl") as tools:
            scene = Scene(SAMPLE, (blotches(),), ())
            return await tools.run(Asked("rotate_tool", {"angle": angle}, "", 0), scene, 0, ResultCache())

    return asyncio.run(called())


SHOWN = 'return shown(f"Turned by {angle} degrees:\\n{IMAGE_MARK}", [out.getvalue()], [crop])'
GIVES = {
    "no mark": ('shown("turned", [out.getvalue()])', "text has 0 <image> for 1 picture"),
    "a mark in found text": (
        'shown(f"a page says <image>: {IMAGE_MARK}", [out.getvalue()])',
        "2 <image> for 1",
    ),
    "a picture that is not encoded": ("shown(IMAGE_MARK, [picture])", "pictures as encoded bytes"),
    "no text": ("Observation(text=None, status='ok')", "are texts"),
    "an image that is not there": ("ShownCrop(bbox=whole, image=3, shown=0)", "`image` 3, .* has 1 picture"),
    "a picture that was not returned": ("ShownCrop(bbox=whole, image=0, shown=1)", "`shown` 1, .* 1 picture"),
    "a box of one pixel's edge": ("ShownCrop(bbox=(5, 5, 5, 9), image=0, shown=0)", r"`bbox` \(5, 5, 5, 9\)"),
    "a box of three": ("ShownCrop(bbox=(5, 5, 9), image=0, shown=0)", r"`bbox` \(5, 5, 9\)"),
    "no number": ("ShownCrop(bbox=(float('nan'), 5, 8, 9), image=0, shown=0)", "`bbox` .nan"),
    "a box of words": ("ShownCrop(bbox='left', image=0, shown=0)", "`bbox` left"),
    "a status of its own": (
        "replace(shown(IMAGE_MARK, [out.getvalue()]), status='fine')",
        "'fine': give one of ok",
    ),
    "output that is a number": ("replace(shown(IMAGE_MARK, [out.getvalue()]), output=5)", "are texts"),
    "half a character": (r"replace(shown('turned'), output='\ud83d')", "are texts that UTF-8 can hold"),
    "an image by name": ("ShownCrop(bbox=whole, image='0', shown=0)", "`image` '0' .* number pictures"),
    "a crop of another type": ("replace(shown('turned'), crops=[{}])", "holds dict: give ShownCrop"),
    "no list of pictures": ("replace(shown('turned'), images=None)", "pictures as encoded bytes"),
    "a matrix of four": ("ShownCrop(bbox=whole, image=0, shown=0, matrix=(1, 0, 0, 1))", "six or nine"),
}


@pytest.mark.parametrize("what", GIVES)
def test_a_tool_with_an_unrecordable_result_is_blamed(what: str, tmp_path: Path) -> None:
    gives, why = GIVES[what]
    if gives.startswith("ShownCrop"):
        gives = f"shown(IMAGE_MARK, [out.getvalue()], [{gives}])"
    with pytest.raises(BrokenPart, match=rf"tool `rotate_tool` of mine\.py is broken: ValueError: .*{why}"):
        called_of(importing_replace(own("rotate.py")).replace(SHOWN, f"return {gives}"), tmp_path)


def importing_replace(text: str) -> str:
    return text.replace("import io\n", "import io\nfrom dataclasses import replace\n")


def test_regions_may_be_lists_of_any_number_type(tmp_path: Path) -> None:
    text = own("rotate.py").replace("import io\n", "import io\n\nimport numpy as np\n")
    text = text.replace("bbox=whole", "bbox=[*map(np.float32, whole)]")
    (crop,) = called_of(
        text.replace("matrix=back(", "matrix=np.array(back(").replace("size))", "size)))"), tmp_path
    ).crops
    assert crop.bbox == (0.0, 0.0, 112.0, 84.0)
    assert crop.matrix == (0.0, -1.0, 112.0, 1.0, 0.0, 0.0)
    assert {crop}


def test_a_tool_that_changes_its_arguments_does_not_change_the_record(tmp_path: Path) -> None:
    asked = [90]
    line = "        angle, out = int(self.key(arguments, scene)), io.BytesIO()\n"
    text = own("rotate.py").replace("return str(int(angle))", "return str(angle[0])")
    text = text.replace("        if angle not in ANGLES:\n", "        if not angle:\n")
    text = text.replace(line, "        angle, out = arguments['angle'].pop(), io.BytesIO()\n")
    assert called_of(text, tmp_path, asked).status == "ok"
    assert asked == [90]


def test_a_tool_whose_own_task_was_cancelled_is_blamed(tmp_path: Path) -> None:
    waits = "        angle, out = int(self.key(arguments, scene)), io.BytesIO()\n"
    cancels = (
        "        import asyncio\n        task = asyncio.ensure_future(asyncio.sleep(9))\n"
        "        task.cancel()\n        await task\n"
    )
    with pytest.raises(BrokenPart, match="is broken: RuntimeError: what it waited for was cancelled") as told:
        called_of(own("rotate.py").replace(waits, waits + cancels), tmp_path)
    assert told.value.where.rpartition(":")[2].isdigit()


def test_a_lone_surrogate_in_an_error_becomes_a_question_mark(tmp_path: Path) -> None:
    text = own("rotate.py").replace(
        "        angle, out = ", "        raise Mistake('\\ud83d?')\n        angle, out = "
    )
    assert called_of(text, tmp_path).error == "??"


def test_an_unhashable_key_is_blamed(tmp_path: Path) -> None:
    with pytest.raises(BrokenPart, match="`key` returns list: return a text"):
        called_of(own("rotate.py").replace("return str(int(angle))", "return [angle]"), tmp_path)


def test_a_tool_may_report_the_models_mistake_and_the_run_continues(tmp_path: Path) -> None:
    text = own("rotate.py").replace(
        "        angle, out = ", '        raise Mistake("not now")\n        angle, out = '
    )
    found = called_of(text, tmp_path)
    assert (found.status, found.error) == ("error", "not now")


@pytest.mark.parametrize("given", ['count > settings.words and "long"', "''", "3"])
def test_an_invalid_drop_reason_ends_the_curation(tmp_path: Path, given: str) -> None:
    (tmp_path / "mine.py").write_text(
        own("short.py").replace('f"{count} words" if count > settings.words else None', given)
    )
    write_samples(tmp_path / "s.parquet", [SAMPLE])
    recipe = {
        "records": "samples",
        "uses": ["mine.py"],
        "seed": 0,
        "sources": {"s": {"files": [str(tmp_path / "s.parquet")], "rename": False, "data_source": None}},
        "filters": [{"filter": "short", "rows": "all", "words": 100}],
        "mix": {},
    }
    (tmp_path / "r.yaml").write_text(json.dumps(recipe))
    ended = vtune("curate", tmp_path / "r.yaml", "--out", tmp_path / "out")
    assert ended.code == 1, ended.err
    assert re.search(r"filter `short` of mine\.py is broken: .*it returns .+ as the reason", ended.err)
    assert "or None to keep the row" in ended.err
