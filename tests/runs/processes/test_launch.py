import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.conftest import HANGS, ROOT
from tests.runs.commands import environment, numbers, python, rl, same_weights, setting, sft, vtune
from tests.runs.launched import BREAKS, IDLES, Launched, eventually, steps_done
from tests.update.pair import all_end_well
from vtune.errors import BrokenPart, MissingExtra, RecipeError, RunFailed
from vtune.runs.processes.launch import CPU_PROCESSES, LAUNCHER, _check_devices, _report, _watched, launch
from vtune.runs.processes.machines import ENVIRONMENT
from vtune.runs.processes.watcher import SAVE, Ended, ended, give_order
from vtune.update.checkpoint import complete
from vtune.uses import TRIES

pytestmark = pytest.mark.train

START, END, GONE = HANGS, 300.0, 30.0
"""Seconds: for two processes to come up on a busy machine; for a command to end once it was told to or a rank
has failed; for all its processes to disappear once it has ended."""

SHORT = setting(epochs=2.0, batch_size=4, checkpoints__every=6, update__warmup_steps=2, update__zero_stage=2)
UPDATES = 16
"""Updates of `SHORT`; each of the ends below comes a few steps after a start."""


@pytest.fixture(autouse=True)
def none_is_left() -> Iterator[None]:
    """End all commands, even if a test fails in the middle."""
    yield
    for started in Launched.every:
        started.end()
    Launched.every.clear()


def begun(words: list[str], said: Path, run: Path, *, processes: int = 2, site: str = BREAKS) -> Launched:
    """A command with several processes on this machine that has done some steps."""
    return going(lambda: Launched([*words, "--gpus", str(processes)], said, site=site), run)


def going(start: Callable[[], Launched], run: Path, *, steps: int = 2) -> Launched:
    """A command that was started and has done some steps."""
    before = opened(run)
    started = start()

    def over() -> bool:
        return started.process.poll() is not None

    # A resumed run first removes what was logged after its checkpoint.
    assert eventually(lambda: over() or opened(run) != before, START), started.err
    first = steps_done(run)
    assert eventually(lambda: over() or steps_done(run) >= first + steps, START), started.err
    assert not over(), started.err
    return started


def opened(run: Path) -> int:
    """A number that changes whenever a run starts its log."""
    log = run / "metrics.jsonl"
    return log.stat().st_ino if log.exists() else 0


PDSH = """#!/bin/bash
# `pdsh -S -f N -w a,b COMMAND`: COMMAND on every host; all of them are this machine.
shift 3; shift; hosts=$(echo "$1" | tr , ' '); shift
case "$*" in *pkill*) exit 0;; esac
number=0
for host in $hosts; do
  command=$(echo "$*" | sed "s/%n/$number/g")
  {
    VTUNE_TEST_HOST=$host sh -c "$command" || {
      ended=$?
      echo "pdsh@here: $host: ssh exited with exit code $ended" >&2
      exit $ended
    }
  } & pids="$pids $!"
  number=$((number + 1))
done
status=0
for pid in $pids; do wait $pid || status=$?; done
exit $status
"""

SSH = """#!/bin/sh
while [ "$1" = -o ]; do shift 2; done
host=$1; shift
case "$*" in "hostname -I") echo "$host";; *) exec "$@";; esac
"""

FIRST, SECOND = "127.0.0.2", "127.0.0.3"
"""Two hosts: the ranks meet at the first one's address, where nothing listens that expects 127.0.0.1."""


