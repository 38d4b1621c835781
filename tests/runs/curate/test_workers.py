"""Rows filtered by several processes: the same bytes, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import active_children
from pathlib import Path

import pytest

import vtune.runs.curate.rows as rows
import vtune.runs.curate.workers as workers
from tests.conftest import HANGS, ROOT
from tests.runs.commands import environment
from tests.runs.curate.test_curation import RULES, curate, made, source, stress, write_recipe
from vtune.errors import ServiceError
from vtune.runs.curate.rows import Rows, Source, Task
from vtune.runs.curate.workers import looking
from vtune.schema.parquet import write_samples
from vtune.uses import forget, use, used


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that there are two cores and that few rows are enough for workers."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(rows, "PART_ROWS", 512)
    monkeypatch.setattr(workers, "MANY", 1024)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "s.parquet"
    write_samples(file, stress(1600))
    return file


def tasks(data: Path) -> list[Task]:
    return list(Rows("samples", {"s": Source(files=(str(data),))}).tasks((), None))


def started(others: set[int]) -> set[int]:
    return {process.pid or 0 for process in active_children()} - others


def gone(processes: set[int]) -> bool:
    """Whether they have ended; another thread may reap them first."""
    end = time.monotonic() + HANGS
    while processes and time.monotonic() < end:
        processes = {process for process in processes if Path(f"/proc/{process}").exists()}
        time.sleep(0.01)
    return not processes


@pytest.fixture
def others() -> set[int]:
    return {process.pid or 0 for process in active_children()}


def test_several_processes_give_the_same_result_as_one(
    data: Path, tmp_path: Path, two: None, others: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = write_recipe(tmp_path / "r.yaml", {"s": source(data)}, RULES)
    ran: list[set[int]] = []
    close = ProcessPoolExecutor.shutdown

    def seen(pool: ProcessPoolExecutor, *args: bool, **options: bool) -> None:
        ran.append(started(others))
        close(pool, *args, **options)

    monkeypatch.setattr(ProcessPoolExecutor, "shutdown", seen)
    curate(recipe, tmp_path / "two")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    curate(recipe, tmp_path / "one")
    assert [len(processes) for processes in ran] == [2]
    assert made(tmp_path / "two") == made(tmp_path / "one")
    assert gone(started(others))


def test_few_rows_and_custom_functions_stay_in_this_process(
    data: Path, two: None, others: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        use([ROOT / "tests/own/short.py"])
        with looking("local") as looks:
            assert sum(len(found.identities) for found in looks(tasks(data))) == 1600
            assert not started(others)
    finally:
        forget(used())
    monkeypatch.setattr(workers, "MANY", 2000)
    with looking("local") as looks:
        assert sum(len(found.identities) for found in looks(tasks(data))) == 1600
        assert not started(others)


def test_a_killed_worker_is_an_error_with_a_fix(data: Path, two: None, others: set[int]) -> None:
    def found() -> Iterator[object]:
        with looking("local") as looks:
            for number, one in enumerate(looks(tasks(data) * 8)):
                if not number:
                    os.kill(started(others).pop(), signal.SIGKILL)
                yield one

    with pytest.raises(ServiceError, match="ended early"):
        list(found())
    assert gone(started(others))


def test_an_interrupt_does_not_wait_for_workers(data: Path, two: None, others: set[int]) -> None:
    def stopped() -> None:
        with looking("local") as looks:
            found = looks(tasks(data) * 8)
            interrupt()  # while they are starting
            assert next(iter(found)).identities
            interrupt()
            assert next(iter(looks(tasks(data)))).identities
            raise KeyboardInterrupt

    def interrupt() -> None:
        processes = started(others)
        assert processes
        for process in processes:
            os.kill(process, signal.SIGINT)  # as the terminal does

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert gone(started(others))


def test_workers_end_if_the_command_is_killed(data: Path, tmp_path: Path) -> None:
    code = f"""
import os, sys
from multiprocessing import active_children
from pathlib import Path
import vtune.runs.curate.rows as rows, vtune.runs.curate.workers as workers
from vtune.runs.curate.rows import Rows, Source
rows.PART_ROWS, workers.MANY = 512, 1024
os.sched_getaffinity = lambda _: {{0, 1}}
given = list(Rows("samples", {{"s": Source(files=({str(data)!r},))}}).tasks((), None))
with workers.looking("local") as looks:
    next(iter(looks(given)))
    print(*(process.pid for process in active_children()), flush=True)
    os.kill(os.getpid(), 9)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    left = {int(word) for word in ended.stdout.split()}
    assert left
    assert gone(left)
