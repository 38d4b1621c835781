import errno
import os
import random
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schema.records import SAMPLE, TRAJECTORY, samples, trajectories
from vtune.errors import DataError, RunFailed
from vtune.schema import parquet
from vtune.schema.box import Box
from vtune.schema.message import Message, Picture
from vtune.schema.parquet import scan_rows
from vtune.schema.parquet.trajectories import LARGE_INPUT
from vtune.schema.sample import Evidence, Sample
from vtune.schema.sample_row import SAMPLE_COLUMNS, sample_from_row
from vtune.schema.store import trajectory_store
from vtune.schema.trajectory import Crop, Outcome, Trajectory
from vtune.schema.trajectory_row import TRAJECTORY_COLUMNS

MEGABYTE = 2**20
ROW: dict[str, Any] = {
    "data_source": "signs",
    "images": [{"bytes": b"picture", "path": None}],
    "prompt": [{"role": "user", "content": "<image>\nWhich glyph?"}],
    "ability": "visual_search",
    "reward_model": {"ground_truth": "B", "verifier": "choice", "verifier_parm": "{}"},
    "extra_info": {"id": "signs/0"},
    "evidence": [{"label": "sign", "image": 0, "bbox_2d": [0.0, 0.0, 9.0, 9.0]}],
}


def written(path: Path, rows: list[dict[str, Any]], schema: pa.Schema | None = None) -> Path:
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return path


def row(**columns: Any) -> dict[str, Any]:
    return ROW | columns


