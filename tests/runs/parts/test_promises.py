"""The contracts of scorers, prompt styles, filters and data formats, and the messages if one is broken."""

from pathlib import Path

import pytest

from tests.runs.commands import vtune
from tests.runs.data.test_validating import encoded
from tests.runs.parts.test_broken import CASES, breaking
from tests.runs.parts.test_parts import OWN, broken
from vtune.runs.parts.parts import check_parts

pytestmark = pytest.mark.usefixtures("forgetting")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("count = len(question(item.record).split())", "count = len(item.trace.calls)"),
        ("count = len(question(item.record).split())", "count = size_of(input_pictures(item)[0])[0]"),
    ],
)
def test_a_filter_of_traces_or_pictures_is_checked_on_them(tmp_path: Path, old: str, new: str) -> None:
    text = (OWN / "short.py").read_text()
    assert old in text
    text = text.replace(old, new).replace("import IMAGE, Message", "import IMAGE, Message, Picture")
    rows = text.index("        keeps=")
    brought = (
        "from vtune.curate.item import input_pictures\nfrom vtune.schema.pixels import size_of\n"
        "from vtune.schema.trajectory import Call\n"
        'CALL = Call(tool="mine", arguments="{}", status="ok", span=(0, 1))\n'
    )
    traces = 'looks_at=("traces",), drops={"calls": (CALL,) * 4}, example={"words": 3}))'
    pictures = 'example={"words": 63}, keeps={"images": (Picture(SMALL),)}))'
    small = f"SMALL = {encoded(56, 56)!r}\n"
    path = tmp_path / "mine.py"
    path.write_text(f"{brought}{small}{text[:rows]}{traces if 'calls' in new else pictures}")
    assert broken(path) == {}


ONE_EACH = '''"""A filter over all rows of a user's own: one of each answer stays."""

import math
from itertools import count
from threading import Lock

from vtune.curate.filters import FILTERS, Corpus, FilterPart
from vtune.curate.item import Selected

LOCK, RUNS = Lock(), count()


class OneEach(Selected):
    """Drops all rows of an answer but one, by chance."""


def answer(settings, item):
    return item.record.ground_truth


def others(settings, entries, chance):
    groups = {}
    for number, (_, key) in enumerate(entries):
        groups.setdefault(key, []).append(number)
    gone = [chance.sample(group, len(group) - 1) for group in groups.values()]
    return {number: "not the one of its answer" for group in gone for number in group}


ALIKE = {"ground_truth": "B"}
FILTERS.add("one_each", FilterPart(OneEach, Corpus(answer, others), beside=[ALIKE] * 2, drops=ALIKE))
'''


@pytest.mark.parametrize(
    ("old", "new", "check", "found"),
    [
        ("", "", "", ""),
        (
            "chance.sample(group, len(group) - 1)",
            "group[next(RUNS) // 2 % 2 :][: len(group) - 1]",
            "the same row has the same result",
            "use only the random generator that is given",
        ),
        (
            "    return item",
            "    item.record.extra['seen'] = True\n    return item",
            "rows are not changed",
            "copy what you change",
        ),
        (
            "    groups = {}",
            "    groups = {entries[0][1]: []}",
            "no rows, no drops",
            "IndexError",
        ),
        (
            "return item.record.ground_truth",
            "return item.record.ground_truth, LOCK",
            "section and keys cross processes",
            "cannot pickle",
        ),
        (
            "return item.record.ground_truth",
            "return 1.0 if item.record.ground_truth == 'A' else math.nan",
            "section and keys cross processes",
            "the filter drops other rows when the keys were pickled: use plain values as keys",
        ),
        ('"not the one of its answer"', "5", "a good row passes", "it returns 5 as the reason to drop a row"),
        (
            "beside=[ALIKE] * 2, ",
            "",
            "a bad row is dropped with a reason",
            "the filter keeps the row of `drops`",
        ),
        ("drops=ALIKE", "drops=ALIKE, looks_at=('samples', 'traces')", "", ""),
        (
            "beside=[ALIKE] * 2, drops=ALIKE",
            "drops={'source': 'check'}, looks_at=('traces', 'samples')",
            "a good row passes",
            "'Trajectory' object has no attribute 'ground_truth'",
        ),
    ],
)
def test_a_filter_over_all_rows_is_checked_on_several(
    tmp_path: Path, old: str, new: str, check: str, found: str
) -> None:
    assert old in ONE_EACH
    (tmp_path / "mine.py").write_text(ONE_EACH.replace(old, new, 1) if old else ONE_EACH)
    wrong = broken(tmp_path / "mine.py")
    assert next(iter(wrong), "") == check
    assert found in wrong.get(check, "")


