import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.conftest import HANGS
from tests.report.test_tables import printed
from tests.runs.commands import vtune
from tests.view.runs import LOOKED, make_run
from vtune.errors import DataError
from vtune.report.watch import render_watch, watch_line
from vtune.runs.report.document import run_report
from vtune.runs.start import is_running, locked
from vtune.runs.view import watch
from vtune.runs.view.watch import follow, watched


def line(step: int, **numbers: float) -> str:
    return (
        json.dumps({"step": step, "source": "all", "seconds": 10.0, "seconds_rollout": 8.0, **numbers}) + "\n"
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "recipe.yaml").write_text("steps: 20\n")
    (tmp_path / "metrics.jsonl").write_text("".join(line(step, reward=step / 10) for step in range(5)))
    return tmp_path


def test_progress_and_remaining_time_are_shown(run: Path) -> None:
    state = watched(run)
    assert (state["done"], state["total"], state["seconds_left"], state["running"]) == (5, 20, 150.0, False)
    assert state["phases"] == {"rollout": 8.0}
    assert state["sources"]["all"]["reward"][-1] == 0.4
    with locked(run):
        assert watch_line(watched(run)).endswith("step 5/20  10 s a step  2 min 30 s left  reward 0.4")
    assert "25 %" in printed(render_watch(state))


def test_time_left_includes_evaluations_once_two_show_how_often(run: Path) -> None:
    def evaluated(step: int) -> str:
        return json.dumps({"step": step, "source": "eval/lens/all", "seconds_eval": 100.0}) + "\n"

    numbers = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(evaluated(0) + numbers)
    assert watched(run)["seconds_left"] == 150.0
    (run / "metrics.jsonl").write_text(evaluated(0) + numbers + evaluated(5))
    state = watched(run)
    assert (state["seconds_per_step"], state["seconds_left"]) == (10.0, 15 * (10 + 20))


def test_time_waited_is_labelled_as_that(tmp_path: Path) -> None:
    """Calls in the sandbox take much longer, while other conversations are generated."""
    (tmp_path / "recipe.yaml").write_text("steps: 20\n")
    (tmp_path / "metrics.jsonl").write_text(
        line(0, seconds_reward=0.5, seconds_sandbox=0.25, seconds_update=1)
    )
    labels = [
        " ".join(one.split("█")[0].split()) for one in printed(render_watch(watched(tmp_path))).splitlines()
    ]
    assert {"rollout", "update", "reward (waited)", "sandbox (waited)"} <= set(labels)


def test_a_run_by_epochs_has_an_end_too(run: Path) -> None:
    """For a folder older than the count, its progress is unknown."""
    (run / "recipe.yaml").write_text("epochs: 3.0\nsteps: null\n")
    for environment in (None, {"processes": 1}):
        if environment is not None:
            (run / "environment.json").write_text(json.dumps(environment))
        assert (watched(run)["total"], watched(run)["seconds_left"]) == (None, None)
    (run / "environment.json").write_text(json.dumps({"processes": 1, "steps": 20}))
    state = watched(run)
    assert (state["done"], state["total"], state["seconds_left"]) == (5, 20, 150.0)
    assert "25 %" in printed(render_watch(state))
    (run / "metrics.jsonl").unlink()
    with locked(run):
        assert watch_line(watched(run)) == f"{run.name}: step 0/20"


def test_a_run_is_running_while_a_process_holds_its_folder(run: Path) -> None:
    assert not is_running(run)
    with locked(run):
        assert is_running(run)
    assert not is_running(run)


def test_the_loss_of_supervised_training_is_shown(run: Path) -> None:
    (run / "metrics.jsonl").write_text("".join(line(step, loss=6.5 - step) for step in range(5)))
    assert watch_line(watched(run)).endswith("10 s a step  loss 2.5")
    assert "loss" in vtune("report", str(run)).out


def test_an_evaluation_during_training_does_not_count_as_a_step(run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 5, "source": "eval/lens", "score": 0.5}) + "\n")
    assert watched(run)["done"] == 5
    with (run / "metrics.jsonl").open("a") as file:
        file.write(line(5))
    assert watched(run)["done"] == 6


def test_a_run_that_has_just_started_has_no_step(run: Path) -> None:
    (run / "metrics.jsonl").unlink()
    with locked(run):
        state = watched(run)
        assert (state["done"], state["total"], state["running"]) == (0, 20, True)
        assert watch_line(state) == f"{run.name}: step 0/20"
        assert "0 %" in printed(render_watch(state))
        with pytest.raises(DataError, match=r"no numbers yet[^$]*wait for its first step"):
            run_report([run])


