import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runs.commands import vtune
from vtune.runs.data.repeated_ids import Identities, first_twice


@given(st.lists(st.text(max_size=2), max_size=30))
def test_the_first_duplicate_id_is_found_with_both_places(ids: list[str]) -> None:
    identities = Identities()
    for identity in ids:
        identities.add(identity)
    repeated = identities.repeated()
    assert len(repeated) == sum(ids.count(one) > 1 for one in set(ids))
    found = first_twice(((one, str(number)) for number, one in enumerate(ids)), repeated)
    second = next((number for number, one in enumerate(ids) if one in ids[:number]), None)
    if second is None:
        assert found is None
    else:
        one = ids[second]
        assert found == f"id {one!r} appears twice, in {ids.index(one)} and in {second}"


@pytest.mark.parametrize(("ids", "twice"), [(["1", 2, 1, 2], True), (["1", 2, None, None], False)])
def test_indexing_a_corpus_warns_of_duplicate_ids(ids: list[object], twice: bool, tmp_path: Path) -> None:
    rows = [{"id": identity, "text": "a road"} for identity in ids]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ended = vtune("data", "index", tmp_path / "corpus.jsonl", "--out", tmp_path / "index", "--json")
    assert (ended.code, json.loads(ended.out)["passages"]) == (0, 4)
    warning = "corpus.jsonl, row 2 (2 such ids): give each passage its own id"
    assert (warning in ended.err, "appears twice" in ended.err) == (twice, twice)
