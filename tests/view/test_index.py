import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.view.runs import LOOKED, MISSED, UNSCORED, make_run
from vtune.errors import DataError, RecipeError
from vtune.runs.view.habits import calls_by_tool
from vtune.schema.parquet import write_trajectories
from vtune.schema.trajectory import Call, Outcome
from vtune.view.index import VERSION, Index
from vtune.view.place import Place, find_all, find_places
from vtune.view.query import facets, parse_query, select
from vtune.view.search import holds


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", {0: [LOOKED, MISSED], 5: [UNSCORED, replace(LOOKED, rollout=2)]})


def opened(path: Path) -> Index:
    (place,) = find_places(path)
    index = Index(place)
    index.refresh()
    return index


def keys(index: Index, query: str, labels: dict[str, str] | None = None) -> list[str]:
    found = select(index.table, parse_query(query), labels or {})
    return index.table["key"].take(found).to_pylist()


A, B, C, D = "step-000000/0", "step-000000/1", "step-000005/0", "step-000005/1"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [A, B, C, D]),
        ("right:yes", [A, D]),
        ("right:no", [B]),
        ("right:none", [C]),
        ("-right:yes", [B, C]),
        ("faithful:yes", [A, D]),
        ("faithful:no", [B, C]),
        ("reward:0.1", [B]),
        ("iou<0.5", [B]),
        ("iou:none", [A, C, D]),
        ("reward>=0.1 reward<1", [B]),
        ("reward:none,1.5", [A, C, D]),
        ("step:5 source:lens", [D]),
        ("source:lens,charts calls:0", [C]),
        ("flag:whole_image", [B]),
        ("flag:none", [A, C, D]),
        ("status:ok", [A, D]),
        ("call:python", [A, B, D]),
        ("call:python:error", [B]),
        ("call:pyth,zoom", []),
        ("call:none", [C]),
        ("stop:length", [B]),
        ("red sign", [A, B, C, D]),
        ('"RED sign" judge', [C]),
        ("NameError", [B]),
        ("sign? sort:-rollout", [D, B, A, C]),
        ("sort:reward", [B, A, D, C]),
        ("tokens:5", [A, B, D]),
        ("answer:4", [A, D]),
        ("label:wrong", [B]),
        ("label:none", [A, C, D]),
        ("label:wrong,none", [A, B, C, D]),
        ("sample:charts/1", [C]),
    ],
)
def test_a_query_finds_its_trajectories(run: Path, query: str, expected: list[str]) -> None:
    assert keys(opened(run), query, {B: "wrong"}) == expected


