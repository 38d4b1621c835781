"""A custom scorer: an invalid result is an error, and after a correction nothing is generated again."""

import json
import re
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.runs.commands import Ended, rl, setting, vtune
from tests.runs.evaluate.scripted import write_script
from tests.runs.parts.test_parts import broken
from vtune.data.formats.table import FORMATS
from vtune.errors import BrokenPart
from vtune.metrics.benchmarks import Mark
from vtune.metrics.evaluated import evaluated
from vtune.metrics.scored import is_mean, scored_by
from vtune.runs.evaluate.grading import scores_of
from vtune.uses import forget, use, used

OWN = ROOT / "tests/own"

TEXT = '''"""A scorer of one's own."""

from vtune.metrics.benchmarks import SCORERS


def mine(marks):
    """Mine."""
    return {gives}


SCORERS.add("mine", mine)
'''
RIGHT = '{"score": sum(mark.score for mark in marks) / len(marks)}'

WRONG = {
    "nan": ('{"score": float("nan")}', "OutOfRange: it returns nan as `score`"),
    "infinite": ('{"score": 1e999}', "OutOfRange: it returns inf as `score`"),
    "a text": ('{"score": "good"}', "OutOfRange: it returns 'good' as `score`"),
    "a truth": ('{"score": True}', "OutOfRange: it returns True as `score`"),
    "no score": ('{"n": 1}', "OutOfRange: it returns no `score` though all 2 rollouts were scored: n"),
    "a number alone": ("0.5", "TypeError: it returns 0.5, not a dict"),
    "nothing": ("None", "TypeError: it returns None, not a dict"),
    "nan beside it": ('{"score": 0.5, "x": float("nan")}', "TypeError: its `x` is nan, which is not JSON"),
    "a mark": ('{"score": 0.5, "all": marks}', "TypeError: its `all` is [Mark("),
    "a pair as interval": (
        '{"score": 0.5, "intervals": {"score": [0, 1]}}',
        "TypeError: its `intervals` is {'score': [0, 1]}",
    ),
    "an interval of a part": (
        '{"score": 0.5, "parts": {"a": {"intervals": 0.1}}}',
        "TypeError: its `parts.a.intervals` is 0.1",
    ),
    "a text for a category": (
        '{"score": 0.5, "categories": {"a": {"score": "0.5"}}}',
        "TypeError: its `categories` is {'a': {'score': '0.5'}}",
    ),
    "a truth for a category": (
        '{"score": 0.5, "categories": {"a": True, "b": None}}',
        "TypeError: its `categories` is {'a': True, 'b': None}",
    ),
    "a part without a list": ('{"score": 0.5, "unscored_parts": 3}', "TypeError: its `unscored_parts` is 3"),
}
"""Name -> an invalid scorer result, and the expected error."""


