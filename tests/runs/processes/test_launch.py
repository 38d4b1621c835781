import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import HANGS
from tests.runs.commands import numbers, rl, same_weights, setting, sft, vtune
from tests.runs.launched import BREAKS, IDLES, Launched, eventually, steps_done
from vtune.errors import RecipeError
from vtune.runs.processes.launch import launch
from vtune.runs.processes.watcher import Ended, ended

pytestmark = pytest.mark.train

START, END, GONE = HANGS, 300.0, 30.0
"""Seconds: for two processes to come up on a busy machine; for a command to end once it was told to or a rank
has failed; for all its processes to be gone once it has ended."""

SHORT = setting(epochs=10.0, batch_size=8, checkpoints__every=8, update__warmup_steps=2, update__zero_stage=2)
UPDATES = 40
"""Of `SHORT`; each end below comes a few steps after a start."""


@pytest.fixture(autouse=True)
def none_is_left() -> Iterator[None]:
    """Also where a test fails in the middle."""
    yield
    for started in Launched.every:
        started.end()
    Launched.every.clear()


def begun(words: list[str], said: Path, run: Path, *, steps: int = 2, site: str = BREAKS) -> Launched:
    """A command in two processes that has done some steps."""
    before = opened(run)
    started = Launched([*words, "--gpus", "2"], said, site=site)

    def over() -> bool:
        return started.process.poll() is not None

    # A resumed run first takes away what was told after its checkpoint.
    assert eventually(lambda: over() or opened(run) != before, START), started.err
    first = steps_done(run)
    assert eventually(lambda: over() or steps_done(run) >= first + steps, START), started.err
    assert not over(), started.err
    return started


def opened(run: Path) -> int:
    """Another number each time that a run has begun to tell."""
    log = run / "metrics.jsonl"
    return log.stat().st_ino if log.exists() else 0


PDSH = """#!/bin/sh
# `pdsh -S -f N -w a,b COMMAND`: COMMAND on every machine; here they are all this one.
shift 3; shift; hosts=$(echo "$1" | tr , ' '); shift
case "$*" in *pkill*) exit 0;; esac
number=0
for host in $hosts; do
  command=$(echo "$*" | sed "s/%n/$number/g")
  sh -c "$command" & pids="$pids $!"
  number=$((number + 1))
done
status=0
for pid in $pids; do wait $pid || status=$?; done
exit $status
"""

SSH = """#!/bin/sh
while [ "$1" = -o ]; do shift 2; done
shift
case "$*" in "hostname -I") echo 127.0.0.1;; *) exec "$@";; esac
"""


@dataclass(frozen=True)
class Whole:
    """A run of two processes that nothing happened to, on two machines of one process each."""

    run: Path
    started: Launched
    at: float
    """When it had ended, seconds since 1970."""


