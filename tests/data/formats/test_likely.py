"""Guessing the published layout of a file."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.data.formats.published import MAKERS, lines
from vtune.data.formats.building import Options
from vtune.data.formats.likely import ENDINGS, check_look, look_of
from vtune.data.formats.source import files
from vtune.data.formats.table import FORMATS, looks_like_none
from vtune.errors import DataError

TURNS = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "7"}]
SHARED = [{"from": "human", "value": "?"}, {"from": "gpt", "value": "7"}]
RULE = {"style": "rule", "ground_truth": "7"}
VERL = {"data_source": "mine", "prompt": TURNS[:1], "reward_model": RULE}
PUBLISHED = VERL | {"reward_model": RULE | {"verifier": "math"}}
MARS = {"prompt": TURNS[:1], "image": ["a.jpg"], "reward_model": {"ground_truth": "7"}}
VISTA = {"pid": "1", "question": "?", "query": "?", "answer_type": "text", "precision": None, "answer": "7"}
VERSE = {"problem_version": "1", "question": "?", "query_wo": "?", "question_for_eval": "?", "answer": "7"}
VISION = {
    "question": "?",
    "options": [],
    "answer": "7",
    "level": 1,
    "subject": "algebra",
    "decoded_image": None,
}

ROWS: list[tuple[dict[str, Any], str | None]] = [
    ({}, None),
    ({"text": "?"}, None),
    (VERL, "verl"),
    (VERL | {"images": ["a.jpg"], "ability": "math", "extra_info": {"index": 0}}, "verl"),
    (VERL | {"problem": "?", "answer": "7"}, "verl"),
    (VERL | {"question": "?", "response": "7"}, "verl"),
    (VERL | {"messages": TURNS}, "verl"),
    (VERL | VISTA, "verl"),
    (VERL | {"image": ["a.jpg"]}, "verl"),
    (VERL | {"evidence": []}, "verl"),
    (VERL | {"tools": ["python"]}, "verl"),
    (VERL | {"reward_model": None}, None),
    (VERL | {"reward_model": "rule"}, None),
    (VERL | {"reward_model": None, "problem": "?", "answer": "7"}, "easyr1"),
    (VERL | {"data_source": ""}, None),
    (PUBLISHED, "vtriune"),
    (PUBLISHED | {"tools": [], "evidence": None, "choices": [], "environment": ""}, "vtriune"),
    (PUBLISHED | {"env_name": "code"}, "vtriune"),
    (PUBLISHED | {"problem": "?", "answer": "7"}, "vtriune"),
    (PUBLISHED | {"reward_model": {"verifier": None}}, "vtriune"),
    (PUBLISHED | {"reward_model": RULE | {"verifier": "math", "tool_ratio": 0.5}}, "samples"),
    (PUBLISHED | {"tools": ["python"]}, "samples"),
    (PUBLISHED | {"environment": "maze"}, "samples"),
    (PUBLISHED | {"choices": ["red"]}, "samples"),
    (PUBLISHED | {"evidence": [{"label": "x"}]}, "samples"),
    (VERL | {"evidence": [{"label": "x"}]}, "samples"),
    (VERL | {"evidence": [{"label": "x"}], "env_name": "code"}, "samples"),
    ({"evidence": [{"label": "x"}], "problem": "?", "answer": "7"}, "easyr1"),
    (VERL | {"reward_model": RULE | {"candidate_answers": "[]"}}, "mmsearch"),
    (VERL | {"reward_model": RULE | {"candidate_answers": "[]"}, "answer": "7", "question": "?"}, "mmsearch"),
    (VERL | {"reward_model": RULE | {"candidate_answers": "[]", "verifier": "exact"}}, "vtriune"),
    (VERL | {"env_name": "code"}, "codev"),
    (VERL | {"env_name": "visual_toolbox_v2"}, "deepeyes"),
    (VERL | {"env_name": "visual_toolbox_v2", "rationale": "?", "question": "?", "answer": "7"}, "deepeyes"),
    (VERL | {"env_name": ""}, None),
    (VERL | {"env_name": None}, None),
    (VERL | {"env_name": "maze"}, None),
    (MARS, "mars"),
    (MARS | {"data_source": None}, "mars"),
    (MARS | {"question": "?", "answer": "7"}, "mars"),
    (MARS | {"env_name": None}, None),
    ({"image_search_title_list": [], "reward_model": RULE}, "mars"),
    ({"prompt": TURNS[:1], "reward_model": RULE}, None),
    ({"question": "?", "response": "7"}, "thyme"),
    ({"question": "?", "response": "7", "answer": "7"}, "thyme"),
    ({"question": "?", "response": "7", "messages": TURNS}, "thyme"),
    ({"question": None, "response": None}, "thyme"),
    ({"response": "7"}, None),
    ({"messages": TURNS}, "conversations"),
    ({"conversations": SHARED, "images": ["a.jpg"]}, "conversations"),
    ({"conversation": SHARED, "problem": "?"}, "conversations"),
    ({"messages": TURNS[:1]}, None),
    ({"messages": json.dumps(TURNS)}, None),
    ({"messages": TURNS[:1], "problem": "?", "answer": "7"}, "easyr1"),
    ({"messages": TURNS, "problem": "?", "answer": "7"}, None),
    ({"messages": TURNS} | VISTA, None),
    ({"messages": TURNS} | VISION, None),
    ({"problem": "?", "answer": "7"}, "easyr1"),
    ({"question": "?", "solution": "7", "images": []}, "easyr1"),
    ({"query": "?", "answer": None}, "easyr1"),
    ({"problem": "?"}, None),
    ({"answer": "7"}, None),
    (VISTA, "mathvista"),
    ({key: value for key, value in VISTA.items() if key != "precision"}, "easyr1"),
    (VERSE, "mathverse"),
    (VISION, "mathvision"),
    (VISTA | VERSE, None),
    (VISTA | {"response": "7"}, None),
    (VERL | {"reward_model": RULE | {"candidate_answers": "[]"}, "env_name": "code"}, None),
]

HEADS = [
    ('{"images": [], "annotations": []}', "coco"),
    ('{"info": {}, "categories": [', "coco"),
    ('\ufeff {\n "annotations": [', "coco"),
    ('{"subset": {"root": ".", "annotation": "a.jsonl"}}', "mars"),
    ('{"annotation": "a.jsonl", "categories": []}', "coco"),
    ('{"images": []}', None),
    ("[]", None),
    ("", None),
    ("[1, 2]", None),
    ('[{"annotations": []}]', None),
    ('[ {"problem": "?", "answer": "7"}, {"half": ', "easyr1"),
    ('[{"problem": "?", "answer": "7', None),
]

VSTAR = "index image question A B C D answer category"
HEADERS = [
    ("", None),
    ("index question", None),
    ("index image question answer", None),
    (VSTAR, "vstar"),
    ("index image question A answer category", "vstar"),
    (f"{VSTAR} split", None),
    (f"{VSTAR} l2-category", None),
    (f"{VSTAR} cycle_category", "hrbench"),
    ("image cycle_category", None),
    ("index image question multi-choice_options answer category l2-category", "mme_realworld"),
    (f"{VSTAR} l2-category target_instances", "treebench"),
    ("index image question grading_query inst_category", "charxiv_reasoning"),
    ("index image question grading_query qid", "charxiv_descriptive"),
    ("index image question grading_query", None),
    ("index image question qid", None),
    ("index image question answers task", "vlmblind"),
    ("index image question answer task", None),
    (f"{VSTAR} cycle_category target_instances", None),
]


@pytest.mark.parametrize(("row", "look"), ROWS, ids=str)
def test_a_row_looks_like_a_format_or_is_unclear(
    row: dict[str, Any], look: str | None, tmp_path: Path
) -> None:
    assert look_of(lines(tmp_path / "rows.jsonl", [row, {"problem": "?", "answer": "7"}])) == look
    array = tmp_path / "rows.json"
    array.write_text(json.dumps([row, {"answer": "7"}]))
    assert look_of(array) == look


@pytest.mark.parametrize(("head", "look"), HEADS, ids=str)
def test_a_json_file_looks_like_a_format_or_is_unclear(head: str, look: str | None, tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_text(head, encoding="utf-8")
    assert look_of(file) == look


@pytest.mark.parametrize(("header", "look"), HEADERS, ids=str)
def test_a_tsv_looks_like_a_format_or_is_unclear(header: str, look: str | None, tmp_path: Path) -> None:
    columns = [
        word if word == "mme_realworld" else word.replace("_options", " options") for word in header.split()
    ]
    file = tmp_path / "file.tsv"
    file.write_text("\ufeff" + "\t".join(columns) + "\r\n", encoding="utf-8", newline="")
    assert look_of(file) == look


@pytest.mark.parametrize(
    ("name", "text", "look"),
    [
        ("a.csv", "index\timage", None),
        ("a.jsonl", "", None),
        ("a.jsonl", "nothing", None),
        ("a.parquet", "?", None),
    ],
)
def test_a_file_that_cannot_be_read_is_unclear(
    name: str, text: str, look: str | None, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    assert look_of(tmp_path / name) is look
    assert look_of(tmp_path / "missing.tsv") is None


LOOKS: dict[str, set[str | None]] = {
    "deepeyes": {"deepeyes", None},  # None for the file that offers no tool
    "mathvision_mini": {"mathvision"},
    **{name: {"easyr1"} for name in ("thinklite", "refcoco", "visual_probe")},
    **{name: {"coco"} for name in ("coco_set", "ovdeval", "v3det", "objects365")},
}
"""Guesses for the files of a format, if they differ from the format itself; None: unclear."""


def looks_like(name: str) -> set[str | None]:
    """The guesses for the files of a format; None: unclear."""
    return LOOKS.get(name, {None if FORMATS[name].looks is looks_like_none else name})


@pytest.mark.parametrize("name", [name for name in MAKERS if name not in ("hf", "vstar")])
def test_published_files_are_recognised_or_unclear(name: str, tmp_path: Path) -> None:
    for folder in ("published", "specimen"):
        (tmp_path / folder).mkdir()
    specimen = FORMATS[name].specimen
    assert specimen is not None
    looks = looks_like(name)
    paths = [*MAKERS[name](tmp_path / "published").paths, specimen(tmp_path / "specimen").path]
    found = {look_of(file) for path in paths for file, _ in files(path, ENDINGS)}
    assert found == looks


@pytest.fixture(scope="module")
def certain(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Path]]:
    """Certain guesses with their files: all cases above, V*'s folder, and published files."""
    folder = tmp_path_factory.mktemp("certain")
    found: list[tuple[str, Path]] = []
    cases = {look for _, look in (*ROWS, *HEADS, *HEADERS)}
    for name in ("vstar", *(one for one in MAKERS if one in looks_like(one) and one not in cases)):
        (folder / name).mkdir()
        found.append((name, MAKERS[name](folder / name).paths[0]))
    for number, (row, look) in enumerate(ROWS):
        found += [(look, lines(folder / f"{number}.jsonl", [row]))] if look else []
    for number, (text, look) in enumerate([*HEADS, *HEADERS]):
        file = folder / f"head{number}.{'json' if (text, look) in HEADS else 'tsv'}"
        written = text if file.suffix == ".json" else "\t".join(text.split()) + "\n"
        file.write_text(written.replace("multi-choice_options", "multi-choice options"), encoding="utf-8")
        found += [(look, file)] if look else []
    return found


