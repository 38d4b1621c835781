"""Concurrent runs of a sweep: scheduling, and how they end."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runs.processes.test_child import OBEDIENT, program
from tests.runs.sweep.test_sweep import Ended
from vtune.errors import RecipeError
from vtune.runs.processes import machines
from vtune.runs.processes.machines import places
from vtune.runs.sweep import jobs as module
from vtune.runs.sweep.jobs import Job, Jobs
from vtune.runs.sweep.preparing import Command
from vtune.runs.sweep.table import Run


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK", 0.0)


class Noted(Ended):
    """A command whose start and end are recorded."""

    def __init__(self, name: str, events: list[tuple[str, str]], code: int, looks: int) -> None:
        super().__init__(code, looks=looks)
        self.name, self._events, self._over = name, events, False
        events.append(("begin", name))

    def poll(self) -> int | None:
        code = super().poll()
        if code is not None and not self._over:
            self._over = True
            self._events.append(("end", self.name))
        return code


class Machine:
    """A fake machine; a command's `words` give the number of polls it takes and its status."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.started: list[Noted] = []
        self.places: list[tuple[str, Mapping[str, str], str]] = []

    def start(self, words: Sequence[str], *, log: Path, environment: Mapping[str, str], **more: Any) -> Noted:
        log.touch()
        self.places.append((log.name, environment, more["title"]))
        self.started.append(Noted(log.name, self.events, int(words[1]), int(words[0])))
        return self.started[-1]


def job(name: str, seed: int | None, folder: Path, *looks: int, prepares: int = 0, code: int = 0) -> Job:
    """A run of commands that take these numbers of polls; the first `prepares` are for its whole seed."""

    def commands() -> Iterator[Command]:
        for number, count in enumerate(looks):
            words, log = [str(count), str(code)], folder / f"{name}:{number}"
            shared = number < prepares
            yield Command(
                f"part {number}", words, log, folder / f"seed-{seed}" if shared else log, True, shared
            )

    return Job(Run(name, seed, folder / name), name, commands())


RUNS = st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 3), max_size=4), st.integers(0, 2)))