@dataclass(frozen=True)
class Hosts:
    """Two hosts that are both this machine, through stand-ins for pdsh and ssh."""

    programs: Path
    file: Path

    def start(self, words: Sequence[str | Path], said: Path, site: str = BREAKS) -> Launched:
        """A command with two processes on each of them."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{self.programs}:{os.environ['PATH']}")
            return Launched([*words, "--gpus", "2", "--hostfile", self.file], said, site=site)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Hosts:
    folder = tmp_path_factory.mktemp("hosts")
    for name, text in (("pdsh", PDSH), ("ssh", SSH)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "hosts").write_text(f"{FIRST} slots=2\n{SECOND} slots=2\n")
    return Hosts(folder, folder / "hosts")


def said_by(started: Launched, run: Path) -> str:
    """The output of a command and its launcher."""
    log = run / "logs/launcher.log"
    return started.err + (log.read_text() if log.exists() else "")


def test_a_run_of_four_processes_on_two_hosts_survives_its_deaths(
    tiny: Path, lens: Path, hosts: Hosts, tmp_path: Path
) -> None:
    """Killed on the second host, then stopped as by a scheduler, it still ends like an undisturbed run.

    In between it runs on one machine: where its processes are is not part of the run.
    """
    runs = tmp_path / "whole", tmp_path / "run"
    whole, words = (sft(tiny, lens / "traces.parquet", run, *SHORT) for run in runs)
    undisturbed(whole, tmp_path)

    run = runs[1]
    killed_on_the_second_host(hosts, words, run, tmp_path / "killed")
    kept = [folder.name for folder in complete(run / "checkpoints")]
    assert kept in (["step-000006"], ["step-000006", "step-000012"])

    again = [*words, "--resume"]
    told_to_stop(begun(again, tmp_path / "told", run, processes=4), run)

    reaches_both_hosts(hosts, again, run, tmp_path / "last")
    assert numbers(run) == numbers(runs[0])
    assert same_weights(*(one / "checkpoints/newest" for one in runs))


IMPORTS = """
import vtune.cli.main, vtune.runs.train.sft
import torch._dynamo, torch._inductor.config
from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl
from vtune.models.import_stubs import skip_muon, without_mlflow
skip_muon()
with without_mlflow():
    import deepspeed
"""
"""What training ranks would otherwise import along the way."""


def undisturbed(words: list[str], folder: Path) -> None:
    """A complete run in four processes without a launcher: forks of one that has imported everything."""
    code = f"import sys, vtune.cli.main\nsys.argv[1:] = {words!r}\nvtune.cli.main.start()\n"
    all_end_well(code, folder, processes=4, imports=IMPORTS)


def reaches_both_hosts(hosts: Hosts, words: list[str], run: Path, said: Path) -> None:
    """Run to the end: all processes end well, and none is left."""
    started = hosts.start([*words, "--json"], said)
    assert started.wait(START) == 0, said_by(started, run)
    at = time.time()
    assert started.gone(GONE)
    assert json.loads((said / "out").read_text())["steps"] == UPDATES
    assert json.loads((run / "environment.json").read_text())["processes"] == 4
    assert sorted(ended(run / "logs")) == [Ended(rank, 0, pytest.approx(at, abs=120)) for rank in range(4)]


def killed_on_the_second_host(hosts: Hosts, words: list[str], run: Path, said: Path) -> None:
    """Start a run and kill the last rank after a checkpoint: the run reports it, and no process is left."""
    started = going(lambda: hosts.start(words, said), run, steps=7)
    ranks = started.ranks()
    where = {rank: host_of(pid) for rank, pid in ranks.items()}
    assert where == {0: FIRST, 1: FIRST, 2: SECOND, 3: SECOND}
    os.kill(ranks[3], signal.SIGKILL)
    # The others wait for it in a collective operation, where no Python runs, or fail without their partner.
    assert started.wait(END) == 1
    assert "error: rank 3 killed by signal 9" in started.err
    assert f"{run / 'logs'}/rank-3.log" in started.err
    assert started.gone(GONE)
    assert {one.rank: one.code for one in ended(run / "logs")}[3] == -signal.SIGKILL


def told_to_stop(started: Launched, run: Path) -> None:
    """Send SIGTERM to all processes of a run: it saves what it has done."""
    for pid in [started.process.pid, *started.kinds()]:  # the command occurs twice
        os.kill(pid, signal.SIGTERM)
    assert started.wait(END) == 130, started.err
    assert started.gone(GONE)
    step = steps_done(run)
    assert step < UPDATES
    assert (run / f"checkpoints/step-{step:06d}/manifest.json").is_file()


def host_of(pid: int) -> str:
    """The host on which a process was started."""
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    (found,) = [one for one in variables if one.startswith(b"VTUNE_TEST_HOST=")]
    return found.decode().partition("=")[2]


def test_the_only_machine_of_a_hostfile_is_where_the_run_is(hosts: Hosts, tmp_path: Path) -> None:
    """Not on the command's machine."""
    (tmp_path / "hosts").write_text(f"{SECOND} slots=2\n")
    run = tmp_path / "run"
    words = ["sft", "--recipe", "codev-tiny", "--set", "data=[]", "--set", "steps=400", "--out", str(run)]
    there = replace(hosts, file=tmp_path / "hosts")
    started = going(lambda: there.start(words, tmp_path / "said", site=IDLES), run)
    assert {rank: host_of(pid) for rank, pid in started.ranks().items()} == {0: SECOND, 1: SECOND}
    started.process.send_signal(signal.SIGINT)
    assert started.wait(END) == 130, said_by(started, run)
    assert started.gone(GONE)