@pytest.fixture(scope="module")
def whole(tiny: Path, lens: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Both machines are this one, as a stand-in for pdsh and ssh has it."""
    folder = tmp_path_factory.mktemp("whole")
    programs, hosts, run = folder / "bin", folder / "hosts", folder / "run"
    programs.mkdir()
    for name, text in (("pdsh", PDSH), ("ssh", SSH)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    hosts.write_text("first slots=1\nsecond slots=1\n")
    words = sft(tiny, lens / "traces.parquet", run, *SHORT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        started = Launched([*words, "--gpus", "1", "--hostfile", hosts], folder / "said")
    assert started.wait(START) == 0, started.err + (run / "logs/launcher.log").read_text()
    return Whole(run, started, time.time())


def test_many_machines_are_reached_through_pdsh(whole: Whole) -> None:
    assert whole.started.gone(GONE)
    assert json.loads((whole.run / "environment.json").read_text())["processes"] == 2
    assert sorted(ended(whole.run / "logs"))[:2] == [
        Ended(rank, 0, pytest.approx(whole.at, abs=120)) for rank in (0, 1)
    ]


def test_a_run_of_two_processes_survives_its_deaths(
    tiny: Path, lens: Path, whole: Whole, tmp_path: Path
) -> None:
    """Killed, and told to stop as a scheduler does it, it ends as the run that nothing happened to."""
    run = tmp_path / "run"
    words = sft(tiny, lens / "traces.parquet", run, *SHORT)
    again = [*words, "--resume"]

    started = begun(words, tmp_path / "killed", run)
    ranks = started.ranks()
    assert set(ranks) == {0, 1}
    os.kill(ranks[1], signal.SIGKILL)
    # The other waits for it in a collective operation, where no Python runs, or fails for lack of a partner.
    assert started.wait(END) == 1
    assert "error: rank 1 killed by signal 9" in started.err
    assert f"{run / 'logs/rank-1.log'}" in started.err
    assert started.gone(GONE)
    assert {one.rank: one.code for one in ended(run / "logs")}[1] == -signal.SIGKILL

    started = begun(again, tmp_path / "told", run)
    for pid in [started.process.pid, *started.kinds()]:  # the command comes twice
        os.kill(pid, signal.SIGTERM)
    assert started.wait(END) == 130, started.err
    assert started.gone(GONE)
    step = steps_done(run)
    assert step < UPDATES
    assert (run / f"checkpoints/step-{step:06d}/manifest.json").is_file()

    last = Launched([*again, "--gpus=2", "--json"], tmp_path / "last")
    assert last.wait(START) == 0, last.err
    assert json.loads((last.said / "out").read_text())["steps"] == UPDATES
    assert numbers(run) == numbers(whole.run)
    assert same_weights(*(one / "checkpoints/newest" for one in (run, whole.run)))


def test_each_way_to_end_is_told_as_what_it_is_and_leaves_nothing(tmp_path: Path) -> None:
    """Broken, interrupted, abandoned and told to stop, in ranks that train nothing."""
    run = tmp_path / "run"
    words = ["sft", "--recipe", "codev-tiny", "--set", "steps=400", "--out", str(run)]
    again = [*words, "--resume"]

    started = begun(words, tmp_path / "broken", run, site=IDLES)
    os.kill(started.ranks()[1], signal.SIGUSR1)
    assert started.wait(END) == 1
    assert started.gone(GONE)
    said = started.err
    assert 0 < said.index("NotWell: rank one is not well") < said.index("error: rank 1 ended with status 1")
    assert said.count("Traceback") == 1
    assert "rank one is not well" in (run / "logs/rank-1.log").read_text()

    started = begun(again, tmp_path / "interrupted", run, site=IDLES)
    started.process.send_signal(signal.SIGINT)
    assert started.wait(END) == 130
    assert started.gone(GONE)
    assert started.err.count("continue with --resume") == 1
    assert list((tmp_path / "interrupted").glob("in-order-*"))

    started = begun(again, tmp_path / "abandoned", run, site=IDLES)
    started.process.kill()
    assert started.gone(GONE)

    started = begun(again, tmp_path / "told", run, site=IDLES)
    started.process.send_signal(signal.SIGTERM)
    assert started.wait(END) == 130
    assert started.gone(GONE)
    assert json.loads((run / "state.json").read_text()) == steps_done(run)


def test_told_to_stop_before_its_first_step_a_run_has_not_failed(
    tiny: Path, lens: Path, tmp_path: Path
) -> None:
    words = sft(tiny, lens / "traces.parquet", tmp_path / "run", *SHORT)
    started = Launched([*words, "--gpus", "2"], tmp_path / "said")
    assert eventually(lambda: len(started.ranks()) == 2, START), started.err
    started.process.send_signal(signal.SIGTERM)
    assert started.wait(START) == 130, started.err
    assert started.gone(GONE)


def test_wrong_input_is_told_once_and_as_such(tiny: Path, lens: Path, tmp_path: Path) -> None:
    words = rl(tiny, tmp_path / "gone.parquet", tmp_path / "run")
    started = Launched([*words, "--gpus", "2"], tmp_path / "said")
    assert started.wait(START) == 2
    assert started.err.count("error: 1 problem(s) in the data") == 1
    assert "Traceback" not in started.err
    assert started.gone(GONE)


def test_a_step_that_does_not_split_is_told_before_anything_is_started(
    tiny: Path, lens: Path, tmp_path: Path
) -> None:
    words = rl(tiny, lens / "train.parquet", tmp_path / "run", *setting(prompts_per_step=3))
    for dry in ([], ["--dry-run"]):
        ended = vtune(*words, "--gpus", "2", *dry)
        assert ended.code == 2
        assert "prompts_per_step 3 does not split over 2 processes" in ended.err
    assert not (tmp_path / "run").exists()


def test_a_folder_with_a_run_is_refused_before_anything_is_started(
    tiny: Path, lens: Path, tmp_path: Path
) -> None:
    words = sft(tiny, lens / "traces.parquet", tmp_path / "run", "--gpus", "2", "--resume")
    ended = vtune(*words)
    assert ended.code == 2
    assert "holds no run to resume" in ended.err
    assert not (tmp_path / "run").exists()


def test_the_way_to_start_must_be_whole(tiny: Path, lens: Path, tmp_path: Path) -> None:
    words = sft(tiny, lens / "traces.parquet", tmp_path / "run")
    for dry in ([], ["--dry-run"]):
        ended = vtune(*words, "--hostfile", tmp_path / "hosts", *dry)
        assert ended.code == 2
        assert "--gpus" in ended.err
    ended = vtune(*words, "--hostfile", tmp_path / "hosts", "--gpus", "2")
    assert ended.code == 2
    assert f"there is no hostfile {tmp_path / 'hosts'}" in ended.err
    assert not (tmp_path / "run/recipe.yaml").exists()


def test_a_second_start_in_a_folder_leaves_the_run_that_goes_on_in_it_alone(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "rank-0.ended").write_text("the first run's")
    with (logs / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RecipeError, match="another process is working in"):
            launch(["sft"], tmp_path, processes=1, hostfile=None)
    assert (logs / "rank-0.ended").read_text() == "the first run's"


def test_a_file_in_place_of_the_folder_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(RecipeError, match="is a file"):
        launch(["sft"], tmp_path / "run", processes=1, hostfile=None)