pytestmark = pytest.mark.usefixtures("forgetting")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with two questions, replies (one right), and a suite with a custom scorer."""
    for name in ("lines.py", "anls.py"):
        shutil.copy(OWN / name, tmp_path)
    files = use([tmp_path / "lines.py"])
    FORMATS["lines"].specimen(tmp_path)  # type: ignore[misc]
    forget(files)
    lines = (ROOT / "eval_suites/lens.yaml").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("data:", "format:", "offers:", "scorer:"))]
    own = f"uses: [lines.py, mine.py]\ndata: [{tmp_path}/questions.tsv]\nformat: lines\noffers: []"
    (tmp_path / "suite.yaml").write_text("\n".join([own, "scorer: mine", *kept, ""]))
    replies = {"questions/0": ["<answer>red</answer>"], "questions/1": ["<answer>red</answer>"]}
    write_script(tmp_path / "replies.jsonl", replies)
    return tmp_path


def scorer(here: Path, gives: str) -> Path:
    file = here / "mine.py"
    file.write_text(TEXT.replace("{gives}", gives))
    return file


def run(here: Path, *more: str) -> Ended:
    forget(used())
    model = f"scripted:{here / 'replies.jsonl'}"
    return vtune("eval", "--suite", here / "suite.yaml", "--model", model, "--out", here / "out", *more)


def results(here: Path) -> Any:
    return json.loads((here / "out/results.json").read_text())


def marks(*scores: float | None) -> list[Mark]:
    return [Mark(f"a/{n}", {}, score, unreadable=False, source="a") for n, score in enumerate(scores)]


@pytest.mark.parametrize("what", WRONG)
def test_an_invalid_score_is_an_error_before_results_are_written(what: str, here: Path) -> None:
    gives, said = WRONG[what]
    file = scorer(here, gives)
    ended = run(here)
    assert ended.code == 1
    assert f"error: scorer `mine` of mine.py is broken: {said}" in ended.err
    assert re.search(rf"  at   {re.escape(str(file))}:\d+\n  fix  ", ended.err)
    assert "`vtune parts check` of the file tries it" in ended.err
    assert "Traceback" not in ended.err
    assert not {"results.json", "items.jsonl"} & {path.name for path in (here / "out").iterdir()}


@pytest.mark.parametrize("gives", ["__import__('numpy').float32(0.5)", "__import__('torch').tensor([0.5])"])
@pytest.mark.parametrize("at", ["", "'score': 0.5, 'parts': [{}]"])
def test_a_number_of_another_library_is_to_be_converted(here: Path, gives: str, at: str) -> None:
    use([scorer(here, "{" + (at.replace("{}", gives) or f"'score': {gives}") + "}")])
    with pytest.raises(BrokenPart, match=re.escape("write `float(…)` around")):
        scored_by("mine", marks(0.5))


@pytest.mark.parametrize("what", WRONG)
def test_parts_check_finds_an_invalid_score(what: str, tmp_path: Path) -> None:
    gives, said = WRONG[what]
    whys = "".join(broken(scorer(tmp_path, gives)).values())
    assert said.partition(" though")[0].partition("[")[0] in whys
    assert "AttributeError" not in whys


def test_an_invalid_score_is_an_error_everywhere(tmp_path: Path) -> None:
    use([scorer(tmp_path, '{"score": float("nan") if marks[0].source == "b" else 0.5}')])
    plain, other = marks(1.0), [Mark("a/0", {}, 1.0, unreadable=False, source="b")]
    assert scores_of("mine", plain, plain) == {"score": 0.5}
    for pair in ((other, other), (plain, other)):  # in training, and with the protocol's own fallback
        with pytest.raises(BrokenPart, match="it returns nan as `score`"):
            scores_of("mine", *pair)


def test_an_unknown_score_is_not_an_error(tmp_path: Path) -> None:
    use([scorer(tmp_path, '{"n": len(marks)}')])
    assert scored_by("mine", marks(1.0, None)) == {"n": 2}
    assert scored_by("mine", []) == {"n": 0}
    forget(used())
    use([scorer(tmp_path, '{"n": len(marks), "score": None}')])
    assert scored_by("mine", marks(1.0, 0.0)) == {"n": 2}


def test_custom_categories_may_be_given_as_plain_scores() -> None:
    more: dict[str, Any] = {"evidence_score": 1.0, "max_unaudited": 0.0, "seed": 0}
    row = evaluated("quiz", [], {"score": 0.5, "categories": {"a": 0.25, "b": {"score": 0.75}}}, [], **more)
    assert row["eval/quiz/all"] == {"score": 0.5, "score_a": 0.25, "score_b": 0.75}
    truth = evaluated("quiz", [], {"score": 0.5, "passed": True}, [], **more)
    assert truth["eval/quiz/all"] == {"score": 0.5}  # not 1


def test_a_corrected_scorer_scores_existing_rollouts(here: Path) -> None:
    scorer(here, "1 / 0")
    assert run(here).code == 1
    (drawn,) = (here / "out/trajectories").iterdir()
    written = drawn.stat().st_mtime_ns
    scorer(here, '{"n": 1}')
    assert run(here, "--resume").code == 1  # wrong again
    assert drawn.stat().st_mtime_ns == written
    file = scorer(here, RIGHT)
    ended = run(here, "--resume")
    assert ended.code == 0, ended.err
    assert f"mine.py has changed since {here / 'out'} began; it adds only scorers" in ended.err
    assert "eval: 1/2" not in ended.err
    assert results(here)["score"] == {"score": 0.5}
    assert results(here)["environment"]["uses"]["mine.py"] == sha256(file.read_bytes()).hexdigest()
    assert (here / "out/uses/mine.py").read_bytes() == file.read_bytes()
    assert not (here / "out/started.json").exists()


def test_results_are_not_mixed_with_those_of_another_scorer(here: Path) -> None:
    scorer(here, RIGHT)
    assert run(here).code == 0
    before = (here / "out/results.json").read_bytes()
    scorer(here, '{"score": 0.0}')
    ended = run(here, "--resume")
    assert ended.code == 2
    assert f"mine.py is not the file of the user's own parts that {here / 'out'} began with" in ended.err
    assert f"after `vtune export {here / 'out'} NEW --as scripted`" in ended.err
    assert (here / "out/results.json").read_bytes() == before

    forget(used())
    assert vtune("export", here / "out", here / "new", "--as", "scripted").code == 0
    scorer(here, '{"score": 0.0}')
    forget(used())
    words = ("--model", f"scripted:{here / 'new/replies.jsonl'}", "--out", here / "again", "--json")
    ended = vtune("eval", "--suite", here / "suite.yaml", *words)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["score"] == {"score": 0.0}


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_file_that_affects_generation_may_not_change(when: str, here: Path) -> None:
    both = (here / "anls.py").read_text() + TEXT.partition("\n\n")[2]
    scorer(here, "1 / 0")
    if when == "before":
        (here / "mine.py").write_text(both.replace("{gives}", "1 / 0"))
    assert run(here).code == 1
    scorer(here, RIGHT)
    if when == "after":
        (here / "mine.py").write_text(both.replace("{gives}", RIGHT))
    ended = run(here, "--resume")
    assert ended.code == 2
    assert "mine.py is not the file of the user's own parts" in ended.err
    assert "or start a new run with another --out" in ended.err
    assert (here / "out/started.json").exists()


def test_a_format_in_the_scorers_file_may_not_change(here: Path) -> None:
    scorer(here, "1 / 0")
    assert run(here).code == 1
    scorer(here, RIGHT)
    (here / "lines.py").write_text((here / "lines.py").read_text() + "# changed\n")
    ended = run(here, "--resume")
    assert ended.code == 2
    assert "lines.py is not the file" in ended.err


def test_power_and_comparisons_use_the_mean(here: Path) -> None:
    scorer(here, '{"score": 0.125}')
    assert run(here).code == 0
    said = vtune("report", here / "out").out
    assert "another model" not in said
    assert "1 independent question: the score is not their mean" in said
    ended = vtune("compare", here / "out", here / "out")
    assert ended.code == 0, ended.err
    assert "not the suite's score, which is by scorer `mine`: A 0.125, B 0.125" in ended.out
    by = json.loads(vtune("compare", here / "out", here / "out", "--json").out)["scored_by"]
    assert by == {"scorer": "mine", "a": 0.125, "b": 0.125, "over_answers": False}

    shutil.rmtree(here / "out")
    (here / "suite.yaml").write_text(
        (here / "suite.yaml").read_text().replace("scorer: mine", "scorer: mean")
    )
    assert run(here).code == 0
    assert "another model" in vtune("report", here / "out").out
    assert "suite's score" not in vtune("compare", here / "out", here / "out").out
    assert json.loads(vtune("compare", here / "out", here / "out", "--json").out)["scored_by"] is None


@pytest.mark.parametrize(
    ("changes", "mean"),
    [
        ({}, True),
        ({"suite": {"scorer": "sources"}}, True),
        ({"suite": {"scorer": "worst"}}, False),
        ({"suite": {"scorer": "sources"}, "score": {"score": 0.25}}, False),
        ({"score": {}}, True),
        ({"sources": {}}, True),
        ({"suite": None, "score": [0.5], "sources": {"all": 3}}, True),
        ({"suite": {"scorer": [1]}, "score": {"score": "good"}}, True),
    ],
)
def test_the_mean_score_is_recognised(changes: dict[str, Any], mean: bool) -> None:
    whole = {
        "suite": {"scorer": "mean"},
        "score": {"score": 0.5},
        "sources": {"all": {"reward_accuracy": 0.5}},
    }
    assert is_mean(whole | changes) is mean


@pytest.mark.train
def test_training_with_evaluation_ends_with_the_scorers_error(here: Path, tiny: Path, lens: Path) -> None:
    scorer(here, '{"score": float("nan")}')
    suites = {"every": 1, "suites": [{"suite": str(here / "suite.yaml"), "limit": None, "settings": {}}]}
    ended = vtune(*rl(tiny, lens / "train.parquet", here / "run", *setting(eval=json.dumps(suites))))
    assert ended.code == 1
    assert "error: scorer `mine` of mine.py is broken: OutOfRange: it returns nan as `score`" in ended.err
    assert "eval/" not in (here / "run/metrics.jsonl").read_text()


def test_a_scorer_that_sorts_or_empties_its_marks_changes_nothing_else(here: Path) -> None:
    """The scores of each question are written after it has run."""
    marks = [Mark("a", {}, 1.0, False), Mark("b", {}, 0.0, False)]
    (here / "emptying.py").write_text(
        "from vtune.metrics.benchmarks import SCORERS\n\n\ndef emptying(marks):\n    marks.clear()\n"
        '    return {"score": 0.5}\n\n\nSCORERS.add("emptying", emptying)\n'
    )
    use([here / "emptying.py"])
    assert scored_by("emptying", marks) == {"score": 0.5}
    assert [mark.sample_id for mark in marks] == ["a", "b"]