@pytest.mark.parametrize(
    ("file", "old", "new", "check", "found"),
    [
        ("worst.py", "min(map(fmean", "2 * min(map(fmean", "all right is 1", "a share of what is right"),
        ("worst.py", "min(map(fmean", "1 + min(map(fmean", "all wrong is 0", "`score` is 1.0, not 0.0"),
        (
            "worst.py",
            "by_source else {}",
            "by_source else {'score': 0.0}",
            "what is unscored",
            "leave `score`",
        ),
        (
            "worst.py",
            "        if mark.score is not None:\n            by_source[mark.source].append(mark.score)",
            "        by_source[mark.source].append(mark.score or 0.0)",
            "unscored marks do not lower",
            "`score` is 0.75, not 1.0: take the mean over those marks",
        ),
        ("worst.py", "min(map(fmean, by_source.values()))", "marks[0].score", "the order changes", "weigh"),
        ("worst.py", "min(map(fmean", "str(map(fmean", "the order changes", "a number in [0, 1]"),
        (
            "worst.py",
            "return counts |",
            "return counts | {'all': marks[0]} |",
            "the result can be",
            "not JSON",
        ),
        (
            "worst.py",
            "return counts |",
            "marks.reverse()\n    return counts |",
            "the same marks",
            "copy what",
        ),
        (
            "worst.py",
            "return counts |",
            "SEEN.append(0)\n    return counts | {'seen': len(SEEN)} |",
            "the same marks",
            "must not depend on chance or state",
        ),
        (
            "terse.py",
            "    return (",
            "    sample.extra['seen'] = True\n    return (",
            "a sample becomes",
            "the style changed the sample",
        ),
        ("terse.py", "{last.content}", "{last.content}{draw}", "`draws` says whether", "say draws=True"),
        (
            "terse.py",
            "PromptStyle(",
            "PromptStyle(draws=True, turns=",
            "`draws` says whether",
            "the same turns",
        ),
        (
            "terse.py",
            "    return (",
            "    return [last]\n    return (",
            "a sample becomes",
            "return a tuple of Message",
        ),
        (
            "terse.py",
            "replace(last, con",
            "replace(last, role='system', con",
            "a sample",
            "end with the user",
        ),
        ("terse.py", "{last.content}", "{last.content.lstrip('<image>')}", "all pictures are", "own marks"),
        (
            "terse.py",
            "{last.content}",
            "<image>{last.content}",
            "all pictures are",
            "1 <image> mark(s) for 0",
        ),
        ("terse.py", "{last.content}", "{last.content[:8]}", "the question is", "keep the text"),
        (
            "short.py",
            "count > settings.words",
            "count >= 0",
            "a good row",
            "drops the row of `keeps`: 1 words",
        ),
        (
            "short.py",
            '        drops={"prompt": (Message("user", f"{IMAGE}Which of them is it?"),)},\n',
            "",
            "a bad row is dropped",
            "there is no example of a row to drop: give FilterPart one in `drops`",
        ),
        ("short.py", 'f"{count} words" if', "'' if", "a good row", "return the reason as a text"),
        (
            "short.py",
            "Short(Selected):",
            "Short(Selected, extra='ignore'):",
            "the section refuses",
            "unknown key",
        ),
        (
            "short.py",
            "    count = len(",
            "    SEEN.append(0)\n    count = len(SEEN[2:]) + len(",
            "the same row",
            "keep no state between rows",
        ),
        (
            "short.py",
            "    count = len(",
            "    import time; time.sleep(0.11)\n    count = len(",
            "fast",
            "100 ms",
        ),
        ("lines.py", ", specimen=specimen", "", "the rows of the", "give Format a `specimen`"),
        ("lines.py", "!= 3", "!= 4", "the rows of the", "3 columns: write picture, question and answer"),
        (
            "lines.py",
            "yield place, DataError(f",
            "dict(a=f",
            "nonsense",
            "0 row(s)",
        ),
        ("lines.py", "id=place.id", "id='one'", "ground truths can", "two rows have the id 'one'"),
        ("lines.py", "ground_truth=answer", "ground_truth=''", "ground truths can", "empty"),
        (
            "lines.py",
            "id=place.id",
            "id=str(id(place)) + str(__import__('time').time())",
            "the same",
            "time",
        ),
        (
            "lines.py",
            "columns = line.split",
            "columns = __import__('time').sleep(0.11) or line.split",
            "fast",
            "",
        ),
        (
            "cards.py",
            "if lost := difference(sample, card(row)):",
            "if lost := '':",
            "what is exported",
            "`source` is 'check' and comes back as 'cards' (row 2)",
        ),
        (
            "cards.py",
            "if lost := difference(sample, card(row)):",
            "if not (lost := difference(sample, card(row))):",
            "what is exported",
            "row 0 of the specimen: a card cannot hold all of it",
        ),
        (
            "cards.py",
            "if lost := difference(sample, card(row)):",
            'if lost := difference(sample, card(row)) and "no":',
            "what is exported",
            "the format refuses a record that says more by `source`, and says: a card cannot hold all of it",
        ),
        (
            "cards.py",
            "if lost := difference(sample, card(row)):",
            "if sample.source == 'check':\n        raise DataError('another source', fix='leave it out')\n"
            "    if lost := len(sample.prompt) != 1 and 'turns of the prompt':",
            "what is exported",
            "`ability` is 'check' and comes back as '' (row 3)",
        ),
        ("cards.py", '"answer": sample.ground_truth', '"answer": 7', "what is exported", "`answer`"),
        ("cards.py", "    return row\n", "    return [row]\n", "what is exported", "returns list, not dict"),
        (
            "cards.py",
            "    return row\n",
            '    return row | {"more": b"x"}\n',
            "what is exported",
            "bytes is not JSON serializable",
        ),
        (
            "cards.py",
            "writes=Writer(to_row)",
            "writes=Writer(to_row, __import__('pyarrow').schema([('id', 'int64')]))",
            "what is exported",
            "a value does not fit its column",
        ),
        (
            "cards.py",
            "    return row\n",
            '    return row | ({"id": "one"} if number else {})\n',
            "what is exported",
            "`id` is 'card-1' and comes back as 'one' (row 1)",
        ),
    ],
)
def test_a_scorer_style_filter_or_format_that_breaks_its_contract_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, old: str, new: str, check: str, found: str
) -> None:
    monkeypatch.setattr("vtune.runs.parts.checks.format.SLOWEST_ROW", 0.1)  # the real one takes long to miss
    text = (OWN / file).read_text()
    assert old in text
    path = tmp_path / "mine.py"
    path.write_text(text.replace(old, new).replace("\n\n\n", "\n\nSEEN: list[int] = []\n\n", 1))
    told = [why for name, why in broken(path).items() if name.startswith(check)]
    assert told
    assert found in told[0]


