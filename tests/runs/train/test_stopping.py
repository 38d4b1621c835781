import os
import signal
import threading
from collections.abc import Callable

import pytest

from vtune.errors import WITHIN, RunFailed
from vtune.report.progress import STOPS
from vtune.runs.train.stopping import Stopping
from vtune.update.ranks import Ranks
from vtune.update.recipe import Checkpoints

ALONE = Ranks(rank=0, world=1, local=0)


def run(
    steps: int, *, every: int = 100, minutes: float | None = None, during: Callable[[int], None] = id
) -> list[int]:
    """The steps after which a run writes a checkpoint, and its exit status; a step takes a minute."""
    now = [0.0]
    saved: list[int] = []
    recipe = Checkpoints(every=every, keep=1, minutes=minutes)
    with Stopping(recipe, steps, ALONE, done=0, clock=lambda: now[0]) as stopping:
        for done in range(1, steps + 1):
            during(done)
            now[0] += 60.0
            try:
                stopping.after(done, lambda done=done: saved.append(done), lambda: None)
            except SystemExit as status:
                return [*saved, int(str(status.code))]
    return saved


def terminate(at: int, number: signal.Signals = signal.SIGTERM) -> Callable[[int], None]:
    return lambda done: os.kill(os.getpid(), number) if done == at else None


@pytest.mark.parametrize(
    ("given", "saved"),
    [
        ({"every": 4}, [4, 8, 10]),
        ({"every": 100}, [10]),
        ({"minutes": 3.0}, [3, 6, 9, 10]),
        ({"minutes": 2.5}, [3, 6, 9, 10]),
        # A checkpoint by steps restarts the clock.
        ({"every": 5, "minutes": 3.0}, [3, 5, 8, 10]),
        ({"during": terminate(7)}, [7, 130]),
        ({"during": terminate(7, signal.SIGHUP)}, [7, 130]),
        ({"every": 7, "during": terminate(7)}, [7, 130]),
        ({"during": terminate(10)}, [10]),
    ],
)
def test_a_checkpoint_is_written_when_it_is_due_and_only_then(
    given: dict[str, object], saved: list[int]
) -> None:
    assert run(10, **given) == saved  # type: ignore[arg-type]


def test_sighup_that_is_ignored_stays_so() -> None:
    """As under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run(10, during=terminate(7, signal.SIGHUP)) == [10]
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("within", [False, True])
def test_a_stop_order_is_acknowledged_once_and_at_once(
    within: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that started a rank reports that itself."""
    monkeypatch.delenv(WITHIN, raising=False)
    if within:
        monkeypatch.setenv(WITHIN, "1")

    def during(done: int) -> None:
        for _ in range(2 if done == 3 else 0):
            os.kill(os.getpid(), signal.SIGTERM)
        for thread in set(threading.enumerate()) - before:
            thread.join()
        said.append(capsys.readouterr().err)

    said: list[str] = []
    before = set(threading.enumerate())
    run(5, during=during)
    assert said == ["", "", "" if within else f"{STOPS}\n"]


def test_outside_steps_sigterm_has_its_usual_effect() -> None:
    before = signal.getsignal(signal.SIGTERM)
    run(2)
    assert signal.getsignal(signal.SIGTERM) is before


def test_all_processes_make_the_same_decision() -> None:
    """What one was told counts for all; of the clocks, the first one's."""

    class Two(Ranks):
        def gather(self, value: object) -> list[object]:  # type: ignore[override]
            return [value, (False, True)]

    saved: list[int] = []
    recipe = Checkpoints(every=100, keep=1, minutes=None)
    with Stopping(recipe, 10, Two(rank=0, world=2, local=0), done=0) as stopping, pytest.raises(SystemExit):
        stopping.after(3, lambda: saved.append(3), lambda: saved.append(-3))
    assert saved == [3, -3]


def test_a_stop_before_the_first_step_promises_no_checkpoint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An evaluation of the starting weights may be abandoned."""
    stopping = Stopping(Checkpoints(every=5, keep=1, minutes=None), 10, ALONE, done=0)
    did: list[str] = []
    with pytest.raises(SystemExit):
        stopping.stop(0, lambda: did.append("saved"), lambda: did.append("finished"))
    assert did == ["finished"]
    assert "stopped after step 0 of 10: there is nothing to save yet" in capsys.readouterr().err


def test_a_failure_saves_what_is_trained_and_a_failed_save_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stopping = Stopping(Checkpoints(every=5, keep=1, minutes=None), 10, ALONE, done=5)
    did: list[str] = []
    lost = RunFailed("an engine has died", fix="--resume")
    for done in (5, 7):
        with pytest.raises(RunFailed, match="an engine has died"):
            stopping.fail(lost, done, lambda: did.append("saved"), lambda: did.append("finished"))
    assert did == ["finished", "saved", "finished"]

    def full() -> None:
        raise RunFailed("the disk is full", fix="make room")

    with pytest.raises(RunFailed, match="an engine has died"):
        stopping.fail(lost, 8, full, full)
    assert "the disk is full" in capsys.readouterr().err


def test_an_engine_that_ends_with_its_run_does_not_make_the_stop_a_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A scheduler may send SIGTERM to every process of a job; one rank hears it before the others."""

    class Two(Ranks):
        def gather(self, value: object) -> list[object]:  # type: ignore[override]
            return [value, True]

    did: list[str] = []
    stopping = Stopping(Checkpoints(every=5, keep=1, minutes=None), 10, Two(rank=0, world=2, local=0), done=5)
    with pytest.raises(SystemExit) as status:
        stopping.fail(
            RunFailed("vLLM has ended", fix="--resume"),
            7,
            lambda: did.append("saved"),
            lambda: did.append("end"),
        )
    assert (status.value.code, did) == (130, ["saved", "end"])
    said = capsys.readouterr().err
    assert "failed after the order to stop: vLLM has ended" in said
    assert "stopped after step 7 of 10; its checkpoint is written" in said
