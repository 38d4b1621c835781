"""The table of parts: names belong to their own files, and nothing is loaded before it is asked for."""

import ast
import functools
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from vtune.curate.filters import FILTERS
from vtune.data.formats.table import FORMATS
from vtune.environments import ENVIRONMENTS
from vtune.errors import RecipeError
from vtune.metrics.benchmarks import SCORERS
from vtune.models.families import FAMILIES
from vtune.parts import OURS, Kind
from vtune.protocols import PROTOCOLS
from vtune.reward.evidence_judge import EVIDENCE
from vtune.reward.part import REWARDS
from vtune.rollout.prompts import STYLES
from vtune.tools import TOOLS
from vtune.update.losses import LOSSES
from vtune.verifiers import VERIFIERS

TABLE = "vtune/parts.py"
UNMISTAKABLE: tuple[Kind, ...] = ("verifier", "tool", "family", "loss")
"""Kinds whose names are hardly words: `mean` or `tools` stand everywhere, and mean something else."""
OTHER_MEANINGS = {
    ("cli/data.py", "exact"): "how an index searches",
    ("vtune/tools/dense_build.py", "exact"): "how an index searches",
    ("vtune/curate/item.py", "*"): "abilities of V-Triune's rows",
    ("vtune/data/coco.py", "counting"): "an ability",
    ("vtune/data/harness.py", "counting"): "an ability",
    ("vtune/data/charts.py", "counting"): "a kind of question",
    ("vtune/data/mathematics.py", "math"): "an ability",
    ("vtune/data/formats/specimens.py", "*"): "rows as others write them",
    ("vtune/data/formats/vtriune.py", "ocr"): "a word of an ability",
    ("vtune/data/shapes.py", "*"): "tasks of puzzles",
    ("vtune/data/formats/megabench.py", "mega_bench"): "the format, and the source of its rows",
    ("vtune/metrics/megabench.py", "mega_bench"): "the scorer",
    ("vtune/protocols/readings.py", "mega_bench"): "the scorer",
    ("vtune/protocols/official.py", "mega_bench"): "a kind of question",
    ("vtune/protocols/paper.py", "mega_bench"): "a kind of question",
    ("vtune/protocols/lmms_eval.py", "mega_bench"): "a kind of question",
    ("vtune/runs/evaluate/scorers.py", "mega_bench"): "a kind of question",
    ("vtune/curate/judging.py", "judge"): "a key of a recipe",
    ("vtune/reward/service.py", "judge"): "a key of what is sent",
    ("vtune/reward/wire.py", "judge"): "a key of what is sent",
    ("vtune/reward/released.py", "judge"): "the id of a sample",
    ("vtune/runs/plan/plan.py", "judge"): "what a plan misses",
    ("vtune/runs/evaluate/against.py", "judge"): "a cause of a difference",
    ("vtune/runs/evaluate/causes.py", "judge"): "a cause of a difference",
    ("vtune/runs/evaluate/published.py", "judge"): "a cause of a difference",
    ("vtune/runs/evaluate/rescored.py", "judge"): "a cause of a difference",
    ("vtune/runs/audit/faithfulness.py", "judge"): "a key of a recipe",
    ("vtune/report/machine.py", "python"): "the interpreter",
    ("vtune/runs/plan/doctor.py", "python"): "the interpreter",
    ("vtune/runs/folder.py", "python"): "the interpreter",
    ("vtune/runs/plan/checks.py", "judge"): "a key of a recipe, and a check",
}
"""(file, word) where the word is not a name of a part; `*`: every word there."""


@functools.cache
def strings() -> list[tuple[str, str, int]]:
    """(file, string, line) of every string of the code that may be a part's name."""
    names = {name for parts in OURS.values() for name in parts}
    found = []
    for top in ("vtune", "cli"):
        for path in (ROOT / top).rglob("*.py"):
            file = path.relative_to(ROOT).as_posix()
            if file == TABLE or "sandbox" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names:
                    found.append((file, node.value, node.lineno))
    return found


def spelt(kind: Kind) -> set[tuple[str, str, int]]:
    """(file, name, line) of every string that is a part's name and stands outside its own file."""
    return {
        (file, name, line)
        for file, name, line in strings()
        if name in OURS[kind] and OURS[kind][name].replace(".", "/") + ".py" != file
    }


@pytest.mark.parametrize("kind", UNMISTAKABLE)
def test_no_file_spells_the_name_of_another_files_part(kind: Kind) -> None:
    assert OURS[kind]
    places = {
        (file, name, line)
        for file, name, line in spelt(kind)
        if (file, name) not in OTHER_MEANINGS and (file, "*") not in OTHER_MEANINGS
    }
    assert not places


def test_every_other_meaning_is_still_met() -> None:
    met = {(file, name) for kind in UNMISTAKABLE for file, name, _ in spelt(kind)}
    assert {one for one in OTHER_MEANINGS if one[1] != "*"} <= met
    assert {file for file, name in OTHER_MEANINGS if name == "*"} <= {file for file, _ in met}


def test_every_line_of_the_table_is_a_part() -> None:
    tables = (
        VERIFIERS,
        FILTERS,
        TOOLS,
        ENVIRONMENTS,
        FORMATS,
        SCORERS,
        PROTOCOLS,
        STYLES,
        EVIDENCE,
        REWARDS,
        FAMILIES,
        LOSSES,
    )
    assert {table.kind for table in tables} == set(OURS)
    for table in tables:
        assert [name for name, part in table.items() if part] == list(OURS[table.kind])
        assert all(table.about(part) for part in table.values())


def test_a_part_is_loaded_when_it_is_asked_for_and_no_other() -> None:
    code = (
        "import sys; from vtune.verifiers import VERIFIERS; 'ocr' in VERIFIERS; list(VERIFIERS);"
        "before = 'vtune.verifiers.exact' in sys.modules; VERIFIERS['exact'];"
        "print(before, 'vtune.verifiers.exact' in sys.modules, 'vtune.verifiers.ocr' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["False", "True", "False"]


def test_a_name_of_ours_is_not_given_away() -> None:
    with pytest.raises(RecipeError, match="`exact` is a verifier of vtune's own") as told:
        VERIFIERS.add("exact", VERIFIERS["exact"])
    assert "test_parts.py" in told.value.where


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="no verifier is called `exakt`; did you mean `exact`"):
        VERIFIERS.known("exakt")
