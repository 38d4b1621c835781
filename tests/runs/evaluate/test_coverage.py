"""One table of what is tested for every shipped suite under every protocol with a rule for it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.protocols import test_maths_parsers as maths
from tests.protocols import test_parsers as parsers
from tests.protocols import test_places as places
from tests.protocols import test_short_answers as short
from tests.runs.evaluate.reading import JUDGED
from tests.runs.evaluate.test_search_suites import CASES as SEARCH
from tests.runs.evaluate.test_suites import CASES as FROM_FILES
from vtune.config import find, load_recipe, shipped
from vtune.protocols import PROTOCOLS
from vtune.protocols.protocol import Rule
from vtune.runs.evaluate.groups import SUITES
from vtune.runs.evaluate.suite import EvalSuite
from vtune.verifiers.gradings import KEY

ROOT = Path(__file__).parents[2]
LEAST = 30
"""Minimum number of awkward replies per parser."""
TRIED: dict[tuple[str, str], int] = {
    **dict.fromkeys(parsers.READERS, len(parsers.LETTERS)),
    ("lmms-eval", "mmmu_pro_vision"): len(parsers.LETTERS),
    **dict.fromkeys(parsers.ROAD, len(parsers.REALWORLD)),
    **dict.fromkeys((("vlmevalkit", "vlmblind"), ("lmms-eval", "vlmblind")), len(parsers.BLIND)),
    **dict.fromkeys((("vlmevalkit", "count"), ("lmms-eval", "count")), len(parsers.COUNTS)),
    ("vlmevalkit", "mmmu"): len(parsers.LETTERS),
    **{(name, "screenspot_pro"): len(places.POINTS) for name in places.POINT_READERS},
    **dict.fromkeys(places.BOX_READERS, len(places.BOXES)),
    **{(name, "mathvista"): len(maths.OPTIONS) + len(maths.NUMBERS) for name in ("official", "vlmevalkit")},
    **{(name, "mathvision"): len(maths.OPEN) + len(maths.CHOSEN) for name in ("official", "vlmevalkit")},
    ("vlmevalkit", "mathverse"): len(maths.ALONE),
    ("vlmevalkit", "charxiv_descriptive"): len(maths.ALONE),
    **dict.fromkeys((("official", "mmsearch"), ("official", "fvqa")), len(short.ANSWERS)),
}
"""(protocol, kind) -> number of replies in its parser's test; a parser needs one entry for all its kinds."""
SAME = {"hrbench-8k": "hrbench-4k", "mme-realworld": "mme-realworld-lite"}
"""Suites that are read and scored like another one."""
ELSEWHERE = {
    "mega-bench-core": ("runs/evaluate/test_scorers.py", "test_mega_bench_is_a_mean_over_tasks"),
    "coco-val": ("runs/evaluate/test_detection_sets.py", "test_coco_val_scores"),
    "ovdeval": ("runs/evaluate/test_detection_sets.py", "test_ovdeval_scores"),
    "visual-probe": ("runs/evaluate/test_suites.py", "test_visualprobe_is_the_truth_word_for_word"),
    "search": ("chains/test_credit_search.py", "test_the_benchmarks_are_scored"),
    "lens": ("runs/evaluate/test_evaluation.py", "test_known_habits_are_measured"),
    "trails": ("runs/data/test_trails.py", "test_every_question_is_answered"),
    "shapes": ("data/test_shapes.py", "test_the_ground_truth_earns_full_marks"),
    "own": ("chains/test_own_data.py", "test_the_evaluation_the_audit_and_the_report_agree"),
}
"""Suite -> test file, and the name prefix of the test with a score known by construction."""


def _parsers() -> dict[Callable[..., Any], int]:
    """Parser -> number of awkward replies in its test."""
    found: dict[Callable[..., Any], int] = {}
    for (name, kind), count in TRIED.items():
        rule = PROTOCOLS[name].rule(kind)
        assert rule is not None, (name, kind)
        found[rule.grade] = max(count, found.get(rule.grade, 0))
    return found


