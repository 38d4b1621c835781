"""Benchmarks for search agents and folders of mm-eval, as published."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtune.data.formats import specimens_search
from vtune.data.formats.building import Options
from vtune.data.formats.search_sets import _decrypted
from vtune.data.formats.specimens_search import encrypted
from vtune.data.formats.table import FORMATS
from vtune.errors import DataError
from vtune.schema.sample import Sample


def read(name: str, path: Path) -> list[Any]:
    return [entry for _, entry in FORMATS[name].read(path, Options())]


def test_mmsearch_plus_is_decrypted_with_all_its_pictures(tmp_path: Path) -> None:
    one, two = read("mmsearch_plus", specimens_search.mmsearch_plus(tmp_path).path)
    assert [len(one.images), len(two.images)] == [1, 2]
    assert two.prompt[-1].content == "<image>\n<image>\nWho designed it?"
    assert (two.ground_truth, two.verifier_parm) == ("Gustave Eiffel", {"aliases": ["Eiffel"]})
    assert two.extra["arxiv_id"] == "2401.00001"
    assert two.extra["category"] == "architecture"


@given(st.text())
def test_decryption_inverts_encryption(text: str) -> None:
    assert _decrypted("question", encrypted(text)) == text


def test_a_damaged_arrow_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    path = specimens_search.mmsearch_plus(tmp_path).path
    path.write_bytes(path.read_bytes()[:200])
    (error,) = read("mmsearch_plus", path)
    assert isinstance(error, DataError)


def test_browsecomp_vl_keeps_every_answer(tmp_path: Path) -> None:
    one, two = read("browsecomp_vl", specimens_search.browsecomp_vl(tmp_path).path)
    assert one.ground_truth == "Gustave Eiffel."
    assert (two.ground_truth, two.verifier_parm) == ("1889.", {"aliases": ["In 1889."]})
    assert one.tools == ("image_zoom_in_tool", "text_search_tool", "image_search_tool")
    assert "image_search_title_list" not in one.extra


def test_an_mm_eval_folder_uses_its_prompt_template(tmp_path: Path) -> None:
    one, _ = read("mm_eval", specimens_search.mm_eval(tmp_path).path)
    assert isinstance(one, Sample)
    assert one.prompt[-1].content == "<image>\nHow many?\nAnswer with a number."
    assert (one.id, one.source, one.ground_truth) == ("mm_eval/0", "mm_eval", "3")
    assert one.extra["level"] == "easy"
    assert "truth" not in one.extra


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "no mapping": ({"mapping_from_source": None}, "no `mapping_from_source`"),
    "no question": ({"mapping_from_source": {"answer": "truth"}}, "no `question`"),
    "unknown key": (
        {"mapping_from_source": {"question": "ask", "answer": "truth", "gold": "x"}},
        "has `gold`",
    ),
    "two columns": ({"mapping_from_source": {"question": ["ask", "b"], "answer": "truth"}}, "question` is"),
    "broken template": ({"prompt_template": "{{ question"}, "not a template"),
    "template of a number": ({"prompt_template": 7}, "not a template"),
    "unknown name": ({"prompt_template": "{{ hint }}"}, "'hint' is undefined"),
    "the answer": ({"prompt_template": "{{ truth }}"}, "'truth' is undefined"),
    "a look inside": ({"prompt_template": "{{ ''.__class__.__mro__[1] }}"}, "unsafe"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_unusable_metadata_is_an_error(name: str, tmp_path: Path) -> None:
    changes, told = CHANGES[name]
    path = specimens_search.mm_eval(tmp_path).path
    file = path / "metadata.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    try:
        found = read("mm_eval", path)
    except DataError as error:
        found = [error]
    assert found
    assert all(isinstance(entry, DataError) and told in str(entry) for entry in found), found


def test_an_mm_eval_folder_lists_options_and_needs_no_template(tmp_path: Path) -> None:
    path = specimens_search.mm_eval(tmp_path).path
    says = {"question": "ask", "answer": "truth", "options": "listed", "media": ["figure"]}
    (path / "metadata.json").write_text(json.dumps({"mapping_from_source": says}))
    row = {"figure": "images/0.jpg", "ask": "Which?", "truth": "B", "listed": ["red", "blue"]}
    (path / "test.jsonl").write_text(json.dumps(row))
    (one,) = read("mm_eval", path)
    assert (one.verifier, one.choices, one.ground_truth) == ("choice", ("red", "blue"), "B")
    assert one.prompt[-1].content == "<image>\nWhich?\nA. red\nB. blue"


def test_a_folder_without_metadata_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no metadata\.json"):
        read("mm_eval", tmp_path)