@pytest.mark.parametrize("killed", ["vtune", "pdsh"])
def test_a_command_that_is_killed_leaves_no_rank_on_any_machine(
    hosts: Hosts, tmp_path: Path, killed: str
) -> None:
    run = tmp_path / "run"
    words = ["sft", "--recipe", "codev-tiny", "--set", "steps=4000", "--out", str(run)]
    started = going(lambda: hosts.start(words, tmp_path / "said", site=IDLES), run)
    shells = f"/bin/bash {hosts.programs}"
    # Its shells for the hosts come after it.
    pdsh = min(pid for pid, text in started.processes().items() if text.startswith(shells))
    os.kill(started.process.pid if killed == "vtune" else pdsh, signal.SIGKILL)
    assert started.gone(GONE)
    assert (run / "logs/order").read_text() == "end"
    assert not (run / "logs" / ENVIRONMENT).exists()


def test_a_lost_machine_is_named_and_the_others_end(hosts: Hosts, tmp_path: Path) -> None:
    """No rank of it can note its end; without vtune there it is the same from the start."""
    run = tmp_path / "run"
    words = ["sft", "--recipe", "codev-tiny", "--set", "data=[]", "--set", "steps=4000", "--out", str(run)]
    (run / "logs").mkdir(parents=True)
    (run / "logs/launcher.log").write_text("something of an earlier start\n")
    started = going(lambda: hosts.start(words, tmp_path / "said", site=IDLES), run)
    # Until all ranks exist, their launcher may appear twice: as itself, and as what it has just forked.
    assert eventually(lambda: len(started.ranks()) == 4, START)
    start = f"{sys.executable} -m vtune.runs.processes.local_ranks 1 "
    (second,) = [pid for pid, text in started.processes().items() if text.startswith(start)]
    os.kill(second, signal.SIGKILL)
    assert started.wait(END) == 1
    assert f"error: the ranks of {SECOND} are gone: ssh exited with exit code 137" in started.err
    assert "something of an earlier start" not in started.err
    assert started.gone(GONE)


