import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vtune.schema.parquet.groups
import vtune.schema.store
from tests.schema.records import SAMPLE, TRAJECTORY
from vtune.errors import DataError
from vtune.schema.parquet import group_sizes, write_samples, write_trajectories
from vtune.schema.sample import Sample
from vtune.schema.store import Store, sample_store, trajectory_store

SIZES = (7, 1, 5)
"""Numbers of rows in three files; row groups hold three rows."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vtune.schema.parquet.groups, "GROUP_ROWS", 3)
        for number, size in enumerate(SIZES):
            write_samples(
                folder / f"{number}.parquet",
                (replace(SAMPLE, id=f"{number}/{row}") for row in range(size)),
            )
    return [folder / f"{number}.parquet" for number in range(len(SIZES))]


@pytest.fixture
def store(files: list[Path]) -> Store[tuple[Sample, Path]]:
    return sample_store(files)


IDS = [f"{number}/{row}" for number, size in enumerate(SIZES) for row in range(size)]


def test_rows_of_several_files_and_row_groups_are_one_sequence(files: list[Path], store: Store) -> None:
    assert [group_sizes(path) for path in files] == [[3, 3, 1], [1], [3, 2]]
    assert len(store) == len(IDS)
    assert [store[number][0].id for number in range(len(IDS))] == IDS
    assert {store[number][1] for number in range(len(IDS))} == {files[0].parent}
    for outside in (-1, len(IDS)):
        with pytest.raises(IndexError):
            store[outside]


def epoch(store: Store, number: int, seed: int) -> list[str]:
    return [store.shuffled(number * len(store) + offset, seed=seed)[0].id for offset in range(len(store))]


def test_threads_may_read_concurrently(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vtune.schema.store, "WINDOW", 1)
    read, reading = vtune.schema.store.read_group, []

    def slowly(path: Path, index: int) -> object:
        reading.append(path)
        assert len(reading) == 1
        time.sleep(0.001)
        found = read(path, index)
        reading.remove(path)
        return found

    monkeypatch.setattr(vtune.schema.store, "read_group", slowly)
    store = sample_store(files)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda position: store.shuffled(position, seed=0)[0].id, range(26)))
    alone = sample_store(files)
    assert found == [alone.shuffled(position, seed=0)[0].id for position in range(26)]


@pytest.mark.parametrize("window", [1, 2, 16])
def test_every_epoch_has_a_new_order_of_all_rows(
    files: list[Path], window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vtune.schema.store, "WINDOW", window)
    orders = [epoch(sample_store(files), number, seed) for seed in (0, 1) for number in range(3)]
    assert all(sorted(order) == sorted(IDS) for order in orders)
    assert len({tuple(order) for order in orders}) == len(orders)


@settings(max_examples=25)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=30), st.integers(0, 3))
def test_a_row_depends_only_on_position_and_seed(files: list[Path], positions: list[int], seed: int) -> None:
    """Whatever was read before, in any order: a resumed run continues with the next sample."""
    used = sample_store(files)
    for position in positions:
        used.shuffled(position, seed=seed)
    fresh = sample_store(files)
    assert used.shuffled(positions[0], seed=seed) == fresh.shuffled(positions[0], seed=seed)


def test_another_seed_on_the_same_store_gives_another_order(files: list[Path]) -> None:
    store = sample_store(files)
    first = epoch(store, 0, 0)
    assert epoch(store, 0, 1) == epoch(sample_store(files), 0, 1) != first


def test_few_row_groups_are_held_in_memory(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vtune.schema.store, "WINDOW", 2)
    store = sample_store(files)
    reads = []
    real = vtune.schema.store.read_group
    monkeypatch.setattr(
        vtune.schema.store, "read_group", lambda path, index: reads.append((path, index)) or real(path, index)
    )
    epoch(store, 0, 0)
    # Rows are shuffled within the groups held in memory, so an epoch reads each group once.
    assert len(reads) == len(set(reads)) == 6


def test_trajectories_are_stored_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "traces.parquet"
    write_trajectories(path, [replace(TRAJECTORY, sample_id=str(number)) for number in range(3)])
    store = trajectory_store([path])
    assert [store[number].sample_id for number in range(3)] == ["0", "1", "2"]
    assert store[0] == replace(TRAJECTORY, sample_id="0")


def test_a_bad_row_is_named_by_file_and_row(tmp_path: Path) -> None:
    path = tmp_path / "bad.parquet"
    write_samples(path, [SAMPLE, replace(SAMPLE, id="x", verifier="")])
    with pytest.raises(DataError, match="names no verifier") as caught:
        sample_store([path])[1]
    assert caught.value.where == f"{path}, row 1, column `reward_model.verifier`"


def test_files_without_rows_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.parquet"
    write_samples(path, [])
    with pytest.raises(DataError, match="no row in the data"):
        sample_store([path])
    write_samples(tmp_path / "one.parquet", [SAMPLE])
    assert len(sample_store([path, tmp_path / "one.parquet"])) == 1


def test_a_missing_or_wrong_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        sample_store([tmp_path / "none.parquet"])
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 not really")
    with pytest.raises(DataError, match="the Parquet file is cut short"):
        trajectory_store([broken])
    write_samples(tmp_path / "samples.parquet", [SAMPLE])
    with pytest.raises(DataError, match="no column `sample_id`"):
        trajectory_store([tmp_path / "samples.parquet"])
    write_trajectories(tmp_path / "traces.parquet", [TRAJECTORY])
    with pytest.raises(DataError, match="no column `prompt`"):
        sample_store([tmp_path / "traces.parquet"])