MARKED = """
import re

from vtune.protocols import PROTOCOLS
from vtune.protocols.protocol import Protocol, Rule, chose


def ask(question, sample):
    return f"{question} End with a line `Answer: LETTER`."


def grade(text, sample):
    found = re.search("Answer: ([A-Z])", text)
    return chose(found and found[1], sample)


RULE = Rule(ask=ask, grade=grade, scorer=None, example=lambda sample: f"Answer: {sample.ground_truth}")
PROTOCOLS.add("mine", Protocol(about="Mine.", rules={"multiple_choice": RULE}))
"""


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("", "", ""),
        ("sample.ground_truth}", "'Z'}", "'Answer: Z' is graded"),
        (', example=lambda sample: f"Answer: {sample.ground_truth}"', "", "'B' is graded"),
    ],
)
def test_a_protocol_gives_a_right_reply_if_the_bare_answer_is_not_one(
    tmp_path: Path, old: str, new: str, found: str
) -> None:
    assert old in MARKED
    path = tmp_path / "mine.py"
    path.write_text(MARKED.replace(old, new))
    told = broken(path)
    assert set(told) == ({"multiple_choice: the right answer earns 1"} if found else set())
    for why in told.values():
        assert found in why
        assert "or give a right reply in `example` of the Rule" in why


