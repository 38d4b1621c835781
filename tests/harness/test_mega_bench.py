"""Our MEGA-Bench metrics and parsers match those shipped in lmms-eval: `make test-harness`.

Skipped if their environment, `.venv-harness`, does not exist.
"""

import json
import math
import subprocess
from itertools import product
from random import Random
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.harness.test_upstream import PYTHON
from tests.pages import text_of
from tests.verifiers.test_mega_bench import BOX, ODD, PARSED
from vtune.verifiers.mega_metrics import METRICS, score
from vtune.verifiers.mega_parsing import PARSERS, fields_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="make test-harness makes .venv-harness"),
]

TEXTS = [
    "",
    "B",
    "(B)",
    "b",
    "Because",
    "3",
    "-3",
    "3.0",
    "3.5",
    "1,000",
    "1e3",
    "12 km",
    "the cup",
    "A Cup",
    "cap",
]
TEXTS += [
    "none",
    "café",
    "a,b",
    "b, a",
    "A,B",
    "a\nb",
    "b\\na",
    "e4, Qh5#",
    "Qh5#!, e4",
    "\\boxed{3}",
    "x = 3",
    "50%",
]
TEXTS += [
    "[1, 2]",
    "[2, 1]",
    "['a', 'b']",
    "{'a': 1}",
    "{'a': [1, 2], 'b': 'x'}",
    "[]",
    "{}",
    "[(1, 2), (3, 4)]",
]
TEXTS += [BOX, f"[{BOX}]", f"[{BOX}, (0.2, 0.2, 0.4, 0.6)]", "(0.2, 0.2, 0.4, 0.6)", "(0.5, 0.5, 0.1, 0.1)"]
TEXTS += [
    "<box>0.1,0.1,0.5,0.5</box>",
    "<box>0.1, 0.1, 0.5, 0.3</box>",
    "<point>0.3, 0.4</point>",
    "<point>1.3,0.4</point>",
]
VALUES: list[Any] = [
    None,
    3,
    3.5,
    True,
    [],
    {},
    ["a", "b"],
    ["b", "A"],
    [1, 2],
    [2, 1, 1],
    {"a": 1},
    {"a": [1, 2], "b": "x"},
]
VALUES += [
    {"a": "x", "b": "y"},
    [[0.1, 0.1, 0.5, 0.5]],
    [0.1, 0.1, 0.5, 0.5],
    [[1, 2], [3, 4]],
    {"a": [[0.1, 0.1, 0.5, 0.5]]},
]
PAIRS = 250
"""Random (answer, truth) pairs per metric, seeded by its name."""
BOXES = [[BOX], [BOX, "(0.2, 0.2, 0.4, 0.6)"]]
"""Truths for `xml_norm_point_in_bbox`, which are lists."""
REPLIES = [
    "{}",
    "Answer: {}",
    "**Answer: {}**",
    "**Answer:** {}",
    "Answer: x\nAnswer: {}",
    "So.\n\nAnswer: {}\n\nFor it is.",
]
REPLIES += [
    "```json\n{}\n```",
    "```\n{}\n```",
    "Answer: ```python\n{}\n```",
    "It is {} then.",
    '{{"answer": {}}}',
    '{{"answer": "{}"}}',
]
REPLIES += [
    "{{'answer': '{}'}}",
    '[1] {{"answer": "{}"}} and on',
    '"{}"',
    "  {}  \n\n\n  b  ",
    "answer: {}",
    "Answer:\n```\n  {}\n /\\\n```",
]


def _cases() -> list[tuple[str, Any, Any]]:
    """Every metric with known edge cases, right answers, and random pairs of an answer and a truth."""
    found: list[tuple[str, Any, Any]] = [(metric, answer, truth) for metric, answer, truth, _ in ODD]
    for metric in METRICS:
        truths = BOXES if metric == "xml_norm_point_in_bbox" else [*TEXTS, *VALUES]
        pairs = list(product([*TEXTS, *VALUES], truths))
        found += [(metric, *pair) for pair in Random(metric).sample(pairs, min(PAIRS, len(pairs)))]
        found += [(metric, one, one) for one in TEXTS]
    return found


def _parsed() -> list[tuple[str, str, dict[str, Any]]]:
    """Every parser with every form of reply around every text."""
    truths = ({"answer": "x"}, {"answer": "x\ny"})
    found = [(parser, reply, truths[0]) for parser, reply, _ in PARSED]
    forms = [form.format(text) for form, text in product(REPLIES, TEXTS)]
    return found + [(parser, reply, truth) for parser in PARSERS for reply in forms for truth in truths]


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results of the upstream functions."""
    folder = tmp_path_factory.mktemp("mega")
    (folder / "cases.json").write_text(json.dumps({"scores": _cases(), "fields": _parsed()}))
    script = ROOT / "tests/harness/upstream_mega.py"
    words: list[Any] = [PYTHON, script, folder / "cases.json", folder / "found.json"]
    ended = subprocess.run(words, capture_output=True, text=True, cwd=folder, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return found


def test_every_metric_matches_upstream(upstream: dict[str, Any]) -> None:
    cases = _cases()
    assert len(cases) == len(upstream["scores"]) > 10_000
    differ, no_number = [], set()
    for (metric, answer, truth), theirs in zip(cases, upstream["scores"], strict=True):
        ours = score(metric, answer, truth)
        if math.isnan(theirs):  # upstream leaves NaN fields out of the mean
            no_number.add(metric)
            assert ours == 0
        elif not math.isclose(ours, theirs, abs_tol=1e-9):
            differ.append((metric, answer, truth, ours, theirs))
    assert differ == []
    assert no_number == {"nbbox_iou_sequence"}
    assert {metric for metric, _, _ in cases} == set(METRICS)
    row = f"{len(cases):,} answers and {len(upstream['fields']):,} replies"
    assert row in text_of("vtune/protocols/README.md"), row


def test_every_parser_matches_upstream(upstream: dict[str, Any]) -> None:
    cases = _parsed()
    assert len(cases) == len(upstream["fields"]) > 1_000
    pairs = zip(cases, upstream["fields"], strict=True)
    found = [
        (case, json.loads(json.dumps(fields_of(case[1], case[0], case[2]))), theirs) for case, theirs in pairs
    ]
    assert [one for one in found if one[1] != one[2]] == []