def _graded_by(rule: Rule, suite: EvalSuite) -> str:
    """A short description of what grades a reply."""
    if rule.by == "verifier":
        sample = rule.prepared
        if sample is None:
            return "its verifier"
        from vtune.protocols.specimens import SPECIMENS

        grading = sample(SPECIMENS[suite.kind or ""][0]).verifier_parm.get(KEY)
        return f"a judge, `{grading}`"
    model = ", then a model" if rule.asks_model else ""
    return f"{_parsers()[rule.grade]} replies{model}"


def _scores(name: str, protocol: str) -> Iterator[str]:
    """Scores known by construction."""
    for cases in (FROM_FILES, JUDGED):
        if name in cases and protocol in cases[name][1]:
            score, unreadable, *_ = cases[name][1][protocol]  # type: ignore[misc]
            yield f"{score:.3f} ({unreadable} unread)"
    if name in SEARCH and protocol in SEARCH[name]:
        score, unreadable, _ = SEARCH[name][protocol]
        yield f"{score:.3f} ({unreadable} unread)"


def _elsewhere(name: str) -> str | None:
    """The test with the known score of a suite without a case here."""
    if name in SAME:
        return f"as {SAME[name]}"
    return Path(ELSEWHERE[name][0]).stem if name in ELSEWHERE else None


def test_the_named_tests_exist() -> None:
    suites = set(shipped(SUITES))
    assert {*SAME, *SAME.values(), *ELSEWHERE} <= suites
    for name, (file, begins) in ELSEWHERE.items():
        text = (ROOT / file).read_text(encoding="utf-8")
        assert f"\ndef {begins}" in text, f"{name}: {file} has no test {begins}…"


def test_every_parser_is_tested_with_30_awkward_replies() -> None:
    tried = _parsers()
    rules = {
        rule.grade
        for protocol in PROTOCOLS.values()
        for rule in protocol.rules.values()
        if rule.by == "grade"
    }
    assert len(rules) > 20
    assert {f"{one.__module__}.{one.__qualname__}" for one in rules - tried.keys()} == set()
    assert min(tried.values()) >= LEAST
    assert min(map(len, (short.JUDGES, maths.GRADED, maths.EXTRACTED))) >= LEAST


def _asked() -> Iterator[tuple[str, EvalSuite, str, Rule]]:
    """Every suite under every protocol that has a rule for it."""
    for name in shipped(SUITES):
        suite = load_recipe(find(name, SUITES), EvalSuite)
        for protocol in PROTOCOLS:
            rule = PROTOCOLS[protocol].rule(suite.kind)
            if rule is not None:
                yield name, suite, protocol, rule


def _reader(rule: Rule) -> Any:
    """A key shared by rules that read replies in the same way."""
    return rule.grade if rule.by == "grade" else rule.prepared


def test_every_suite_or_one_with_the_same_rule_has_a_known_score_per_protocol(
    golden: Callable[[str, str], None],
) -> None:
    known = {(name, protocol): "; ".join(_scores(name, protocol)) for name, _, protocol, _ in _asked()}
    first: dict[Any, str] = {}
    for name, _, protocol, rule in _asked():
        if known[name, protocol]:
            first.setdefault(_reader(rule), f"as {name} under {protocol}")
    lines = [f"{'suite':<20} {'protocol':<11} {'right or wrong by':<26} score by construction"]
    for name, suite, protocol, rule in _asked():
        score = known[name, protocol] or _elsewhere(name) or first.get(_reader(rule))
        assert score, f"{name} has no known score under {protocol}: add a case"
        lines.append(f"{name:<20} {protocol:<11} {_graded_by(rule, suite):<26} {score}")
    assert len(lines) > 100
    golden("suites.txt", "\n".join(lines) + "\n")
