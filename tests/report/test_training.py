"""Training output: in a terminal the screen of `vtune watch`, elsewhere plain lines."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.report.test_tables import printed
from vtune.metrics.log import MetricsLog, read_metrics_from
from vtune.report.training import Training
from vtune.report.watch import render_watch
from vtune.runs.view.watch import watched

ROW = {"reward": 0.5, "accuracy": 0.25, "seconds": 10.0, "seconds_rollout": 8.0, "seconds_update": 2.0}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "recipe.yaml").write_text("steps: 4\n")
    kept = {"source": "lens", "sample_id": "lens/1", "rollout": 0, "reward": 1.0}
    (tmp_path / "replies").mkdir()
    (tmp_path / "replies" / "step-000001.jsonl").write_text(
        json.dumps(kept | {"reply": "It is \x1b[2J4. [red]<answer>4</answer>"}) + "\n"
    )
    return tmp_path


def trained(run: Path, console: Console, steps: int = 2) -> None:
    with (
        MetricsLog(run / "metrics.jsonl", first_step=0) as log,
        Training("rl", run, 4, console=console) as progress,
    ):
        for step in range(steps):
            log.write(step, {"all": ROW | {"reward": 0.5 + step}, "lens": {"reward": 0.5 + step}})
            progress.advance({"reward": 0.5 + step})


def test_in_a_terminal_a_run_shows_what_watch_shows(run: Path) -> None:
    out = io.StringIO()
    trained(run, Console(file=out, force_terminal=True, width=120, height=60, color_system=None))
    screen = out.getvalue()
    for wanted in (
        "step 2/4",
        "20 s left",
        "50 %",
        "rollout",
        "lens",
        "█",
        "<answer>4</answer>",
        "step 3 since",
    ):
        assert wanted in screen
    assert "\x1b[2J" not in screen, "what a model wrote steers no terminal"
    watching = printed(render_watch(watched(run)))
    phases = [line.strip() for line in watching.splitlines() if line.startswith(("rollout", "update"))]
    assert len(phases) == 2
    assert all(line in screen for line in phases), "one rendering for both"


def test_outside_a_terminal_a_run_prints_lines(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    trained(run, Console(file=out), steps=4)
    assert out.getvalue() == ""
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "rl: 1/4  reward 0.5"
    assert lines[-1] == "rl: 4/4  reward 3.5"


def test_a_resumed_run_shows_its_curves_from_the_beginning(run: Path) -> None:
    trained(run, Console(file=io.StringIO()))
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, height=60, color_system=None)
    with Training("rl", run, 4, done=2, console=console):
        pass
    assert "step 2/4" in out.getvalue()
    assert "1.5" in out.getvalue()


@pytest.mark.parametrize(("done", "show", "said"), [(4, True, True), (4, False, False), (3, True, False)])
def test_a_resumed_run_without_steps_left_says_so(
    done: int, show: bool, said: bool, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Training("sft", run, 4, done=done, show=show):
        pass
    assert capsys.readouterr().err == (
        f"{run}: all 4 steps are done, nothing is left to train\n" if said else ""
    )


def test_a_modified_metrics_file_is_reported_without_ending_the_run(run: Path) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, height=60, color_system=None)
    with Training("rl", run, 4, console=console) as progress:
        (run / "metrics.jsonl").write_text("{}\n")
        progress.advance({})
    assert "a metrics line needs an integer `step`" in out.getvalue()


def test_metrics_are_read_from_the_last_position(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    with MetricsLog(file, first_step=0) as log:
        log.write(0, {"all": {"reward": 0.0}})
        first, offset = read_metrics_from(file, 0)
        log.write(1, {"all": {"reward": 1.0}})
        with file.open("a") as cut:
            cut.write('{"step": 2, "sou')
        more, end = read_metrics_from(file, offset)
    assert [line.step for line in (*first, *more)] == [0, 1]
    assert read_metrics_from(file, end) == ([], end)