def taken(name: str, files: list[tuple[str, Path]], options: Options) -> dict[str, set[bool]]:
    """Guess -> whether the format reads such files as its own."""
    found: dict[str, set[bool]] = {look: set() for look, _ in files}
    for look, file in files:
        try:
            check_look(name, file, options)
            found[look].add(True)
        except DataError:
            found[look].add(False)
    return found


SHARED: dict[str, set[str]] = {
    "samples": {"vtriune", "verl"},  # lines without our own columns
    "mathvision_mini": {"mathvision"},
    **{name: {"easyr1"} for name in ("thinklite", "refcoco", "visual_probe")},
    **{name: {"easyr1"} for name in ("mmmu", "mmmu_pro", "mmmu_pro_vision")},
    **{name: {"coco"} for name in ("coco_set", "ovdeval", "v3det", "objects365")},
}
"""Guesses for the files of a format that it also accepts, besides itself."""


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "hf"])
def test_a_format_accepts_its_own_files_and_those_of_shared_layouts(
    name: str, certain: list[tuple[str, Path]]
) -> None:
    looks = {look for look, _ in certain}
    assert looks == {one for one in FORMATS if one in looks_like(one)}
    own = {name, *SHARED.get(name, ())}
    assert taken(name, certain, Options()) == {look: {look in own} for look in looks}
    # Rows without a verifier count as V-Triune's if the caller names one.
    own |= {"verl"} if name == "vtriune" else set()
    assert taken(name, certain, Options(verifier="math")) == {look: {look in own} for look in looks}
