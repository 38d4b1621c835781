from dataclasses import replace
from pathlib import Path

import pytest

from tests.data.formats.published import MAKERS
from tests.runs.test_data import GOOD
from vtune.data.formats.building import Options
from vtune.errors import DataError, RecipeError
from vtune.rollout.transcript import check_trace
from vtune.runs.exporting import export_data
from vtune.runs.importing import import_data
from vtune.schema.message import Picture
from vtune.schema.parquet import read_samples, read_trajectories, write_samples


def run(name: str, folder: Path, **changes: object) -> dict:
    published = MAKERS[name](folder)
    options = replace(published.options, **changes)
    return import_data(name, published.paths, folder / "out.parquet", options=options, strict=False)


def test_an_id_that_comes_twice_is_left_out(tmp_path: Path) -> None:
    MAKERS["verl"](tmp_path)
    paths = [tmp_path / "train.parquet"] * 2
    result = import_data("verl", paths, tmp_path / "out" / "a.parquet", options=Options(), strict=False)
    assert result["kept"] == 3
    assert sum("is also in" in problem["what"] for problem in result["problems"]) == 3


def test_a_ground_truth_that_its_verifier_rejects_is_left_out_with_the_remedy(tmp_path: Path) -> None:
    MAKERS["easyr1"](tmp_path)
    options = Options(verifier="math")
    file = tmp_path / "geometry3k@train.parquet"
    result = import_data("easyr1", [file], tmp_path / "out.parquet", options=options, strict=False)
    (problem,) = result["problems"]
    assert (result["kept"], problem["row"]) == (1, 1)
    assert "'Pont Neuf' is not an expression" in problem["what"]
    assert "`exact`" in problem["fix"]


def test_nothing_is_written_where_no_row_is_good(tmp_path: Path) -> None:
    MAKERS["coco"](tmp_path)
    out = tmp_path / "out" / "a.parquet"
    with pytest.raises(DataError, match="no row could be imported") as caught:
        import_data(
            "coco", [tmp_path / "instances.json"], out, options=Options(images=tmp_path / "no"), strict=False
        )
    assert "cannot read" in str(caught.value)
    assert list(out.parent.iterdir()) == []


def test_an_option_without_effect_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="--columns has no effect with the format verl"):
        run("verl", tmp_path, columns=tmp_path / "columns.yaml")
    with pytest.raises(DataError, match="unknown verifier 'chioce'"):
        run("verl", tmp_path, verifier="chioce")


def test_a_second_import_does_not_read_what_the_first_wrote(tmp_path: Path) -> None:
    MAKERS["verl"](tmp_path)
    out = tmp_path / "all.parquet"
    first = import_data("verl", [tmp_path], out, options=Options(), strict=False)
    with pytest.raises(RecipeError, match="would be read"):
        import_data("verl", [tmp_path], out, options=Options(), strict=False)
    assert first["kept"] == len(list(read_samples(out))) == 3


def test_a_missing_path_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file or folder at"):
        import_data("verl", [tmp_path / "no"], tmp_path / "a.parquet", options=Options(), strict=False)


def test_imported_traces_can_be_learnt_from(tmp_path: Path) -> None:
    run("thyme", tmp_path)
    traces = list(read_trajectories(tmp_path / "out.parquet"))
    assert len(traces) == 3
    for trace in traces:
        check_trace(trace, where="here")


def test_an_export_holds_pictures_that_lay_in_files(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(GOOD.images[0].data or b"")
    path = tmp_path / "samples.parquet"
    write_samples(path, [replace(GOOD, images=(Picture(path="a.png"),))])
    (tmp_path / "elsewhere").mkdir()
    export_data("verl", path, tmp_path / "elsewhere" / "verl.parquet")
    back = tmp_path / "elsewhere" / "back.parquet"
    import_data("verl", [tmp_path / "elsewhere" / "verl.parquet"], back, options=Options(), strict=True)
    (sample,) = read_samples(back)
    assert sample.images[0].data == GOOD.images[0].data


def test_a_truth_that_was_changed_after_the_export_stays_changed(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, there, back = (tmp_path / f"{name}.parquet" for name in ("samples", "there", "back"))
    write_samples(path, [GOOD])
    export_data("vtriune", path, there)
    table = pq.read_table(str(there))
    rows = table.to_pylist()
    rows[0]["reward_model"]["ground_truth"] = "\\boxed{A}"
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), str(there))
    import_data("vtriune", [there], back, options=Options(), strict=True)
    assert next(read_samples(back)).ground_truth == "A"


def test_an_unknown_layout_is_told(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="unknown layout 'vtrune'") as caught:
        export_data("vtrune", tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert caught.value.fix == "did you mean `vtriune`?"
