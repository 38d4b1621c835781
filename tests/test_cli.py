import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from PIL import Image
from pydantic import Field
from typer.testing import CliRunner

from tests.schema.records import SAMPLE
from vtune.cli.ending import RESUMABLE
from vtune.cli.main import app, main
from vtune.cli.options import Start
from vtune.cli.output import show, stdout_for_the_result
from vtune.cli.training import Verb, train
from vtune.errors import DataError, MissingExtra, RecipeError, RunFailed, ServiceError, VtuneError
from vtune.report.values import render_values
from vtune.schema.message import Picture
from vtune.schema.parquet import read_samples, write_samples
from vtune.schema.sample import Sample
from vtune.sections import Strict

HEAVY = {
    "PIL",
    "cv2",
    "datasets",
    "deepspeed",
    "numpy",
    "openai",
    "pyarrow",
    "pydantic",
    "rich",
    "scipy",
    "torch",
    "transformers",
    "vllm",
    "yaml",
}


def verbs(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words after `vtune` for every command and group."""
    command = command or typer.main.get_command(app)
    yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from verbs(child, (*path, name))


VERBS = list(verbs())


def picture(width: int, height: int) -> Picture:
    content = BytesIO()
    Image.new("RGB", (width, height)).save(content, "PNG")
    return Picture(data=content.getvalue())


def sample(identity: str, **changes: Any) -> Sample:
    from dataclasses import replace

    return replace(SAMPLE, id=identity, images=(picture(60, 50),), **changes)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "samples.parquet"
    write_samples(path, [sample("signs/0"), sample("signs/1")])
    return path


def vtune(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command in this process. `tests.runs.commands` has the same, but imports torch."""
    out, err = StringIO(), StringIO()
    code: Any = 0
    with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "argv", ["vtune", *words]):
        try:
            main()
        except SystemExit as status:
            code = status.code
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def vtune_alone(*words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a separate process."""
    command = [sys.executable, "-m", "vtune.cli.main", *words]
    return subprocess.run(command, capture_output=True, env=os.environ | environment, check=False)


def test_help_loads_nothing_heavy() -> None:
    code = "import sys; import vtune.cli.main; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY & set(loaded.stdout.split()) == set()


READS_RECIPES = """
import sys

from vtune.cli.main import app
from vtune.config import find
from vtune.runs.processes import launch, machines
from vtune.runs.sweep.recipe import load_sweep

load_sweep(find("credit-tiny", "recipes.sweep"), find("credit-tiny", "recipes.rl"), [])
machines.DRIVERS = ()
launch._launch = lambda command, logs: ""
_, folder, data = sys.argv
for verb in ("sft", "rl"):
    words = [verb, "--recipe", "codev-tiny", "--set", f"data=[{data}]", "--out", f"{folder}/{verb}"]
    sys.argv = ["vtune", *words, "--gpus", "2"]
    app(standalone_mode=False)
app(["recipes", "check", "rl/codev-tiny"], standalone_mode=False)
print(*sys.modules)
"""


@pytest.mark.slow
def test_commands_that_only_read_recipes_do_not_import_torch(tmp_path: Path) -> None:
    """Sweeps, chains, and commands that only start processes and wait, on a machine without a GPU."""
    data = tmp_path / "any.parquet"
    pq.write_table(pa.table({"id": ["a"]}), data)
    words = [sys.executable, "-c", READS_RECIPES, str(tmp_path), str(data)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "no breaks" in done.stdout
    loaded = set(done.stdout.splitlines()[-1].split())
    assert {"vtune.runs.train.rl_recipe", "vtune.runs.train.sft_recipe"} <= loaded
    assert {"torch", "transformers", "deepspeed"} & loaded == set()


def test_the_verbs_are_found() -> None:
    assert len(VERBS) > 15
    assert {("rl",), ("data", "make", "lens"), ("judge-faithfulness",)} <= set(VERBS)


@pytest.mark.parametrize("words", VERBS, ids=lambda words: " ".join(words) or "vtune")
def test_help_reads_as_reviewed(
    words: tuple[str, ...], golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(app, [*words, "--help"])
    assert result.exit_code == 0
    golden(f"help/{'-'.join(('vtune', *words))}.txt", result.output)


def test_the_version_is_that_of_the_package() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.output) == (0, f"vtune {importlib.metadata.version('vtune')}\n")


def test_both_names_of_the_audit_are_one_verb() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert commands["faithfulness"].callback is not None
    first, second = (vtune(name, "--help").stdout for name in ("faithfulness", "judge-faithfulness"))
    assert first == second.replace("judge-faithfulness", "faithfulness")


def test_a_known_problem_prints_text_on_stderr_and_exits_with_2(tmp_path: Path) -> None:
    result = vtune_alone("data", "inspect", str(tmp_path / "none.parquet"))
    said = result.stderr.decode()
    assert (result.returncode, result.stdout) == (2, b"")
    assert said.startswith("error: cannot read")
    assert "  fix  " in said
    assert "Traceback" not in said


def test_an_unknown_option_exits_with_2() -> None:
    assert vtune("report", "--zzz").returncode == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rl", "codev"), "did you mean `--recipe codev`?"),
        (("sft", "--out", "x", "my file.yaml"), "did you mean `--recipe 'my file.yaml'`?"),
        (("eval", "vstar", "--model", "m"), "did you mean `--suite vstar`?"),
        (("rl", "--recipe", "codev", "--set", "a=b", "c=d"), "did you mean `--set c=d`?"),
        (("eval", "--suite", "vstar", "m"), "unexpected extra argument"),
        (("rl", "a\x1b[31mb"), "unexpected extra argument"),
    ],
)
def test_a_stray_word_gets_the_option_that_was_meant(words: tuple[str, ...], said: str) -> None:
    ended = vtune(*words)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert vtune(words[0], "x", "--help").returncode == 0


def raising(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `vtune report x` raise the error."""

    def run_report(paths: object, *, replies: bool) -> None:
        raise error

    monkeypatch.setattr("vtune.runs.report.document.run_report", run_report)
    monkeypatch.setattr(sys, "argv", ["vtune", "report", "x"])


@pytest.mark.parametrize(
    ("kind", "code"), [(DataError, 2), (RecipeError, 2), (MissingExtra, 2), (RunFailed, 1), (ServiceError, 1)]
)
def test_the_exit_code_tells_user_errors_from_failures(
    kind: type[VtuneError], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(kind("it broke", fix="fix it"), monkeypatch)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == code
    assert capsys.readouterr().err == "error: it broke\n  fix  fix it\n"


def test_an_interrupt_exits_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(KeyboardInterrupt(), monkeypatch)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize(
    ("words", "rank", "said"),
    [
        ("rl --recipe a.yaml", None, "interrupted before anything was started: run the command again\n"),
        ("sft --out empty", None, "interrupted before anything was started: run the command again\n"),
        ("rl --out saved", None, "interrupted; continue with --resume\n"),
        ("rl --out sweep", None, "interrupted; continue with --resume\n"),
        (
            "rl --out begun",
            None,
            "interrupted; no checkpoint yet: the same command with --resume starts over\n",
        ),
        (
            "sft --out stepped",
            None,
            "interrupted; no checkpoint yet: 2 steps are lost, and the same command with --resume starts "
            "over\n",
        ),
        ("eval --suite a --out begun", "0", "interrupted; continue with --resume\n"),
        ("sft --recipe a.yaml", "1", ""),
        ("demo --compare", None, "interrupted; run the same command again to continue\n"),
        ("data index a --encoder=b", None, "interrupted; run the same command again to continue\n"),
        ("data index a", None, "interrupted\n"),
        ("", None, "interrupted\n"),
    ],
)
def test_only_rank_0_says_how_to_continue_an_interrupted_command(
    words: str,
    rank: str | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Torchrun may have started several processes."""
    (tmp_path / "empty/logs").mkdir(parents=True)
    (tmp_path / "sweep/codev").mkdir(parents=True)
    (tmp_path / "saved/checkpoints/step-000002").mkdir(parents=True)
    (tmp_path / "saved/checkpoints/step-000002/manifest.json").touch()
    for name in ("begun", "saved", "stepped"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "recipe.yaml").touch()
    lines = [json.dumps({"step": step, "source": "all", "loss": 1.0}) for step in (0, 1)]
    (tmp_path / "stepped/metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    out = words.partition("--out ")[2]
    monkeypatch.setattr(RESUMABLE, "folder", tmp_path / out if out else None)
    monkeypatch.setattr("vtune.cli.main.app", lambda: sys.exit(130))
    monkeypatch.setattr(sys, "argv", ["vtune", *words.split()])
    monkeypatch.delenv("RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 130
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("begun", [False, True])
def test_an_interrupted_sweep_prints_one_message(
    begun: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"

    def interrupted(*_: object, **__: object) -> None:
        out.mkdir()
        if begun:
            (out / "sweep.yaml").touch()
        raise SystemExit(130)

    monkeypatch.setattr("vtune.runs.sweep.runs.run_sweep", interrupted)
    monkeypatch.setattr(RESUMABLE, "folder", None)
    monkeypatch.delenv("RANK", raising=False)
    words = ["rl", "--recipe", "codev-tiny", "--sweep", "codev-ablation-tiny", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["vtune", *words])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().err
    assert ("to continue: vtune rl" in said, "continue with --resume" in said) == (begun, begun)
    assert ("before anything was started" in said) != begun


def test_a_bug_shows_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    raising(ZeroDivisionError(), monkeypatch)
    with pytest.raises(ZeroDivisionError):
        main()


def test_inspect_shows_counts_and_rows(data: Path) -> None:
    result = CliRunner().invoke(app, ["data", "inspect", str(data), "--rows", "1", "--json"])
    document = json.loads(result.stdout)
    assert (document["rows"], document["by_source"], document["with_evidence"]) == (2, {"signs": 2}, 2)
    (example,) = document["examples"]
    assert example["images"] == [{"width": 60, "height": 50}]
    assert example["evidence"][0]["bbox_2d"] == [1.0, 2.0, 30.0, 40.0]
    text = CliRunner().invoke(app, ["data", "inspect", str(data)]).stdout
    assert "2 rows, 2 with tools, 2 with evidence" in text
    assert "60x50" in text


def test_validate_exits_with_0_for_good_rows_and_2_for_bad_ones(data: Path, tmp_path: Path) -> None:
    good = vtune("data", "validate", str(data))
    assert (good.returncode, good.stdout) == (0, "2 of 2 rows are good: signs 2\n")
    bad = tmp_path / "bad.parquet"
    write_samples(bad, [sample("signs/2"), sample("signs/3", ground_truth="Q")])
    result = CliRunner().invoke(app, ["data", "validate", str(data), str(bad), "--json"])
    assert result.exit_code == 2
    document = json.loads(result.stdout)
    assert [(p["file"], p["row"]) for p in document["problems"]] == [(str(bad), 1)]
    assert document["rows"] == 4


def test_the_help_of_import_names_every_format() -> None:
    from vtune.data.formats.table import FORMATS

    text = " ".join(CliRunner().invoke(app, ["data", "import", "--help"]).stdout.split())
    listed = text.split("FORMAT <str> ")[1].split(". [required]")[0]
    assert listed.replace(" or ", ", ").split(", ") == list(FORMATS)


def test_samples_survive_an_export_to_verl_and_back(data: Path, tmp_path: Path) -> None:
    there, back = tmp_path / "verl.parquet", tmp_path / "back.parquet"
    words = ["data", "export", "verl", str(data), "--out", str(there), "--json"]
    assert json.loads(CliRunner().invoke(app, words).stdout)["rows"] == 2
    result = CliRunner().invoke(app, ["data", "import", "verl", str(there), "--out", str(back), "--json"])
    document = json.loads(result.stdout)
    assert (document["kept"], document["problems"]) == (2, [])
    assert list(read_samples(back)) == list(read_samples(data))


def test_a_skipped_row_prints_a_line_and_strict_exits_with_2(tmp_path: Path) -> None:
    rows = [
        {"problem": "What is it?", "answer": "a cup"},
        {"problem": "What is it?"},
    ]
    file = tmp_path / "qa.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    words = ["data", "import", "easyr1", str(file), "--out", str(tmp_path / "qa.parquet")]
    lines = CliRunner().invoke(app, words).stdout.splitlines()
    assert lines[0].startswith(f"left out: {file}, row 1: the row has none of answer")
    assert lines[1].endswith("1 samples of 2 rows: qa 1")
    strict = vtune(*words[:-1], str(tmp_path / "none.parquet"), "--strict")
    assert strict.returncode == 2
    assert f"at   {file}, row 1" in strict.stderr
    assert not (tmp_path / "none.parquet").exists()


def test_make_coco_writes_samples(coco_mini: Path, tmp_path: Path) -> None:
    out = tmp_path / "coco.parquet"
    words = ["--instances", str(coco_mini / "instances.json"), "--images", str(coco_mini / "images")]
    made = CliRunner().invoke(
        app, ["data", "make", "coco", *words, "--out", str(out), "--limit", "6", "--json"]
    )
    assert json.loads(made.stdout)["by_source"] == {"coco_region": 3, "coco_count": 3}
    assert CliRunner().invoke(app, ["data", "validate", str(out)]).exit_code == 0


def test_make_lens_writes_three_files(tmp_path: Path) -> None:
    sizes = ["--train", "3", "--eval", "2", "--traces", "2"]
    made = CliRunner().invoke(app, ["data", "make", "lens", "--out", str(tmp_path), *sizes, "--json"])
    assert {name: entry["rows"] for name, entry in json.loads(made.stdout).items()} == {
        "train": 3,
        "heldout": 2,
        "traces": 2,
    }
    files = [str(tmp_path / f"{name}.parquet") for name in ("train", "heldout")]
    assert CliRunner().invoke(app, ["data", "validate", *files]).exit_code == 0


def test_recipes_are_listed_shown_and_copied(tmp_path: Path) -> None:
    listed = json.loads(CliRunner().invoke(app, ["recipes", "list", "--json"]).stdout)["recipes"]
    assert listed["rl/codev-tiny"]["about"]
    assert "rl/codev-tiny" in CliRunner().invoke(app, ["recipes", "list"]).stdout
    shown = CliRunner().invoke(app, ["recipes", "show", "rl/codev-tiny"]).stdout
    copied = CliRunner().invoke(app, ["recipes", "copy", "rl/codev-tiny", str(tmp_path)])
    assert Path(copied.stdout.strip()).read_text(encoding="utf-8") == shown
    as_json = CliRunner().invoke(app, ["recipes", "show", "rl/codev-tiny", "--json"])
    path = listed["rl/codev-tiny"]["path"]
    assert json.loads(as_json.stdout) == {"name": "rl/codev-tiny", "path": path, "text": shown}
    own = str(tmp_path / "own.yaml")
    as_json = CliRunner().invoke(app, ["recipes", "copy", "rl/codev-tiny", own, "--json"])
    assert json.loads(as_json.stdout) == {"path": own}
    for name in ("launch/slurm.sbatch", "Dockerfile"):
        assert CliRunner().invoke(app, ["recipes", "copy", name, str(tmp_path)]).exit_code == 0
    assert (tmp_path / "slurm.sbatch").read_text().startswith("#!/bin/bash")
    assert listed["launch/Dockerfile"]["about"]


class Plan(Strict):
    steps: int
    data: tuple[str, ...] = Field(default=(), exclude_if=lambda data: not data)


def planned(tmp_path: Path, *, named: bool = True, **options: Any) -> list[tuple[Plan, Path, bool]]:
    """Run a fake training command on a recipe and return the calls that it received."""
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("steps: 3\n")
    calls: list[tuple[Plan, Path, bool]] = []

    def run(plan: Plan, out: Path, *, resume: bool, track: str | None, profile: int | None) -> dict[str, Any]:
        calls.append((plan, out, resume))
        os.write(1, b"noise of a library\n")
        return {"steps": plan.steps}

    defaults: dict[str, Any] = {"out": None, "resume": False, "dry_run": False, "as_json": True}
    defaults |= {"gpus": None, "hostfile": None, "track": None, "profile": None}
    verb = Verb(
        package="recipes.rl",
        kind=Plan,
        check=lambda plan, gpus, hosts: {"samples": 9, **({"gpus": gpus} if gpus else {})},
        run=run,
    )
    train(verb, str(recipe) if named else None, ["steps=4"], Start(**(defaults | options)))
    return calls


def test_training_goes_to_a_folder_named_after_the_recipe(tmp_path: Path, capfd: Any) -> None:
    assert planned(tmp_path) == [(Plan(steps=4), Path("runs/mine"), False)]
    out, err = capfd.readouterr()
    assert json.loads(out) == {"steps": 4}
    assert "noise of a library" in err


def test_the_shell_completes_verbs_and_options() -> None:
    for words, place, found in (("vtune ev", "1", "eval"), ("vtune eval --sui", "2", "--suite")):
        given = {"COMP_WORDS": words, "COMP_CWORD": place, "_VTUNE_COMPLETE": "complete_bash"}
        ended = CliRunner().invoke(app, [], env=given, prog_name="vtune")
        assert ended.output.split() == [found]


def test_eval_without_a_suite_resumes_an_evaluation_that_was_started(tmp_path: Path) -> None:
    runner = CliRunner()
    ended = runner.invoke(app, ["eval", "--resume", "--out", str(tmp_path)])
    assert isinstance(ended.exception, RecipeError)
    assert "holds no evaluation of one suite" in str(ended.exception)
    for words in ([], ["--out", str(tmp_path)], ["--resume"]):
        assert "an evaluation needs --suite and --model" in runner.invoke(app, ["eval", *words]).output


def test_training_resumes_in_the_given_folder(tmp_path: Path, capfd: Any) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.yaml").write_text("steps: 4\n")
    assert planned(tmp_path, out=tmp_path / "run", resume=True) == [(Plan(steps=4), tmp_path / "run", True)]


def test_a_run_resumes_with_its_own_recipe(tmp_path: Path, capfd: Any) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with pytest.raises(typer.BadParameter, match="has no run to resume"):
        planned(tmp_path, named=False, out=run, resume=True)
    (run / "sweep.yaml").touch()
    with pytest.raises(typer.BadParameter, match="holds a sweep: give --recipe and --sweep"):
        planned(tmp_path, named=False, out=run, resume=True)
    (run / "sweep.yaml").unlink()
    (run / "recipe.yaml").write_text("steps: 4\n")
    assert planned(tmp_path, named=False, out=run, resume=True) == [(Plan(steps=4), run, True)]
    (run / "recipe.yaml").write_text("steps: 4\ndata: [data/lens.parquet]\n")
    with pytest.raises(DataError, match=r"the run's data file data/lens\.parquet is not in") as refused:
        planned(tmp_path, named=False, out=run, resume=True)
    assert "--set 'data=[FILE, …]'" in str(refused.value.fix)
    (run / "recipe.yaml").write_text("steps: 4\nepochs: null\n")
    with pytest.raises(typer.BadParameter, match="is a run of `vtune sft`"):
        planned(tmp_path, named=False, out=run, resume=True)
    for options in ({"out": run}, {"resume": True}):
        with pytest.raises(typer.BadParameter, match="required, unless --resume --out RUN"):
            planned(tmp_path, named=False, **options)


def test_a_dry_run_shows_the_resolved_recipe_and_starts_nothing(tmp_path: Path, capfd: Any) -> None:
    assert planned(tmp_path, dry_run=True) == []
    assert json.loads(capfd.readouterr().out) == {"recipe": {"steps": 4}, "check": {"samples": 9}}
    assert planned(tmp_path, dry_run=True, as_json=False) == []
    assert capfd.readouterr().out == "# the run:\n#   samples  9\n#\nsteps: 4\n"


def test_a_dry_run_counts_the_processes_of_all_machines(tmp_path: Path, capfd: Any) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("# two machines\nnode1 slots=8\n\nnode2 slots=8\n")
    planned(tmp_path, dry_run=True, gpus=8, hostfile=hosts)
    assert json.loads(capfd.readouterr().out)["check"]["gpus"] == 16
    hosts.write_text("# none\n")
    with pytest.raises(RecipeError, match="names no machine"):
        planned(tmp_path, dry_run=True, gpus=8, hostfile=hosts)


@pytest.mark.parametrize("gpus", [None, 2])
def test_a_misspelt_tracker_is_refused_before_anything_is_started(
    tmp_path: Path, capfd: Any, gpus: int | None
) -> None:
    with pytest.raises(RecipeError, match="no tracker 'wandbb'"):
        planned(tmp_path, track="wandbb", gpus=gpus, out=tmp_path / "run")
    assert capfd.readouterr().err == ""
    assert not (tmp_path / "run").exists()


def test_a_dry_run_finds_what_a_run_would_refuse(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no tracker 'wandbb'"):
        planned(tmp_path, dry_run=True, track="wandbb")
    with pytest.raises(RecipeError, match="holds no run to resume"):
        planned(tmp_path, dry_run=True, resume=True, out=tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.yaml").write_text("steps: 4\n")
    with pytest.raises(RecipeError, match="holds a run already"):
        planned(tmp_path, dry_run=True, out=tmp_path / "run")


def test_a_dry_run_finds_that_a_machine_has_too_few_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    hosts = tmp_path / "hosts"
    hosts.write_text("node1 slots=8\nnode2 slots=4\n")
    with pytest.raises(RecipeError, match="gives 4 of node2"):
        planned(tmp_path, dry_run=True, gpus=8, hostfile=hosts)


def test_processes_get_the_command_line_without_the_launch_options(
    tmp_path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import vtune.runs.processes.launch

    asked: list[Any] = []

    def launch(words: list[str], out: Path, **more: Any) -> str:
        asked.append((words, out, more))
        return "what the first one said"

    monkeypatch.setattr(vtune.runs.processes.launch, "launch", launch)
    hosts = tmp_path / "hosts"
    hosts.write_text("first slots=2\n")
    line = ["rl", "--gpus", "2", "--recipe", "mine", f"--hostfile={hosts}", "--set", "a=--gpus", "--resume"]
    monkeypatch.setattr(sys, "argv", ["vtune", *line])
    assert planned(tmp_path, gpus=2, hostfile=hosts) == []
    words = ["rl", "--recipe", "mine", "--set", "a=--gpus", "--resume"]
    assert asked == [(words, Path("runs/mine"), {"processes": 2, "hostfile": hosts, "forwarded": set()})]
    assert capfd.readouterr().out == "what the first one said"


def test_stdout_holds_only_the_result(capfd: pytest.CaptureFixture[str]) -> None:
    with stdout_for_the_result():
        print("from Python")
        subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    show({"a": 1}, render_values, as_json=True)
    out, err = capfd.readouterr()
    assert json.loads(out) == {"a": 1}
    assert "from Python" in err
    assert "from a child" in err


def test_nan_is_refused_instead_of_written_as_broken_json(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        show({"a": float("nan")}, render_values, as_json=True)
    assert capfd.readouterr().out == ""


def test_a_narrow_table_truncates_no_number(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    monkeypatch.setattr("vtune.cli.output.PIPE_WIDTH", 30)
    rows, told = Table(), Text("words " * 8)
    rows.add_column("")
    rows.add_column("n", justify="right")
    for name in ("accuracy", "faithful,\nof the correct"):
        rows.add_column(name, no_wrap=True)
    rows.add_column("why", overflow="fold")
    rows.add_row("step 12", "1234", "12.5\n[6.2, 18.8]", "0.001234", f"{'x' * 30} because")
    show({}, lambda _: Group(told, Group(rows)), as_json=False)
    shown = capfd.readouterr().out
    for whole in ("1234", "12.5", "[6.2, 18.8]", "0.001234", "accuracy", "of the correct", "step"):
        assert whole in shown
    assert "…" not in shown
    # Columns that may fold do, and text is wrapped to the available width.
    assert shown.count("x") == 30
    assert "x" * 30 not in shown
    assert max(map(len, shown.splitlines()[:2])) <= 30


@pytest.mark.parametrize("encoding", ["iso-8859-1", "ascii", "utf-8"])
def test_results_print_in_a_locale_that_lacks_their_characters(tmp_path: Path, encoding: str) -> None:
    from tests.view.runs import MISSED, make_run

    run = make_run(tmp_path / "läuft-😀", {0: [MISSED], 1: [MISSED]})
    ended = vtune_alone("report", str(run), PYTHONIOENCODING=encoding)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ("▁" if encoding == "utf-8" else "\\u2581") in ended.stdout.decode(encoding)


def test_json_is_valid_in_a_locale_that_lacks_a_names_characters(tmp_path: Path) -> None:
    from tests.view.runs import MISSED, make_run

    run = make_run(tmp_path / "läuft-😀", {0: [MISSED], 1: [MISSED]})
    ended = vtune_alone("report", str(run), "--json", PYTHONIOENCODING="ascii")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert json.loads(ended.stdout.decode("ascii"))["runs"][0]["name"] == run.name