@settings(max_examples=35)
@given(st.lists(samples(), max_size=4, unique_by=lambda sample: sample.id))
def test_samples_survive_a_round_trip(many: list[Sample]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "samples.parquet"
        assert parquet.write_samples(path, many) == len(many) == parquet.count_rows(path)
        assert list(parquet.read_samples(path)) == many


def test_a_record_of_an_older_run_may_end_with_the_assistants_turn(tmp_path: Path) -> None:
    """It cannot be run again, but can still be audited and viewed."""
    old = replace(SAMPLE, prompt=(*SAMPLE.prompt, Message("assistant", "<answer>B</answer>")))
    parquet.write_samples(tmp_path / "samples.parquet", [old])
    assert list(parquet.read_samples(tmp_path / "samples.parquet")) == [old]


@settings(max_examples=35)
@given(st.lists(trajectories(), max_size=4))
def test_trajectories_survive_a_round_trip(many: list[Any]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trajectories.parquet"
        assert parquet.write_trajectories(path, many) == len(many)
        assert list(parquet.read_trajectories(path)) == many


def test_older_files_with_an_environment_outcome_need_no_look(tmp_path: Path) -> None:
    asked = Trajectory(sample_id="one", source="maze")
    acted = replace(asked, outcome=Outcome(1.0, "goal"))
    new, old = tmp_path / "new.parquet", tmp_path / "old.parquet"
    parquet.write_trajectories(new, [replace(acted, needs_look=True), acted, asked])
    pq.write_table(pq.read_table(new).drop_columns(["needs_look"]), old)
    assert [one.needs_look for one in parquet.read_trajectories(new)] == [True, False, None]
    assert [one.needs_look for one in parquet.read_trajectories(old)] == [False, False, None]


def test_the_columns_are_those_of_the_published_layout() -> None:
    judge = ["answer", "ground_truth", "verifier", "verifier_parm"]
    ratios = ["accuracy_ratio", "format_ratio", "tool_ratio"]
    assert SAMPLE_COLUMNS.names[:6] == [
        "data_source",
        "images",
        "prompt",
        "ability",
        "reward_model",
        "extra_info",
    ]
    assert SAMPLE_COLUMNS.names[6:] == ["tools", "evidence", "choices", "environment"]
    assert [field.name for field in SAMPLE_COLUMNS.field("reward_model").type] == judge + ratios
    assert str(SAMPLE_COLUMNS.field("images").type) == "list<item: struct<bytes: binary, path: string>>"
    assert TRAJECTORY_COLUMNS.names[:5] == ["sample_id", "data_source", "group", "rollout", "policy_version"]


def test_a_trace_without_tokens_is_a_trajectory(tmp_path: Path) -> None:
    trace = replace(
        TRAJECTORY,
        token_ids=(),
        loss_mask=(),
        logprobs=(),
        calls=(replace(TRAJECTORY.calls[0], span=(0, 0)),),
    )
    parquet.write_trajectories(tmp_path / "traces.parquet", [trace])
    assert list(parquet.read_trajectories(tmp_path / "traces.parquet")) == [trace]


def test_a_decimal_ratio_survives_exactly(tmp_path: Path) -> None:
    parquet.write_samples(tmp_path / "s.parquet", [SAMPLE])
    (sample,) = parquet.read_samples(tmp_path / "s.parquet")
    assert (sample.accuracy_ratio, sample.format_ratio) == (0.9, 0.1)


BROKEN = {
    "no ground truth": (
        row(reward_model={"ground_truth": None, "verifier": "choice"}),
        "reward_model.ground_truth",
    ),
    "no verifier": (row(reward_model={"ground_truth": "B", "style": "rule"}), "reward_model.verifier"),
    "parm is no JSON": (
        row(reward_model={"ground_truth": "B", "verifier": "choice", "verifier_parm": "{"}),
        "reward_model.verifier_parm",
    ),
    "parm is not an object": (
        row(reward_model={"ground_truth": "B", "verifier": "choice", "verifier_parm": "[1]"}),
        "reward_model.verifier_parm",
    ),
    "picture without bytes and path": (row(images=[{"bytes": None, "path": None}]), "images"),
    "two pictures, one mark": (row(images=[{"bytes": b"a"}, {"bytes": b"b"}]), "sample 'signs/17'"),
    "unknown role": (row(prompt=[{"role": "tool", "content": "<image>"}]), "prompt.role"),
    "box with three sides": (
        row(evidence=[{"label": "", "image": 0, "bbox_2d": [0.0, 1.0, 2.0]}]),
        "evidence.bbox_2d",
    ),
    "box with a gap": (
        row(evidence=[{"label": "", "image": 0, "bbox_2d": [0.0, None, 1.0, 2.0, 3.0]}]),
        "evidence.bbox_2d",
    ),
    "endless box": (
        row(evidence=[{"label": "", "image": 0, "bbox_2d": [0.0, 0.0, 1.0, float("inf")]}]),
        "evidence.bbox_2d",
    ),
    "empty box": (
        row(evidence=[{"label": "", "image": 0, "bbox_2d": [5.0, 5.0, 5.0, 9.0]}]),
        "sample 'signs/17'",
    ),
    "text is a number": (row(data_source=3), "data_source"),
    "answer is a list": (
        row(reward_model={"ground_truth": ["B"], "verifier": "choice"}),
        "reward_model.ground_truth",
    ),
}


@pytest.mark.parametrize(("bad", "place"), BROKEN.values(), ids=list(BROKEN))
def test_a_broken_row_is_reported_with_file_row_column_and_fix(
    bad: dict[str, Any], place: str, tmp_path: Path
) -> None:
    bad = bad | {"extra_info": {"id": "signs/17"}}
    with pytest.raises(DataError) as caught:
        list(parquet.read_samples(written(tmp_path / "bad.parquet", [bad])))
    assert f"{tmp_path / 'bad.parquet'}, row 0" in caught.value.where
    assert place in caught.value.where
    assert caught.value.fix or "image(s)" in caught.value.what


def test_rows_are_counted_from_zero(tmp_path: Path) -> None:
    rows = [row(extra_info={"id": f"signs/{n}"}) for n in range(40)]
    rows[17]["prompt"] = [{"role": "user", "content": "no picture"}]
    path = written(tmp_path / "bad.parquet", rows)
    with pytest.raises(DataError, match="row 17, sample 'signs/17'"):
        list(parquet.read_samples(path))
    scanned = list(parquet.scan_samples(path))
    assert [n for n, entry in enumerate(scanned) if isinstance(entry, DataError)] == [17]


def test_a_duplicate_id_is_refused_on_reading_and_writing(tmp_path: Path) -> None:
    path = written(tmp_path / "twice.parquet", [ROW, ROW])
    with pytest.raises(DataError, match="appears twice, first in row 0"):
        list(parquet.read_samples(path))
    with pytest.raises(DataError, match="appears twice"):
        parquet.write_samples(tmp_path / "new.parquet", [SAMPLE, SAMPLE])


def test_files_of_verl_open_with_a_default_verifier(tmp_path: Path) -> None:
    verl = row(
        reward_model={"style": "rule", "ground_truth": "B"},
        extra_info={"index": 7, "split": "train", "question": None},
    )
    path = written(tmp_path / "verl.parquet", [verl])
    with pytest.raises(DataError, match="vtune data import verl"):
        list(parquet.read_samples(path))
    (sample,) = parquet.read_samples(path, default_verifier="exact")
    assert (sample.id, sample.verifier, sample.accuracy_ratio) == ("signs/train/7", "exact", 1.0)
    assert sample.extra == {"index": 7, "split": "train"}


def test_files_of_v_triune_open_with_their_parameters_as_a_struct(tmp_path: Path) -> None:
    judge = {
        "ground_truth": "B",
        "verifier": "detection",
        "verifier_parm": {"det_verifier_normalized": True, "det_reward_ratio": {"map": 0.5, "map50": None}},
        "format_ratio": 0.1,
    }
    path = written(tmp_path / "orsta.parquet", [row(reward_model=judge, extra_info={"id": None})])
    (sample,) = parquet.read_samples(path)
    assert sample.verifier_parm == {"det_verifier_normalized": True, "det_reward_ratio": {"map": 0.5}}
    assert sample.id == "orsta/0"


@pytest.mark.parametrize("images", [["a.jpg"], [b"picture"], b"picture"], ids=["paths", "bytes", "single"])
def test_images_may_be_plain_bytes(images: Any, tmp_path: Path) -> None:
    (sample,) = parquet.read_samples(written(tmp_path / "bare.parquet", [row(images=images)]))
    assert sample.images in ((Picture(path="a.jpg"),), (Picture(data=b"picture"),))


@pytest.mark.parametrize("content", [b"", b"PAR1 no", b"a,b\n1,2\n"], ids=["empty", "cut", "csv"])
def test_a_file_that_is_not_parquet_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.parquet"
    path.write_bytes(content)
    for read in (parquet.read_samples, parquet.read_trajectories):
        with pytest.raises(DataError, match=r"Parquet file is cut short|not a Parquet file"):
            list(read(path))


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    parquet.write_samples(path, [replace(SAMPLE, id=f"signs/{n}") for n in range(50)])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="the Parquet file is cut short"):
        parquet.count_rows(path)
    path.write_bytes(b"PAR1" + bytes(100) + whole[104:])
    with pytest.raises(DataError):
        list(parquet.read_samples(path))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    for read in (parquet.count_rows, parquet.columns, parquet.fingerprint):
        with pytest.raises(DataError, match="cannot read"):
            read(tmp_path / "none.parquet")


def test_a_trajectory_file_is_not_taken_for_samples(tmp_path: Path) -> None:
    parquet.write_trajectories(tmp_path / "t.parquet", [TRAJECTORY])
    with pytest.raises(DataError, match="no column `prompt`"):
        list(parquet.read_samples(tmp_path / "t.parquet"))


def cropped(box: Box) -> Trajectory:
    return replace(TRAJECTORY, calls=(replace(TRAJECTORY.calls[0], crops=(Crop(0, box),)),))


def test_a_sample_with_an_infinite_box_is_refused() -> None:
    with pytest.raises(DataError, match="not finite"):
        replace(SAMPLE, evidence=(Evidence("sign", 0, (0.0, 0.0, float("inf"), 9.0)),))


def test_a_policys_text_is_kept_even_if_it_contains_an_image_mark(tmp_path: Path) -> None:
    said = replace(TRAJECTORY, messages=(Message("assistant", "Here: <image><image>"),))
    parquet.write_trajectories(tmp_path / "t.parquet", [said])
    assert list(parquet.read_trajectories(tmp_path / "t.parquet")) == [said]


CONTRADICTIONS: dict[str, tuple[Callable[[], Any], str]] = {
    "a mask too short": (lambda: replace(TRAJECTORY, loss_mask=(True,)), "loss_mask"),
    "an image that is not there": (
        lambda: replace(TRAJECTORY, messages=(Message("user", "<image>", (2,)),)),
        "messages.images",
    ),
    "an image without a mark": (
        lambda: replace(TRAJECTORY, messages=(Message("user", "", (0,)),)),
        "messages.images",
    ),
    "a mark without an image": (
        lambda: replace(TRAJECTORY, messages=(Message("user", "<image>"),)),
        "messages.images",
    ),
    "more images than marks in a turn of the assistant": (
        lambda: replace(TRAJECTORY, messages=(Message("assistant", "<image>", (0, 1)),)),
        "messages.images",
    ),
    "a crop turned inside out": (lambda: cropped((3.0, 2.0, 1.0, 4.0)), "calls.crops.bbox_2d"),
    "a crop without an end": (lambda: cropped((1.0, 2.0, float("inf"), 4.0)), "calls.crops.bbox_2d"),
    "a crop that is nowhere": (lambda: cropped((1.0, 2.0, float("nan"), 4.0)), "calls.crops.bbox_2d"),
    "a crop of an image that is not there": (lambda: replace(TRAJECTORY, images=()), "images"),
    "a span outside the tokens": (
        lambda: replace(TRAJECTORY, calls=(replace(TRAJECTORY.calls[0], span=(1, 9)),)),
        "calls.span",
    ),
    "a reward that is no number": (
        lambda: replace(TRAJECTORY, reward=replace(TRAJECTORY.reward, total=float("nan"))),
        "reward",
    ),
    "a score without end": (lambda: replace(TRAJECTORY, tool_scores=(float("inf"),)), "tool_scores"),
    "an advantage that is no number": (lambda: replace(TRAJECTORY, advantage=float("nan")), "advantage"),
    "more scores than calls": (lambda: replace(TRAJECTORY, tool_scores=(0.5, 0.5)), "tool_scores"),
}


@pytest.mark.parametrize(("make", "column"), CONTRADICTIONS.values(), ids=list(CONTRADICTIONS))
def test_a_contradictory_trajectory_is_not_written(
    make: Callable[[], Any], column: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as caught:
        parquet.write_trajectories(tmp_path / "t.parquet", [TRAJECTORY, make()])
    assert "row 1" in caught.value.where
    assert column in caught.value.where
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_during_a_run_does_not_suggest_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the run is in another folder, and there `--resume` finds none."""

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(RunFailed) as own:
        parquet.write_trajectories(tmp_path / "t.parquet", [TRAJECTORY], run=tmp_path)
    assert own.value.fix.startswith("make room")
    with pytest.raises(RunFailed, match="another --out"):
        parquet.write_trajectories(tmp_path / "t.parquet", [TRAJECTORY])


def test_an_unknown_status_in_a_trajectory_file_is_refused(tmp_path: Path) -> None:
    parquet.write_trajectories(tmp_path / "t.parquet", [TRAJECTORY])
    (stored,) = pq.read_table(tmp_path / "t.parquet").to_pylist()
    stored["calls"][0]["status"] = "fine"
    path = written(tmp_path / "bad.parquet", [stored], TRAJECTORY_COLUMNS)
    with pytest.raises(DataError, match=r"calls\.status"):
        list(parquet.read_trajectories(path))


def test_nothing_is_left_if_the_row_source_fails(tmp_path: Path) -> None:
    def source() -> Iterator[Sample]:
        yield SAMPLE
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parquet.write_samples(tmp_path / "s.parquet", source())
    assert list(tmp_path.iterdir()) == []


def test_an_old_file_is_kept_if_the_new_one_fails(tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"
    parquet.write_samples(path, [SAMPLE])
    with pytest.raises(DataError):
        parquet.write_samples(
            path, [SAMPLE, replace(SAMPLE, id="signs/2", verifier_parm={"x": float("nan")})]
        )
    assert list(parquet.read_samples(path)) == [SAMPLE]


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.parquet"

    def source(count: int) -> Iterator[Sample]:
        for n in range(count):
            noise = bytes([n]) * (MEGABYTE - 1) + b"\n"
            yield replace(SAMPLE, id=f"signs/{n}", images=(Picture(data=noise),))

    def peaks(count: int) -> tuple[int, int, int]:
        tracemalloc.start()
        parquet.write_samples(path, source(count))
        _, writing = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        start, arrow = pa.total_allocated_bytes(), 0
        for _ in parquet.read_samples(path):
            arrow = max(arrow, pa.total_allocated_bytes() - start)
        _, reading = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return writing, reading, arrow

    short, long = peaks(64), peaks(160)
    assert pq.ParquetFile(path).metadata.num_row_groups == 5
    for few, many in zip(short, long, strict=True):
        assert many < few + 8 * MEGABYTE
        assert many < 100 * MEGABYTE


def test_a_foreign_file_of_one_large_row_group_is_read_in_pieces(tmp_path: Path) -> None:
    rows = [
        row(extra_info={"id": f"signs/{n}"}, images=[{"bytes": bytes([n]) * MEGABYTE, "path": None}])
        for n in range(120)
    ]
    path = tmp_path / "s.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path, compression="none", use_dictionary=False)
    del rows
    start, peak = pa.total_allocated_bytes(), 0
    for _ in parquet.read_samples(path):
        peak = max(peak, pa.total_allocated_bytes() - start)
    assert pq.ParquetFile(path).metadata.num_row_groups == 1
    assert peak < 70 * MEGABYTE


def test_a_fingerprint_depends_on_the_content(tmp_path: Path) -> None:
    parquet.write_samples(tmp_path / "a.parquet", [SAMPLE])
    parquet.write_samples(tmp_path / "b.parquet", [SAMPLE])
    parquet.write_samples(tmp_path / "c.parquet", [replace(SAMPLE, ground_truth="A")])
    a, b, c = (parquet.fingerprint(tmp_path / f"{name}.parquet") for name in "abc")
    assert a == b != c


def test_a_picture_is_read_from_bytes_or_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"on disk")
    assert parquet.load_picture(Picture(data=b"here", path="a.jpg"), tmp_path) == b"here"
    assert parquet.load_picture(Picture(path="a.jpg"), tmp_path) == b"on disk"
    with pytest.raises(DataError, match="no picture at"):
        parquet.load_picture(Picture(path="b.jpg"), tmp_path)
    with pytest.raises(DataError, match="neither bytes nor a path"):
        parquet.load_picture(Picture(), tmp_path)


def test_a_picture_with_empty_bytes_is_read_from_its_path(tmp_path: Path) -> None:
    def read(data: bytes | None, path: str | None) -> Picture:
        (picture,) = sample_from_row(row(images=[{"bytes": data, "path": path}]), place="p").images
        return picture

    assert read(b"", "a.jpg") == read(None, "a.jpg") == Picture(path="a.jpg")
    assert read(b"here", "a.jpg") == Picture(b"here", "a.jpg")
    assert read(b"", None) == read(b"", "") == Picture(b"")
    with pytest.raises(DataError, match="neither bytes nor a path"):
        read(None, "")


def test_rollouts_share_a_large_input_and_readers_get_its_bytes(tmp_path: Path) -> None:
    large, small = random.Random(0).randbytes(LARGE_INPUT + 1), b"small"
    asked = Trajectory(sample_id="a/0", source="a", images=(Picture(large), Picture(small)))
    rollouts = [replace(asked, rollout=number) for number in range(8)]
    file = tmp_path / "trajectories" / "step.parquet"
    parquet.write_trajectories(file, rollouts, run=tmp_path)
    (stored,) = (tmp_path / "inputs").iterdir()
    assert stored.read_bytes() == large
    assert file.stat().st_size < LARGE_INPUT / 10
    found = list(parquet.read_trajectories(file))
    assert [[picture.data for picture in t.images] for t in found] == [[large, small]] * 8
    assert trajectory_store([file])[7] == found[7]
    # Again, as when an evaluation merges its parts: paths are relative to the new location.
    parquet.write_trajectories(tmp_path / "all.parquet", found, run=tmp_path)
    assert [t.images[0].data for t in parquet.read_trajectories(tmp_path / "all.parquet")] == [large] * 8
    stored.unlink()
    with pytest.raises(DataError, match="no picture at") as caught:
        list(parquet.read_trajectories(file))
    assert caught.value.where.startswith(f"{file}, row 0")


def test_json_columns_read_the_same_as_in_datasets(tmp_path: Path) -> None:
    import datasets

    features = datasets.Features(
        {
            "id": datasets.Value("string"),
            "any": datasets.Json(),
            "list": datasets.List(datasets.Json()),
            "struct": {"inner": datasets.Json(), "text": datasets.Value("string")},
        }
    )
    rows = [
        {"id": "a", "any": {"x": [1, "b"]}, "list": [{"q": 1}, "z"], "struct": {"inner": 3.5, "text": "{}"}},
        {"id": "b", "any": None, "list": [], "struct": {"inner": "text", "text": None}},
    ]
    file = tmp_path / "rows.parquet"
    made = datasets.Dataset.from_list(rows, features=features)
    made.to_parquet(str(file))
    # Not `to_list`, which datasets before 5 leaves as strings.
    assert [row for _, row in scan_rows(file)] == list(made) == rows
    assert [row for _, row in scan_rows(file, ["list"])] == [{"list": row["list"]} for row in rows]


def test_invalid_json_in_a_json_column_stays_a_string(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    texts = ["{broken", None, "[1]"]
    pq.write_table(pa.table({"any": pa.array(texts, pa.string()).cast(pa.json_())}), file)
    assert [row["any"] for _, row in scan_rows(file)] == ["{broken", None, [1]]


def test_samples_can_be_read_without_pictures_if_the_picture_files_are_gone(tmp_path: Path) -> None:
    pictures = (Picture(data=random.Random(0).randbytes(4096)),)
    sample = Sample(
        id="signs/0",
        source="signs",
        prompt=(Message("user", "<image>Which glyph?", (0,)),),
        images=pictures,
        ground_truth="B",
        verifier="exact",
        evidence=(Evidence("sign", 0, (0.0, 0.0, 9.0, 9.0)),),
    )
    file = tmp_path / "samples.parquet"
    parquet.write_samples(file, [sample])
    metadata = pq.read_metadata(file).row_group(0)
    chunks = {one.path_in_schema: one for one in map(metadata.column, range(metadata.num_columns))}
    chunk = chunks["images.list.element.bytes"]
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    with file.open("r+b") as stream:
        stream.seek(start)
        stream.write(bytes(chunk.total_compressed_size))
    with pytest.raises(DataError):
        list(parquet.read_samples(file))
    (found,) = parquet.scan_samples(file, pictures=False)
    assert found == replace(sample, images=(Picture(data=b""),))


@pytest.mark.parametrize("images", [None, ["a.png"], [b"picture"], [{"bytes": b"picture"}]])
def test_samples_read_without_pictures_keep_their_number_of_pictures(tmp_path: Path, images: Any) -> None:
    text = "<image>Which glyph?" if images else "Which glyph?"
    changed = {"images": images, "prompt": [{"role": "user", "content": text}], "evidence": []}
    file = written(tmp_path / "foreign.parquet", [row(**changed)])
    (found,) = parquet.scan_samples(file, pictures=False)
    assert isinstance(found, Sample)
    assert len(found.images) == len(images or ())


@pytest.mark.parametrize("name", ["data_sources", "distinct", "tally"])
def test_a_column_that_does_not_hold_texts_is_named(name: str, tmp_path: Path) -> None:
    file = written(tmp_path / "odd.parquet", [{"data_source": {"name": "coco"}}])
    given = {"data_sources": (), "distinct": ("data_source",), "tally": (("data_source", "ability"),)}
    with pytest.raises(DataError, match="column `data_source` does not hold texts"):
        list(getattr(parquet, name)(file, *given[name]))


def test_texts_in_columns_are_counted_together(tmp_path: Path) -> None:
    rows = [{"data_source": name, "other": 1} for name in ("a", "b", "a", None)]
    file = written(tmp_path / "rows.parquet", rows)
    assert parquet.tally(file, ("ability", "data_source")) == {
        (None, "a"): 2,
        (None, "b"): 1,
        (None, None): 1,
    }
    assert parquet.distinct(file, "data_source") == {"a", "b"}
    assert parquet.distinct(file, "ability") == set()
    assert list(parquet.data_sources(file)) == ["a", "b", "a", None]


@pytest.mark.parametrize("picture", [lambda data: {"bytes": data}, lambda data: data])
def test_unavoidable_pictures_are_read_a_few_at_a_time(tmp_path: Path, picture: Any) -> None:
    rows = [
        row(images=[picture(random.Random(number).randbytes(2**16))], extra_info={"index": number})
        for number in range(200)
    ]
    file = tmp_path / "foreign.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file, use_dictionary=False)
    del rows
    tracemalloc.start()
    try:
        assert sum(1 for _ in parquet.scan_samples(file, pictures=False)) == 200
        assert tracemalloc.get_traced_memory()[1] < 40 * 2**16
    finally:
        tracemalloc.stop()
