"""`vtune data export` for every writable format, including custom ones."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.data.formats.published import MAKERS
from tests.runs.commands import Ended, vtune
from vtune.data.formats.table import FORMATS, written
from vtune.schema.message import Picture
from vtune.schema.parquet import read_samples, write_samples
from vtune.uses import forget, use, used

CARDS = ROOT / "tests/own/cards.py"


pytestmark = pytest.mark.usefixtures("forgetting")


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    """Two samples from a file in a custom format."""
    use([CARDS])
    specimen = FORMATS["cards"].specimen
    assert specimen is not None
    file = specimen(tmp_path).path
    forget(used())
    ended = vtune("data", "import", "cards", file, "--uses", CARDS, "--out", tmp_path / "cards.parquet")
    assert ended.code == 0, ended.err
    forget(used())
    return tmp_path / "cards.parquet"


def exported(file: Path, out: Path, *more: str | Path, uses: Path = CARDS) -> Ended:
    return vtune("data", "export", "cards", file, "--uses", uses, "--out", out, *more)


def test_a_custom_format_survives_a_round_trip(cards: Path, tmp_path: Path) -> None:
    out, back = tmp_path / "out.jsonl", tmp_path / "back.parquet"
    ended = exported(cards, out, "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out) == {
        "file": str(out),
        "layout": "cards",
        "rows": 2,
        "problems": [],
        "problems_file": None,
    }
    assert out.read_text() == (tmp_path / "cards.jsonl").read_text(), "byte for byte"
    assert vtune("data", "import", "cards", out, "--uses", CARDS, "--out", back).code == 0
    assert list(read_samples(back)) == list(read_samples(cards))


def test_a_picture_that_is_not_base64_is_an_error_of_its_row(cards: Path, tmp_path: Path) -> None:
    assert exported(cards, tmp_path / "out.jsonl").code == 0
    first, second = (tmp_path / "out.jsonl").read_text().splitlines()
    damaged = json.loads(first) | {"picture": "abc"}
    (tmp_path / "in.jsonl").write_text(f"{json.dumps(damaged)}\n{second}\n")
    forget(used())
    words = ("--uses", CARDS, "--out", tmp_path / "back.parquet")
    ended = vtune("data", "import", "cards", tmp_path / "in.jsonl", *words)
    assert ended.code == 0, ended.err
    assert "`picture` is not base64" in ended.out + ended.err
    assert len(list(read_samples(tmp_path / "back.parquet"))) == 1


def test_rows_that_a_custom_format_cannot_hold_are_skipped_and_listed(cards: Path, tmp_path: Path) -> None:
    first, second = read_samples(cards)
    write_samples(tmp_path / "more.parquet", [first, replace(second, tools=("python",))])
    out = tmp_path / "out.jsonl"
    ended = exported(tmp_path / "more.parquet", out)
    assert ended.code == 0, ended.err
    assert "1 of 2 rows as cards" in ended.out
    assert "row 1: a card cannot hold all of it: `tools` is ('python',) and comes back as ()" in ended.out
    assert len(out.read_text().splitlines()) == len(
        (tmp_path / "out.jsonl.problems.txt").read_text().splitlines()
    )
    strict = exported(tmp_path / "more.parquet", tmp_path / "strict.jsonl", "--strict")
    assert strict.code == 2
    assert not (tmp_path / "strict.jsonl").exists()


def test_pictures_given_by_path_are_exported_as_bytes(cards: Path, tmp_path: Path) -> None:
    first, second = read_samples(cards)
    data = first.images[0].data
    assert data is not None
    (tmp_path / "far").mkdir()
    (tmp_path / "far/a.png").write_bytes(data)
    write_samples(tmp_path / "far/in.parquet", [replace(first, images=(Picture(path="a.png"),)), second])
    out = tmp_path / "out.jsonl"
    ended = exported(tmp_path / "far/in.parquet", out)
    assert ended.code == 0, ended.err
    assert out.read_text() == (tmp_path / "cards.jsonl").read_text(), "byte for byte"


def test_a_reader_may_leave_corrections_to_the_import(cards: Path, tmp_path: Path) -> None:
    mine, text = tmp_path / "mine.py", CARDS.read_text()
    changes = {
        "if lost := difference(sample, card(row)):": "if lost := sample.tools:",
        "images=(Picture(data=picture),)": "images=[Picture(data=picture)]",
        ", (0,)),)": "),)",  # pictures are counted by their marks
        'verifier="exact",': 'verifier="exact", choices=[], accuracy_ratio=0.8999999761581421',
    }
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    mine.write_text(text)
    write_samples(tmp_path / "in.parquet", [replace(one, accuracy_ratio=0.9) for one in read_samples(cards)])
    ended = exported(tmp_path / "in.parquet", tmp_path / "out.jsonl", uses=mine)
    assert ended.code == 0, ended.err


LOSSY = [
    (
        "lost := difference(sample, card(row))",
        "lost := ''",
        "`choices` is ('grey', 'red') and comes back as ()",
    ),
    ("    return row\n", "    return row | {'id': ''}\n", "cannot be read: a sample needs an id"),
    (
        "read_rows(path), lambda",
        "list(read_rows(path))[:1], lambda",
        "is not among the rows that are read",
    ),
    ("each(read_rows(path)", "each([*read_rows(path)] * 2", "`cards` reads more rows than were written"),
]


@pytest.mark.parametrize(("old", "new", "said"), LOSSY)
def test_data_lost_by_a_custom_format_is_reported_and_no_file_is_left(
    cards: Path, tmp_path: Path, old: str, new: str, said: str
) -> None:
    mine, out, more = tmp_path / "mine.py", tmp_path / "out.jsonl", tmp_path / "more.parquet"
    text = CARDS.read_text()
    assert old in text
    mine.write_text(text.replace(old, new))
    first, second = read_samples(cards)
    third = replace(second, id="third", choices=("grey", "red") if "difference" in old else ())
    write_samples(
        more, [first, replace(second, tools=("python",)) if "choices" not in said else second, third]
    )
    ended = exported(more, out, uses=mine)
    assert ended.code == 2, ended.err
    assert said in ended.err
    assert not out.exists()
    assert not [*tmp_path.glob(".*")]


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        ("DataError('no header', where=str(path), fix='add one')", 2, "OUT\n  fix  add one"),
        ("__import__('pyarrow').ArrowInvalid('no table')", 1, "mine.py is broken: ArrowInvalid: no table"),
        ("OSError(28, 'no room')", 1, "mine.py is broken: OSError: [Errno 28] no room"),
    ],
)
def test_an_error_in_a_custom_reader_is_blamed_on_the_reader(
    cards: Path, tmp_path: Path, raised: str, code: int, said: str
) -> None:
    mine, out, text = tmp_path / "mine.py", tmp_path / "out.parquet", CARDS.read_text()
    schema = "__import__('pyarrow').schema([(c, 'string') for c in ('id', 'riddle', 'answer', 'picture')])"
    text = text.replace("Writer(to_row)", f"Writer(to_row, {schema})")
    text = text.replace(
        "    return each(", f"    if path.name == 'out.parquet':\n        raise {raised}\n    return each("
    )
    mine.write_text(text)
    ended = exported(cards, out, uses=mine)
    assert ended.code == code
    assert said.replace("OUT", str(out)) in ended.err
    assert not out.exists()


@pytest.mark.parametrize("lost", [False, True])
def test_parquet_in_a_custom_format_is_read_back_too(cards: Path, tmp_path: Path, lost: bool) -> None:
    mine, out = tmp_path / "mine.py", tmp_path / "out.parquet"
    columns = ["id", "riddle", "answer", "picture"]
    schema = f"__import__('pyarrow').schema([(c, 'string') for c in {columns}])"
    text = CARDS.read_text().replace("Writer(to_row)", f"Writer(to_row, {schema})")
    mine.write_text(text.replace("    return row\n", "    return row | {'riddle': '?'}\n") if lost else text)
    ended = exported(cards, out, uses=mine)
    assert (ended.code, out.exists()) == ((2, False) if lost else (0, True)), ended.err
    assert not lost or "`prompt[0].content` is '<image>\\nWhich colour?' and comes back" in ended.err
    assert not [*tmp_path.glob(".*")]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"id": sample.id, ', '"id": sample.id, "at": [][number], ', "IndexError: list index out of range"),
        ("    return row\n", "    return None\n", "TypeError: it returns NoneType, not dict"),
        (
            "    return row\n",
            '    return row | {"raw": b"x"}\n',
            "TypeError: Object of type bytes is not JSON serializable",
        ),
        (
            "    return row\n",
            '    return row | {"share": float("nan")}\n',
            "ValueError: Out of range float values",
        ),
    ],
)
def test_a_broken_custom_writer_is_named(cards: Path, tmp_path: Path, old: str, new: str, said: str) -> None:
    mine = tmp_path / "mine.py"
    text = CARDS.read_text()
    assert old in text
    mine.write_text(text.replace(old, new))
    ended = exported(cards, tmp_path / "out.jsonl", uses=mine)
    assert ended.code == 1
    assert f"format `cards` of mine.py is broken: {said}" in ended.err
    assert not (tmp_path / "out.jsonl").exists()


def test_an_unknown_format_lists_all_writable_ones(cards: Path, tmp_path: Path) -> None:
    words = (cards, "--out", tmp_path / "out.jsonl")
    ended = vtune("data", "export", "cards", *words)
    assert ended.code == 2
    assert "unknown format 'cards'" in ended.err
    assert f"known: {', '.join(written())}. To add your own" in ended.err
    assert "did you mean `verl`?" in vtune("data", "export", "verll", *words).err


def test_a_read_only_format_says_what_to_do(cards: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    ended = vtune("data", "export", "coco", cards, "--out", out)
    assert ended.code == 2
    assert "the format `coco` can be imported but not exported" in ended.err
    assert f"choose one of {', '.join(written())}. To add your own" in ended.err
    mine = tmp_path / "mine.py"
    mine.write_text(CARDS.read_text().replace(", writes=Writer(to_row)", ""))
    assert "give its Format `writes`" in exported(cards, out, uses=mine).err


def test_a_format_can_be_written_by_its_aliases(tmp_path: Path) -> None:
    published = MAKERS["conversations"](tmp_path)
    made, out = tmp_path / "made.parquet", tmp_path / "out.parquet"
    assert vtune("data", "import", "sharegpt", *published.paths, "--out", made).code == 0
    ended = vtune("data", "export", "sharegpt", made, "--out", out)
    assert ended.code == 0, ended.err
    assert ended.out.rstrip().endswith("rows as sharegpt")


def test_the_help_names_every_writable_format() -> None:
    ended = vtune("data", "export", "--help")
    named = ended.out.partition("Formats:\n")[2].splitlines()
    assert [line.split()[0] for line in named] == list(written())