def test_a_scheduler_may_tell_every_process_of_both_machines_to_stop(hosts: Hosts, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["sft", "--recipe", "codev-tiny", "--set", "data=[]", "--set", "steps=400", "--out", str(run)]
    started = going(lambda: hosts.start(words, tmp_path / "said", site=IDLES), run)
    # Seen once on a machine under load: a training rank was not found in the process table.
    assert eventually(lambda: sorted(started.ranks()) == [0, 1, 2, 3], GONE)
    for pid in started.kinds():
        os.kill(pid, signal.SIGTERM)
    assert started.wait(END) == 130, said_by(started, run)
    assert started.gone(GONE)
    assert json.loads((run / "state.json").read_text()) == steps_done(run)


@pytest.mark.parametrize("told", ["command", "watcher"])
def test_a_machine_that_saved_before_seeing_the_stop_order_is_not_lost(tmp_path: Path, told: str) -> None:
    """A shared folder may show the order late there, and its ranks stop with those of other machines."""
    (tmp_path / "rank-0.ended").write_text(json.dumps(Ended(0, 130, 0.0)._asdict()))
    if told == "watcher":
        give_order(tmp_path, SAVE)
    ends = "sleep 1; echo 'pdsh@here: second: ssh exited with exit code 130'; exit 130"
    with (tmp_path / LAUNCHER).open("wb") as said:
        launcher = subprocess.Popen(["sh", "-c", ends], stdout=said)
    with pytest.raises(SystemExit) as caught:
        _watched(launcher, tmp_path, ["SIGTERM"] if told == "command" else [])
    assert caught.value.code == 130


def test_a_shared_folder_may_show_the_first_ranks_end_late(tmp_path: Path) -> None:
    """As with NFS if that rank ran on another machine."""
    (tmp_path / LAUNCHER).touch()
    (tmp_path / "result").write_text("all is well")
    launcher = subprocess.Popen(["true"])
    launcher.wait()

    def late() -> None:
        time.sleep(1)
        (tmp_path / "rank-0.ended").write_text(json.dumps(Ended(0, 0, 0.0)._asdict()))

    with ThreadPoolExecutor(1) as other:
        other.submit(late)
        assert _watched(launcher, tmp_path, []) == "all is well"
    assert sorted(path.name for path in tmp_path.iterdir()) == [LAUNCHER, "rank-0.ended", "result"]


def test_a_launcher_that_exits_with_0_without_the_first_rank_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtune.runs.processes.launch.UNSEEN", 0.3)
    (tmp_path / LAUNCHER).touch()
    launcher = subprocess.Popen(["true"])
    launcher.wait()
    with pytest.raises(RunFailed, match="the launcher ended with status 0"):
        _watched(launcher, tmp_path, [])


@pytest.mark.parametrize(("parent", "code"), [("os.getppid()", 0), ("os.getppid() + 1", -signal.SIGKILL)])
def test_a_process_ends_if_its_parent_died_before_they_were_linked(parent: str, code: int) -> None:
    """Killed just then, a watcher left a rank that nobody knew of."""
    code_of = (
        f"import os; from vtune.runs.processes.watcher import die_with_parent; die_with_parent({parent})"
    )
    assert python(code_of).returncode == code


def test_watchers_may_write_a_stop_order_concurrently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler tells all of them at once; one must not take another's half-written file."""
    replace, others = Path.replace, iter([os.getpid() + 1])

    def late(self: Path, target: Path) -> Path:
        for other in others:
            with monkeypatch.context() as patch:
                patch.setattr(os, "getpid", lambda other=other: other)
                give_order(tmp_path, SAVE)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", late)
    give_order(tmp_path, SAVE)
    assert [file.name for file in tmp_path.iterdir()] == ["order"]


def test_torchrun_may_start_the_processes(tmp_path: Path) -> None:
    """When told to stop, it lets them save, and they continue under it."""
    run, said = tmp_path / "run", tmp_path / "said"
    said.mkdir()
    (said / "sitecustomize.py").write_text(IDLES)
    elastic = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--shutdown-timeout=300"]
    words = ["sft", "--recipe", "codev-tiny", "--set", "data=[]", "--out", str(run)]

    def started(*more: str) -> "subprocess.Popen[bytes]":
        with (said / "err").open("ab") as err:
            return subprocess.Popen(
                [*elastic, "--no-python", sys.executable, "-m", "vtune.cli.main", *words, *more],
                env=environment(PYTHONPATH=f"{said}:{ROOT}"),
                stdout=subprocess.DEVNULL,
                stderr=err,
            )

    with started("--set", "steps=400") as first:
        assert eventually(lambda: first.poll() is not None or steps_done(run) >= 2, START)
        first.send_signal(signal.SIGTERM)
        assert first.wait(END) == 1  # torchrun's own status, whatever its processes return
    done = steps_done(run)
    assert json.loads((run / "state.json").read_text()) == done < 400
    assert (said / "err").read_text().count("with --resume") == 1
    with started("--set", f"steps={done + 2}", "--resume") as again:
        assert again.wait(END) == 0
    assert steps_done(run) == done + 2


def test_every_exit_is_reported_as_what_it_is_and_leaves_no_process(tmp_path: Path) -> None:
    """Failure, interrupt, lost parent and orders to stop, in ranks that train nothing."""
    run = tmp_path / "run"
    words = ["sft", "--recipe", "codev-tiny", "--set", "data=[]", "--set", "steps=400", "--out", str(run)]
    again = [*words, "--resume"]

    started = begun(words, tmp_path / "broken", run, site=IDLES)
    os.kill(started.ranks()[1], signal.SIGUSR1)
    assert started.wait(END) == 1
    assert started.gone(GONE)
    said = started.err
    assert 0 < said.index("NotWell: rank one is not well") < said.index("error: rank 1 ended with status 1")
    assert said.count("Traceback") == 1
    assert "rank one is not well" in (run / "logs/rank-1.log").read_text()

    started = begun(again, tmp_path / "unwatched", run, site=IDLES)
    # The watcher is the parent of its rank.
    os.kill(int(Path(f"/proc/{started.ranks()[1]}/stat").read_text().split()[3]), signal.SIGKILL)
    assert started.wait(END) == 1
    assert started.gone(GONE)
    assert "error: rank 1 killed by signal 9" in started.err

    started = begun(again, tmp_path / "interrupted", run, site=IDLES)
    started.process.send_signal(signal.SIGINT)
    assert started.wait(END) == 130
    assert started.gone(GONE)
    assert started.err.count("with --resume") == 1
    assert list((tmp_path / "interrupted").glob("in-order-*"))

    started = begun(again, tmp_path / "abandoned", run, site=IDLES)
    started.process.kill()
    assert started.gone(GONE)

    for number in (signal.SIGTERM, signal.SIGHUP):
        started = begun(again, tmp_path / number.name, run, site=IDLES)
        started.process.send_signal(number)
        assert started.wait(END) == 130
        assert started.gone(GONE)
        assert json.loads((run / "state.json").read_text()) == steps_done(run)


def test_a_run_stopped_before_its_first_step_has_not_failed(tiny: Path, lens: Path, tmp_path: Path) -> None:
    words = sft(tiny, lens / "traces.parquet", tmp_path / "run", *SHORT)
    started = Launched([*words, "--gpus", "2"], tmp_path / "said")
    assert eventually(lambda: len(started.ranks()) == 2, START), started.err
    started.process.send_signal(signal.SIGTERM)
    assert started.wait(START) == 130, started.err
    assert started.gone(GONE)


def test_wrong_input_is_reported_once_and_as_such(tmp_path: Path) -> None:
    """Whichever rank records its end first."""
    words = ["sft", "--recipe", "codev-tiny", "--set", "data=[]", "--set", "steps=-1"]
    for number in range(3):
        run = str(tmp_path / f"run{number}")
        started = Launched([*words, "--out", run, "--gpus", "2"], tmp_path / f"said{number}", site=IDLES)
        assert started.wait(START) == 2
        # The first rank may be ended before it has printed its output folder.
        assert started.err.removeprefix(f"output folder: {run}\n") == "error: steps below zero\n"
        assert started.gone(GONE)


@pytest.mark.parametrize(("cores", "most"), [(2, CPU_PROCESSES), (64, 64)])
def test_more_processes_than_a_machine_without_a_gpu_can_run_are_refused(
    cores: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be started one after another until nothing else runs."""
    monkeypatch.setattr("vtune.runs.processes.launch.gpus_here", lambda: 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    _check_devices(most, None)
    with pytest.raises(RecipeError, match=f"this machine has no GPU, and only {cores} core"):
        _check_devices(most + 1, None)


def test_a_rank_that_is_exiting_is_not_killed_when_another_fails(tmp_path: Path) -> None:
    """Python would say of its own teardown that it was interrupted."""
    first, other = (tmp_path / "run/logs" / name for name in ("rank-0.log", "rank-1.ended"))
    waits = (
        "import os, threading, time\n"
        "if os.environ.get('RANK') == '0':\n"
        "    def late():\n"
        "        threading.main_thread().join()\n"
        "        given = time.monotonic() + 60\n"
        f"        while not os.path.exists({str(other)!r}) and time.monotonic() < given:\n"
        "            time.sleep(0.05)\n"
        "        time.sleep(2)\n"
        "    threading.Thread(target=late).start()\n"
        "elif os.environ.get('RANK') == '1':\n"
        "    given = time.monotonic() + 60\n"  # on a busy machine it may be there long before rank 0
        f"    while not os.path.exists({str(first)!r}) or 'below zero' not in open({str(first)!r}).read():\n"
        "        if time.monotonic() > given:\n"
        "            break\n"
        "        time.sleep(0.05)\n"
    )
    words = ["sft", "--recipe", "codev-tiny", "--set", "data=[]", "--set", "steps=-1"]
    started = Launched(
        [*words, "--out", str(tmp_path / "run"), "--gpus", "2"], tmp_path / "said", site=IDLES + waits
    )
    assert started.wait(START) == 2
    assert started.err == f"output folder: {tmp_path / 'run'}\nerror: steps below zero\n"
    assert started.gone(GONE)


def test_an_error_already_printed_by_rank_0_is_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank, error in enumerate(("error: one part is broken\n", "error: another is\n")):
        (tmp_path / f"rank-{rank}.log").write_text(error)
    for rank, said in enumerate(("", "error: another is\n")):
        with pytest.raises(RunFailed, match=f"rank {rank} ended with status 1"):
            _report([Ended(rank, 1, 0.0)], tmp_path, "", machine=False)
        assert capsys.readouterr().err == said


@pytest.mark.parametrize("saved", [False, True])
def test_a_run_ended_by_a_custom_part_gets_no_advice_to_resume(tmp_path: Path, saved: bool) -> None:
    newest, logs = tmp_path / "checkpoints/newest", tmp_path / "logs"
    logs.mkdir()
    if saved:
        newest.mkdir(parents=True)
    part = BrokenPart(
        "verifier `anls` of anls.py is broken: KeyError: 'x'",
        where="anls.py:17",
        fix=f"correct the line; {TRIES}",
    )
    for error, word in ((part, "start a new run with another --out"), (RunFailed("x"), "--resume continues")):
        (logs / "rank-1.log").write_text(f"error: {error}\n")
        with pytest.raises(RunFailed, match="rank 1 ended with status 1") as caught:
            _report([Ended(1, 1, 0.0)], logs, "", machine=False)
        assert word in caught.value.fix
        assert (f"--set model={newest}" in caught.value.fix) is (saved and error is part)


def test_missing_data_are_reported_before_anything_starts(tiny: Path, tmp_path: Path) -> None:
    words = rl(tiny, tmp_path / "gone.parquet", tmp_path / "run")
    ended = vtune(*words, "--gpus", "2")
    assert ended.code == 2
    assert f"cannot read {tmp_path / 'gone.parquet'}: No such file" in ended.err
    assert not (tmp_path / "run").exists()


def test_a_step_that_does_not_split_is_reported_before_anything_starts(
    tiny: Path, lens: Path, tmp_path: Path
) -> None:
    words = rl(tiny, lens / "train.parquet", tmp_path / "run", *setting(prompts_per_step=3))
    for dry in ([], ["--dry-run"]):
        ended = vtune(*words, "--gpus", "2", *dry)
        assert ended.code == 2
        assert "prompts_per_step 3 does not split over 2 processes" in ended.err
    assert not (tmp_path / "run").exists()


def test_a_folder_with_a_run_is_refused_before_anything_starts(
    tiny: Path, lens: Path, tmp_path: Path
) -> None:
    words = sft(tiny, lens / "traces.parquet", tmp_path / "run", "--gpus", "2", "--resume")
    ended = vtune(*words)
    assert ended.code == 2
    assert "holds no run to resume" in ended.err
    assert not (tmp_path / "run").exists()


def test_launch_options_must_be_complete(tiny: Path, lens: Path, tmp_path: Path) -> None:
    words = sft(tiny, lens / "traces.parquet", tmp_path / "run")
    for dry in ([], ["--dry-run"]):
        ended = vtune(*words, "--hostfile", tmp_path / "hosts", *dry)
        assert ended.code == 2
        assert "--gpus" in ended.err
    ended = vtune(*words, "--hostfile", tmp_path / "hosts", "--gpus", "2")
    assert ended.code == 2
    assert f"there is no hostfile {tmp_path / 'hosts'}" in ended.err
    assert not (tmp_path / "run/recipe.yaml").exists()


@pytest.mark.parametrize(("there", "missing"), [("pdsh", "ssh"), ("ssh", "pdsh")])
def test_a_missing_remote_launcher_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: Hosts, there: str, missing: str
) -> None:
    (tmp_path / there).symlink_to(hosts.programs / there)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtra, match=f"and {missing} is not installed here"):
        launch(["sft"], tmp_path / "run", processes=1, hostfile=hosts.file)


def test_a_second_start_in_a_folder_does_not_disturb_the_running_one(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "rank-0.ended").write_text("the first run's")
    with (logs / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RecipeError, match="another process is working in"):
            launch(["sft"], tmp_path, processes=1, hostfile=None)
    assert (logs / "rank-0.ended").read_text() == "the first run's"


def test_variables_of_a_killed_run_are_not_used_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank assumes that those in the folder come from the command that started it."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / ENVIRONMENT).write_text('{"WANDB_API_KEY": "old"}')
    monkeypatch.setattr("vtune.runs.processes.launch._launch", lambda _, logs: str(list(logs.glob("*"))))
    assert ENVIRONMENT not in launch(["sft"], tmp_path, processes=1, hostfile=None)


def test_a_file_in_place_of_the_folder_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(RecipeError, match="is a file"):
        launch(["sft"], tmp_path / "run", processes=1, hostfile=None)