def test_a_run_that_ended_before_its_first_step_is_not_running(run: Path) -> None:
    (run / "metrics.jsonl").unlink()
    for command in ("watch", "report"):  # the recipe may be a file of the user's
        assert "is not the folder of a run: it has no metrics.jsonl" in vtune(command, str(run)).err
    (run / "environment.json").write_text("{}")
    assert vtune("watch", str(run)).out == f"{run.name}: step 0/20, not running\n"
    ended = vtune("report", str(run))
    assert ended.code == 2
    assert "no numbers yet: its first step has not ended" in ended.err
    assert "--resume" in ended.err


def test_new_steps_are_followed_until_the_end(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "EVERY", 0.01)
    seen = []
    held = locked(run)
    held.__enter__()
    for state in follow(run):
        seen.append((state["done"], state["running"]))
        if state["done"] == 5:
            with (run / "metrics.jsonl").open("a") as file:
                file.write(line(5))
        elif state["running"]:
            held.__exit__(None, None, None)
    assert seen == [(5, True), (6, True), (6, False)]


def test_without_a_terminal_a_step_is_a_line(run: Path) -> None:
    assert vtune("watch", str(run)).out.splitlines() == [
        f"{run.name}: step 5/20, not running  10 s a step  reward 0.4"
    ]
    assert json.loads(vtune("watch", str(run), "--json").out)["done"] == 5


def test_interrupting_watch_prints_nothing(run: Path) -> None:
    # What was started in the background ignores Ctrl-C, and so would what it starts.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code += "; from vtune.cli.main import main; main()"
    words = [sys.executable, "-c", code, "watch", str(run)]
    with locked(run), subprocess.Popen(words, stdout=PIPE, stderr=PIPE, text=True) as looking:
        assert looking.stdout is not None
        assert looking.stdout.readline().startswith(f"{run.name}: step 5/20")
        looking.send_signal(signal.SIGINT)
        assert looking.communicate(timeout=HANGS) == ("", "")
    assert looking.returncode == 0


def test_a_folder_of_runs_names_the_newest(tmp_path: Path) -> None:
    for age, name in enumerate(("seed-0", "seed-1")):
        make_run(tmp_path / "base" / name, {0: [LOOKED]})
        os.utime(tmp_path / "base" / name / "recipe.yaml", (1e9 + age, 1e9 + age))
    with pytest.raises(DataError) as refused:
        watched(tmp_path)
    assert refused.value.fix == f"watch one in it, e.g. {tmp_path / 'base/seed-1'}, the last to start"


def test_an_evaluation_is_followed_to_its_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "EVERY", 0.01)
    folder = tmp_path / "eval-mine"
    (folder / "ended").mkdir(parents=True)
    (folder / "suite.yaml").touch()
    (folder / "started.json").write_text(json.dumps({"total": 8}))

    def draw(count: int) -> None:
        for number in range(count):
            (folder / "ended" / f"{number}.parquet").touch()

    def finish() -> None:
        (folder / "results.json").write_text(json.dumps({"rollouts": 8, "score": {"score": 0.5}}))
        (folder / "started.json").unlink()
        held.__exit__(None, None, None)

    assert vtune("watch", folder).out == "eval-mine: 0/8 rollouts generated  not running, not finished\n"
    draw(2)
    held = locked(folder)
    held.__enter__()
    lines, after = [], iter([lambda: draw(4), lambda: draw(8), finish, lambda: None])
    for state in follow(folder):
        lines.append(watch_line(state))
        next(after)()
    assert lines[0] == "eval-mine: 2/8 rollouts generated"
    assert re.fullmatch(r"eval-mine: 4/8 rollouts generated  \d+ s left", lines[1])
    assert lines[2:] == [
        "eval-mine: 8/8 rollouts generated  scoring",
        "eval-mine: 8/8 rollouts generated  finished: score 0.5",
    ]
    assert "100 %" in printed(render_watch(watched(folder)))
    (folder / "results.json").write_text(json.dumps({"rollouts": 8, "score": [1]}))
    assert watched(folder)["score"] is None
    with pytest.raises(DataError) as refused:
        watched(tmp_path)
    assert str(folder) in str(refused.value.fix)


def test_a_folder_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    for name in ("", "sweep.yaml"):
        if name:
            (tmp_path / name).touch()
        with pytest.raises(DataError, match="is not the folder of a run"):
            watched(tmp_path)


def test_a_missing_folder_or_a_curation_is_reported_as_such(tmp_path: Path) -> None:
    for name in ("recipe.yaml", "curation.json"):
        (tmp_path / name).touch()
    gone = tmp_path / "gone"
    for path, why, remedy in (
        (gone, f"there is no folder {gone}", "`vtune sft`, `rl` or `eval` writes"),
        (tmp_path, "is the folder of a curation, not of a run", "page.html"),
    ):
        ended = vtune("watch", path)
        assert ended.code == 2
        assert why in ended.err
        assert remedy in ended.err