@given(runs=RUNS, count=st.integers(1, 4))
def test_jobs_respect_the_limit_their_order_and_their_seeds_preparation(
    runs: list[tuple[int, list[int], int]], count: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, machine = tmp_path_factory.getbasetemp(), Machine()
    work = [
        job(f"run-{n}", seed, folder, *looks, prepares=first) for n, (seed, looks, first) in enumerate(runs)
    ]
    ended: list[str] = []
    failed = Jobs(
        work,
        [{"PLACE": str(n)} for n in range(count)],
        start=machine.start,
        ended=lambda run: ended.append(run.name),
    ).run()
    assert failed == []
    assert sorted(ended) == sorted(f"run-{n}/seed-{seed}" for n, (seed, _, _) in enumerate(runs))
    active: list[str] = []
    for event, name in machine.events:
        if event == "end":
            active.remove(name)
            continue
        own = int(name.removeprefix("run-").partition(":")[0])
        others = [int(other.removeprefix("run-").partition(":")[0]) for other in active]
        assert own not in others
        for other, running in zip(others, active, strict=True):
            alike = runs[other][0] == runs[own][0]
            prepares = int(running.partition(":")[2]) < runs[other][2]
            # Only its first part: afterwards it may itself prepare while another one trains.
            assert not (alike and prepares and name.endswith(":0"))
        active.append(name)
        assert len(active) <= count
    assert active == []
    numbers = [int(name.removeprefix("run-").partition(":")[0]) for event, name in machine.events]
    if count == 1:
        assert numbers == sorted(numbers)


def test_another_seed_starts_during_a_preparation_and_slots_are_not_shared(tmp_path: Path) -> None:
    machine = Machine()
    work = [
        job("a", 3, tmp_path, 3, 1, prepares=1),
        job("b", 3, tmp_path, 1),
        job("c", 5, tmp_path, 1, 6, prepares=1),
    ]
    assert Jobs(work, [{"GPU": "0"}, {"GPU": "1"}], start=machine.start).run() == []
    assert [name for event, name in machine.events if event == "begin"] == ["a:0", "c:0", "c:1", "a:1", "b:0"]
    by_run = {name: (place["GPU"], title) for name, place, title in machine.places}
    assert by_run["a:0"] == by_run["a:1"] == ("0", "a/seed-3")
    assert by_run["c:1"] == ("1", "c/seed-5")
    assert by_run["b:0"][0] == "0"


def test_a_failing_job_affects_no_other_and_failures_are_named_in_order(tmp_path: Path) -> None:
    machine = Machine()
    work = [
        job("a", 3, tmp_path, 5, 0, code=1),
        job("b", 5, tmp_path, 0, 0, code=-9),
        job("c", 7, tmp_path, 0, 0),
    ]
    failed = Jobs(work, [{}, {}], start=machine.start).run()
    assert [(one["name"], one["how"]) for one in failed] == [
        ("a/seed-3: part 0", "ended with status 1"),
        ("b/seed-5: part 0", "was killed by signal 9"),
    ]
    assert ("end", "c:1") in machine.events
    assert {title for _, _, title in machine.places} == {"a/seed-3", "b/seed-5", "c/seed-7"}


def test_a_failed_preparation_is_not_retried_by_the_next_job(tmp_path: Path) -> None:
    machine = Machine()
    work = [job(name, 3, tmp_path, 1, 1, prepares=1, code=1) for name in "ab"]
    failed = Jobs(work, [{}, {}], start=machine.start).run()
    assert [one["name"] for one in failed] == ["a/seed-3: part 0"]
    assert [name for event, name in machine.events if event == "begin"] == ["a:0"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_reaches_all_running_jobs_and_no_more_start(number: signal.Signals, tmp_path: Path) -> None:
    machine = Machine()

    class Interrupts(Noted):
        def poll(self) -> int | None:
            if not self.signals:
                os.kill(os.getpid(), number)
            return super().poll()

    def start(words: Sequence[str], *, log: Path, **more: Any) -> Noted:
        kind = Interrupts if log.name == "b:0" else Noted
        machine.started.append(kind(log.name, machine.events, 0, 1000))
        return machine.started[-1]

    work = [job(name, seed, tmp_path, 1000, 0) for seed, name in enumerate("abc")]
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as caught:
        Jobs(work, [{}, {}], start=start).run()
    assert caught.value.code == 130
    assert [(one.name, one.signals[0]) for one in machine.started] == [("a:0", number), ("b:0", number)]
    assert signal.getsignal(number) is before


def test_a_run_that_was_interrupted_by_itself_interrupts_the_others(tmp_path: Path) -> None:
    machine = Machine()
    work = [job("a", 3, tmp_path, 1000), job("b", 5, tmp_path, 2, 0, code=130), job("c", 7, tmp_path, 0)]
    with pytest.raises(SystemExit):
        Jobs(work, [{}, {}], start=machine.start).run()
    assert [one.signals for one in machine.started] == [[signal.SIGTERM], []]


def test_after_an_internal_error_running_jobs_save_and_are_awaited(tmp_path: Path) -> None:
    machine = Machine()

    def ended(run: Run) -> None:
        raise OSError("no space left")

    class Saves(Noted):
        def poll(self) -> int | None:
            # It takes a while to end after the signal.
            self.left = self.left - 1 if self.signals else 3
            return 130 if self.left < 0 else super().poll() if not self.signals else None

        left = 3

    def start(words: Sequence[str], *, log: Path, **more: Any) -> Noted:
        kind = Saves if log.name == "a:0" else Noted
        machine.started.append(kind(log.name, machine.events, 0, int(words[0])))
        return machine.started[-1]

    work = [job("a", 3, tmp_path, 1000), job("b", 5, tmp_path, 1)]
    with pytest.raises(OSError, match="no space left"):
        Jobs(work, [{}, {}], start=start, ended=ended).run()
    assert machine.started[0].signals == [signal.SIGTERM]
    assert machine.started[0].poll() == 130


def test_ctrl_c_reaches_real_processes_which_are_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, OBEDIENT, monkeypatch)
    logs = [tmp_path / f"{name}:0" for name in "ab"]

    def interrupt() -> None:
        while not all("begun" in log.read_text() for log in logs if log.exists()) or not all(
            log.exists() for log in logs
        ):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    work = [job(name, seed, tmp_path, 1) for seed, name in enumerate("abc")]
    monkeypatch.setattr(module, "LOOK", 0.02)
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(SystemExit):
        Jobs(work, [{}, {}]).run()
    thread.join()
    assert [log.read_text() for log in logs] == ["begun\ntold\n"] * 2
    assert not (tmp_path / "c:0").exists()


def test_each_run_has_its_own_gpus_or_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda who: {*range(8)})
    assert places(1, 4) == [{}]
    assert places(3, 1) == [{"OMP_NUM_THREADS": "2"}] * 3
    assert places(16, 1)[0] == {"OMP_NUM_THREADS": "1"}
    monkeypatch.setenv("OMP_NUM_THREADS", "16")
    assert places(2, 1)[0] == {"OMP_NUM_THREADS": "4"}
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert places(2, 1)[0] == {"OMP_NUM_THREADS": "1"}
    monkeypatch.setattr(machines, "gpus_here", lambda: 4)
    assert places(2, 2) == [{"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "2,3"}]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,GPU-aa,2,3")
    assert places(2, 1) == [{"CUDA_VISIBLE_DEVICES": "7"}, {"CUDA_VISIBLE_DEVICES": "GPU-aa"}]
    with pytest.raises(RecipeError, match="--jobs 3 with 2 GPUs each, but this machine has 4") as caught:
        places(3, 2)
    assert caught.value.fix == "--jobs 2"
    with pytest.raises(RecipeError, match="--jobs 2 with 8 GPUs each") as caught:
        places(2, 8)
    assert caught.value.fix == "--jobs 1 --gpus 4"
