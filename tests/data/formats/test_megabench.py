"""The particulars of MEGA-Bench and OCRBench v2 as published."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.data.formats.published import parquet, written
from vtune.data.formats.building import Options
from vtune.data.formats.ocrbench import CATEGORY, METRIC
from vtune.data.formats.table import FORMATS
from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.verifiers import scored_elsewhere
from vtune.verifiers.reading import METRICS


def found(name: str, path: Path) -> list[Sample | DataError]:
    return [entry for _, entry in FORMATS[name].read(path, Options())]  # type: ignore[misc]


def test_all_30_ocrbench_types_have_a_metric_and_a_category() -> None:
    assert len(METRIC) == 30
    assert set(METRIC.values()) <= set(METRICS)
    assert len({f"{CATEGORY[kind[:-3]]}_{kind[-2:]}" for kind in METRIC}) == 8 + 5


@pytest.mark.parametrize(
    ("change", "metric", "truth"),
    [
        ({"type": "text counting en", "eval": "regression", "answers": [12]}, "count_near", ["12"]),
        ({"type": "text counting en", "eval": "exact match", "answers": ["12"]}, "count_exact", ["12"]),
        ({"type": "cognition VQA en", "eval": "case sensitive"}, "contains_cased", ["Exit"]),
        ({"type": "reasoning VQA cn"}, "contains_chinese", ["Exit"]),
        ({"type": "handwritten answer extraction cn", "answers": ["AB"]}, "handwritten", ["AB"]),
        (
            {"type": "handwritten answer extraction cn", "question": "简答题", "answers": ["AB"]},
            "page",
            ["AB"],
        ),
        (
            {"type": "key information extraction cn", "answers": ["{'a': ['1', '2'], 'b': 3}"]},
            "fields",
            {"a": ["1", "2"], "b": ["3"]},
        ),
        ({"type": "key information mapping en", "answers": [{"a": "1"}]}, "fields", {"a": ["1"]}),
        ({"type": "VQA with position en", "bbox": "[1, 2, 3, 4]"}, "answer_and_box", ["Exit"]),
        ({"type": "document parsing cn"}, "teds", ["Exit"]),
    ],
)
def test_a_type_has_its_metric(change: dict[str, object], metric: str, truth: object, tmp_path: Path) -> None:
    file = written("ocrbench_v2", tmp_path)
    row = json.loads(file.read_text())[0]
    file.write_text(json.dumps([row | change]))
    (sample,) = found("ocrbench_v2", file)
    assert isinstance(sample, Sample), sample
    assert sample.verifier_parm["metric"] == metric
    assert json.loads(sample.ground_truth) == truth
    assert sample.verifier_parm.get("bbox", [1, 2, 3, 4]) == [1, 2, 3, 4]


def test_mega_bench_pictures_are_placed_as_in_its_text(tmp_path: Path) -> None:
    root = written("mega_bench", tmp_path)
    first, _, other = found("mega_bench", root)
    assert isinstance(first, Sample)
    assert isinstance(other, Sample)
    assert (first.extra["category"], other.extra["category"]) == ("Perception", "Mathematics")
    assert first.prompt[-1].content.count("<image>") == 1
    (file,) = root.rglob("*.parquet")
    rows = pq.read_table(file).to_pylist()
    parquet(file, [rows[0] | {"query_text": "<image> <image>?"}, rows[0] | {"query_text": "No mark?"}])
    broken, marked = found("mega_bench", root)
    assert isinstance(broken, DataError)
    assert "2 marks for 1 pictures" in broken.what
    assert isinstance(marked, Sample)
    assert marked.prompt[-1].content.startswith("<image>\n")


@pytest.mark.parametrize(
    "change",
    [{"answer": "__import__('os').getcwd()"}, {"query_media": "['../secret.jpg']"}, {"answer": "{}"}],
)
def test_a_hostile_row_runs_no_code_and_reads_no_path_outside_the_folder(
    change: dict[str, str], tmp_path: Path
) -> None:
    root = written("mega_bench", tmp_path)
    (file,) = root.rglob("*.parquet")
    parquet(file, [pq.read_table(file).to_pylist()[0] | change])
    (error,) = found("mega_bench", root)
    assert isinstance(error, DataError)


def test_a_mega_bench_task_is_deferred_only_if_its_metrics_are(tmp_path: Path) -> None:
    here, _, elsewhere = found("mega_bench", written("mega_bench", tmp_path))
    assert isinstance(here, Sample)
    assert isinstance(elsewhere, Sample)
    assert here.verifier_parm["metrics"] == {"answer": "exact_str_match"}
    assert [scored_elsewhere(one) for one in (here, elsewhere)] == [False, True]


def test_a_mega_bench_row_without_metrics_is_refused(tmp_path: Path) -> None:
    root = written("mega_bench", tmp_path)
    (file,) = root.rglob("*.parquet")
    parquet(file, [pq.read_table(file).to_pylist()[0] | {"metric_info": "{}"}])
    (error,) = found("mega_bench", root)
    assert isinstance(error, DataError)
    assert "no metrics of MEGA-Bench" in error.what


def test_mega_bench_needs_its_metadata_file(tmp_path: Path) -> None:
    root = written("mega_bench", tmp_path)
    (root / "all_task_meta.json").unlink()
    with pytest.raises(DataError, match="which names the field of each task"):
        found("mega_bench", root)


def test_only_the_core_of_a_full_snapshot_is_read_without_duplicates(tmp_path: Path) -> None:
    root = written("mega_bench", tmp_path)
    (file,) = root.rglob("*.parquet")
    rows = pq.read_table(file).to_pylist()
    for other in ("open", "core_single_image"):
        (root / other).mkdir()
        parquet(root / other / file.name, rows)
    samples = found("mega_bench", root)
    assert [sample.id for sample in samples if isinstance(sample, Sample)] == [
        f"mega_bench/{row['task_name']}/{row['id']}" for row in rows
    ]
    parquet(file, [*rows, rows[1]])
    *_, doubled = found("mega_bench", root)
    assert isinstance(doubled, DataError)
    assert f"already exists: {file}, row 1" in doubled.what
    file.unlink()
    with pytest.raises(DataError, match="no Parquet file of the split `test` of `core`"):
        found("mega_bench", root)