def test_trajectories_that_need_no_look_have_no_faithfulness(tmp_path: Path) -> None:
    """In older files without that column, an environment's outcome shows that no look is needed."""
    before = replace(MISSED, outcome=Outcome(1.0, "at the goal"))
    drawn = [MISSED, replace(MISSED, needs_look=False), replace(MISSED, needs_look=True), before]
    run = make_run(tmp_path / "run", {0: drawn})
    file = run / "trajectories/step-000000.parquet"
    assert keys(opened(run), "faithful:no") == ["step-000000/0", "step-000000/2"]
    table = pq.read_table(file)
    pq.write_table(table.drop_columns(["needs_look"]), file)
    assert keys(opened(run), "faithful:none") == ["step-000000/3"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("rihgt:no", "did you mean `right`"),
        ("right:maybe", "yes, no or none"),
        ("reward>high", "is a number"),
        ("step:1_0", "is a number"),
        ("reward<nan", "is a number"),
        ("source>lens", "cannot be compared"),
        ("sort:colour", "cannot sort by"),
        ("-status:eror", "`status` is never 'eror'"),
        ("stop:answer,lenght", "`stop` is never 'lenght'"),
        ("label:wrnog", "`label` is never 'wrnog'"),
        ('"open', "a quote is not closed"),
        ("x" * 1001, "at most 1000"),
    ],
)
def test_a_wrong_query_is_an_error(query: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        parse_query(query)


@given(st.text(max_size=30))
def test_any_text_is_a_query_or_an_error(text: str) -> None:
    try:
        parse_query(text)
    except RecipeError:
        return


@given(
    st.lists(st.text("abé", max_size=6), max_size=8),
    st.text("abé", min_size=1, max_size=3),
    st.integers(0, 4),
)
def test_text_search_matches_python(texts: list[str], wanted: str, cut: int) -> None:
    column = pa.chunked_array([pa.array(texts, pa.string()).slice(cut), pa.array(texts, pa.string())])
    assert holds(column, wanted).to_pylist() == [wanted in text for text in texts[cut:] + texts]


def test_a_query_finds_nothing_in_an_empty_index() -> None:
    """As for a run without trajectories; PyArrow before 26 crashed the process there."""
    table = pa.table({"source": pa.chunked_array([], pa.string())})
    assert select(table, parse_query("source=puzzles"), {}).to_pylist() == []


def test_a_quoted_text_is_taken_literally(tmp_path: Path) -> None:
    """An answer may be the word "none", which without quotes means an unknown value."""
    drawn = [replace(LOOKED, answer="none"), UNSCORED, replace(MISSED, answer="a,b", source="none")]
    index = opened(make_run(tmp_path / "run", {0: drawn}))
    none, unknown, parted = (f"step-000000/{row}" for row in range(3))
    assert keys(index, 'answer:"none"') == [none]
    assert keys(index, "answer:none") == [unknown]
    assert keys(index, '-answer:"none"') == [unknown, parted]
    assert keys(index, 'answer:"a,b" source:"none"') == [parted]
    # For values other than text, quoted and unquoted `none` are the same.
    assert keys(index, 'right:"none" flag:"none" reward:"none"') == [unknown]
    assert keys(index, 'stop:"none"') == keys(index, "stop:none") == []
    assert keys(index, '-stop:"none" stop:"answer,length"') == [none, unknown, parted]


def test_a_flag_must_be_ours_or_occur_in_a_trajectory(tmp_path: Path) -> None:
    flagged = replace(MISSED, calls=(replace(MISSED.calls[0], flags=("blurred",)),))
    index = opened(make_run(tmp_path / "run", {0: [LOOKED, MISSED, flagged]}))
    assert keys(index, "flag:blurred") == ["step-000000/2"]
    assert keys(index, "-flag:whole_image,everything,none") == ["step-000000/2"]
    for text in ("flag:whole", "-flag:blured", "flag:blurred,whole"):
        with pytest.raises(RecipeError, match=r"`flag` is never '(whole|blured)'") as refused:
            keys(index, text)
        assert refused.value.fix.startswith("it is one of whole_image, repeated_crop, ")
        assert refused.value.fix.endswith(", blurred, none")


def test_a_tool_of_any_name_is_a_single_query_word(tmp_path: Path) -> None:
    call = replace(LOOKED.calls[0], tool='my "zoom": a,b \n', status="invalid")
    called = replace(LOOKED, calls=(call, call), tool_scores=(), call_advantages=())
    index = opened(make_run(tmp_path / "run", {0: [LOOKED, called]}))
    assert index.table["outcomes"].to_pylist()[1] == " my_zoom_a_b_:invalid my_zoom_a_b_:invalid "
    assert keys(index, "call:my_zoom_a_b_:invalid") == [B]
    assert facets(index.table)["call"] == ["my_zoom_a_b_:invalid", "python:ok"]


def test_searches_that_found_nothing_are_listed(tmp_path: Path) -> None:
    search = Call(tool="text_search_tool", arguments="{}", status="ok", output="1. Sark\nAn island.")
    empty = replace(search, output="No matching passages were found.")
    found, nothing = (
        replace(LOOKED, calls=calls, tool_scores=(), call_advantages=())
        for calls in ((search,), (search, empty, empty))
    )
    index = opened(make_run(tmp_path / "run", {0: [found, nothing]}))
    assert keys(index, "call:text_search_tool:empty") == [B]
    assert len(keys(index, "call:text_search_tool:ok")) == 2
    assert facets(index.table)["call"] == ["text_search_tool:empty", "text_search_tool:ok"]
    table = calls_by_tool(index.table)
    assert table is not None
    assert (table["head"], table["rows"]) == (
        ["tool", "calls", "ok", "empty"],
        [["text_search_tool", "4", "4 (100.0 %)", "2 (50.0 %)"]],
    )


def test_only_new_and_changed_files_are_indexed(run: Path) -> None:
    index, advanced = opened(run), []
    write_trajectories(run / "trajectories" / "step-000009.parquet", [MISSED])
    write_trajectories(run / "trajectories" / "step-000005.parquet", [MISSED, MISSED, MISSED])
    assert index.refresh(lambda: advanced.append(1))
    assert len(advanced) == 4
    assert keys(index, "step>0") == [C, D, "step-000005/2", "step-000009/0"]
    assert not index.refresh()
    again: list[int] = []
    Index(index.place).refresh(lambda: again.append(1))
    assert again == []
    assert len(list(index.folder.glob("*.arrow"))) == 3


def test_changed_facts_require_a_new_index_version(tmp_path: Path) -> None:
    """Otherwise an index opened before would keep its parts with the old meaning."""
    given_up = replace(LOOKED, calls=(replace(LOOKED.calls[0], status="infra", images=(), crops=()),))
    table = opened(make_run(tmp_path / "run", {0: [LOOKED, MISSED, UNSCORED, given_up]})).table
    facts = hashlib.sha256(repr((str(table.schema), table.to_pylist())).encode()).hexdigest()[:16]
    assert table["calls"].to_pylist() == [1, 1, 0, 0]
    assert (VERSION, facts) == (7, "a66ed2aef79e4312"), "where facts changed, raise VERSION; both stand here"


def test_a_copy_of_a_run_file_is_not_counted_twice(run: Path) -> None:
    stored = run / "trajectories"
    for name in ("step-000000-good", "step-000000 (copy)", "best"):
        (stored / f"{name}.parquet").write_bytes((stored / "step-000000.parquet").read_bytes())
    (stored / "step-000005-rank-1.parquet").write_bytes((stored / "step-000000.parquet").read_bytes())
    # A file written by another process belongs to the run.
    assert keys(opened(run), "") == [A, B, "step-000005-rank-1/0", "step-000005-rank-1/1", C, D]
    # A file that is named explicitly counts, and so does a folder in which all files have custom names.
    (alone,) = find_places(stored / "best.parquet")
    assert alone.files() == [stored / "best.parquet"]
    for file in stored.glob("step-*"):
        file.unlink()
    assert len(keys(opened(run), "")) == 2


def test_a_truncated_index_part_is_ignored(run: Path) -> None:
    index = opened(run)
    part = next(index.folder.glob("step-000000*"))
    part.write_bytes(part.read_bytes()[:100])
    assert "index is damaged" in opened(run).failed[0].what


def test_indexing_writes_only_to_the_index_folder(run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    index = opened(run)
    after = {path for path in run.rglob("*") if path.is_file() and path.parent != index.folder}
    assert after == before.keys()
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())


def test_in_a_read_only_folder_the_index_is_temporary(run: Path) -> None:
    (run / ".view").touch()  # a file in place of the folder
    index = opened(run)
    folder = index.folder
    assert folder != run / ".view"
    assert keys(index, "right:no") == [B]
    index.close()
    assert not folder.exists()


def test_links_out_of_the_run_are_refused(run: Path, tmp_path: Path) -> None:
    elsewhere = make_run(tmp_path / "other", {7: [LOOKED]}) / "trajectories" / "step-000007.parquet"
    (run / "trajectories" / "step-000007.parquet").symlink_to(elsewhere)
    with pytest.raises(DataError, match="leads out of"):
        opened(run)


def test_facets_list_the_existing_values(run: Path) -> None:
    found = facets(opened(run).table)
    assert found == {
        "source": ["charts", "lens"],
        "stop": ["answer", "length"],
        "flag": ["whole_image"],
        "status": ["error", "ok"],
        "call": ["python:error", "python:ok"],
        "step": ["0", "5"],
    }


def test_a_foreign_file_does_not_hide_runs(run: Path, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "b"):
        folder.mkdir(exist_ok=True)
        pq.write_table(pa.table({"text": ["a"]}), folder / "passages.parquet")
    assert [place.path for place in find_places(tmp_path)] == [run]
    with pytest.raises(DataError, match="neither trajectories nor samples"):
        find_places(tmp_path / "passages.parquet")


def test_places_are_found_below_a_folder(run: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "deep" / "other", {})
    assert {place.path for place in find_places(tmp_path)} == {run, tmp_path / "deep" / "other"}
    with pytest.raises(DataError, match="holds no run"):
        find_places(_empty(tmp_path))


def _empty(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


def test_a_trajectory_is_located(run: Path) -> None:
    index = opened(run)
    assert index.locate(D) == (run / "trajectories" / "step-000005.parquet", 1)
    for key in ("step-000005/9", "step-000005/-1", "../recipe/0", "x", "step-000005/²"):
        with pytest.raises(DataError, match="has no trajectory"):
            index.locate(key)


def test_a_single_file_is_a_place(run: Path) -> None:
    file = run / "trajectories" / "step-000000.parquet"
    assert find_places(file) == [Place(file, "step-000000", "trajectories")]
    assert keys(opened(file), "right:yes") == [A]


def test_places_with_the_same_name_are_named_by_their_paths(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    runs = [make_run(tmp_path / name, {0: [LOOKED]}) for name in ("a/seed-0", "b/seed-0", "other")]
    assert [place.name for place in find_all(runs)] == ["a/seed-0", "b/seed-0", "other"]
    assert [place.name for place in find_all(runs[1:])] == ["seed-0", "other"]
    assert [place.name for place in find_all([*runs[:1], runs[0]])] == ["seed-0", "seed-0"]
    assert [place.name for place in find_all([tmp_path / "a", tmp_path / "b"])] == ["a/seed-0", "b/seed-0"]


def test_a_nan_counts_as_unknown_in_an_index(tmp_path: Path) -> None:
    """vtune writes no such file, but its list is still shown, and JSON has no NaN."""
    file = make_run(tmp_path / "run", {0: [LOOKED]}) / "trajectories/step-000000.parquet"
    table = pq.read_table(file)
    (row,) = table.to_pylist()
    row |= {"advantage": float("inf"), "tool_scores": [float("nan")]}
    row["reward"]["total"] = float("nan")
    pq.write_table(pa.Table.from_pylist([row], schema=table.schema), file)
    (fact,) = opened(tmp_path / "run").table.to_pylist()
    assert (fact["reward"], fact["advantage"], fact["faithful"]) == (None, None, None)


def test_a_run_that_was_moved_meanwhile_keeps_its_index(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {0: [LOOKED]})
    (place,) = find_all([run])
    index = Index(place)
    index.refresh()
    run.rename(tmp_path / "moved")
    index.close()
    assert list((tmp_path / "moved/.view").iterdir())


def test_a_path_that_is_not_utf_8_hides_no_other_file(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {0: [LOOKED]})
    odd = run.rename(os.fsdecode(os.fsencode(run) + b"\xff"))
    index = opened(odd)
    assert index.table.num_rows == 0
    (error,) = index.failed
    assert (error.what, error.where) == (
        "its path is not valid UTF-8",
        str(odd / "trajectories" / "step-000000.parquet"),
    )