@pytest.mark.parametrize("kind", CASES)
def test_a_check_of_a_broken_part_names_the_part_the_file_and_the_remedy(kind: str, tmp_path: Path) -> None:
    path = breaking(kind, tmp_path)
    line = path.read_text().split("\n").index(next(x for x in path.read_text().split("\n") if "# here" in x))
    ended = vtune("parts", "check", path)
    assert ended.code == 1, ended.err
    heading, *checks = ended.out.splitlines()
    assert heading.startswith(f"{kind}/")
    assert heading.endswith("[mine.py]")
    at = next(
        n
        for n, one in enumerate(checks)
        if f"ZeroDivisionError: division by zero (mine.py:{line + 1})" in one
    )
    assert checks[at].startswith("  BROKEN  ")
    assert checks[at + 1].split()[0] == "fix"


NUMBERED = {
    'id=columns.text("id")': "id=f\"cards/{columns.integer('id', 0)}\"",
    '"id": sample.id,': '"id": int(sample.id.removeprefix("cards/")),',
    '"id": f"card-{number}"': '"id": number',
}


def test_a_format_may_restrict_the_form_of_ids(tmp_path: Path) -> None:
    text = (OWN / "cards.py").read_text()
    for old, new in NUMBERED.items():
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "mine.py"
    path.write_text(text)
    assert broken(path) == {}


MAZES = '''"""Mazes as JSON lines, each with all of our own row."""

import json

from vtune.data.formats.building import each
from vtune.data.formats.source import read_rows
from vtune.data.formats.specimens import Specimen, json_lines
from vtune.data.formats.table import FORMATS, Format, Writer
from vtune.errors import DataError
from vtune.schema.message import Message
from vtune.schema.sample import Sample
from vtune.schema.sample_row import sample_from_row, sample_to_row


def to_row(sample, number):
    if sample.images:
        raise DataError("a maze has no images", fix="leave it out")
    return {"all": json.dumps(sample_to_row(sample))}


def specimen(folder):
    walk = Message("user", "Walk.")
    judged = {"verifier": "environment_reward", "environment": "maze"}
    maze = Sample(id="maze", source="mazes", prompt=(walk,), ground_truth="S.G", **judged)
    return Specimen(json_lines(folder / "mazes.jsonl", [to_row(maze, 0)]))


def read(path, options):
    return each(read_rows(path), lambda row, place: sample_from_row(json.loads(row["all"]), place=""))


FORMATS.add("mazes", Format(read, "mazes", specimen=specimen, writes=Writer(to_row)))
'''


def test_a_format_for_a_custom_environment_is_checked_with_its_rows(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mazes.py"
    path.write_text(MAZES)
    found = check_parts([OWN / "maze.py", path])
    assert [one for part in found["parts"] for one in part["checks"] if not one["ok"]] == []
