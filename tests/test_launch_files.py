"""`recipes/launch`: the batch file with stand-ins for Slurm's commands and vtune, and the Dockerfile."""

import os
import re
import signal
import subprocess
import time
import tomllib
from pathlib import Path

import pytest

from tests.conftest import HANGS, ROOT

LAUNCH = ROOT / "recipes/launch"

SCONTROL = """#!/bin/sh
case "$1" in
  show) printf 'node-1\\nnode-2\\n' ;;
  requeue) echo "$2" >> requeued ;;
esac
"""
VTUNE = """#!/bin/bash
# Runs until it is told to stop, or ends at once with a status of its own.
printf '%s\\n' "$@" > words
save() {
  trap "" TERM
  sleep "$SAVING"
  echo saved >> saved
  [ -z "$STEP" ] || { mkdir -p "$OUT/checkpoints"; ln -sfn "step-$STEP" "$OUT/checkpoints/newest"; }
  exit 130
}
[ -n "$DEAF" ] || trap save TERM
touch started
[ -z "$STATUS" ] || exit "$STATUS"
while :; do sleep 0.05; done
"""
WORDS = ["rl", "--recipe", "my.yaml", "--set", "steps=3", "--out", "runs/my run"]


def batch(folder: Path, *words: str, nodes: int = 1, **variables: str) -> "subprocess.Popen[str]":
    """Start the batch file in a folder as Slurm does."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name, text in (("scontrol", SCONTROL), ("vtune", VTUNE)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    job = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "17",
        "SLURM_NNODES": str(nodes),
        "SLURM_JOB_NODELIST": "node-[1-2]",
        "SLURM_GPUS_ON_NODE": "8",
        "STATUS": "",
        "SAVING": "0.2",
        "DEAF": "",
        "STEP": "000004",
        "OUT": WORDS[-1],
        **variables,
    }
    return subprocess.Popen(
        ["bash", LAUNCH / "slurm.sbatch", *words],
        cwd=folder,
        env=job,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def given(folder: Path) -> list[str]:
    """The arguments that vtune was started with."""
    return (folder / "words").read_text().splitlines()


def told_once_it_runs(job: "subprocess.Popen[str]", folder: Path) -> None:
    """Send SIGTERM to the batch file as Slurm does, once vtune is running."""
    deadline = time.monotonic() + HANGS
    while not (folder / "started").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    job.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("status", [0, 1, 2])
def test_the_job_exits_with_the_status_of_the_run(tmp_path: Path, status: int) -> None:
    job = batch(tmp_path, *WORDS, STATUS=str(status))
    assert job.wait(HANGS) == status
    assert given(tmp_path) == [*WORDS, "--gpus", "8"]
    assert not (tmp_path / "requeued").exists()


def test_several_nodes_get_a_hostfile_and_an_existing_run_resumes(tmp_path: Path) -> None:
    (tmp_path / "runs/my run").mkdir(parents=True)
    (tmp_path / "runs/my run/recipe.yaml").touch()
    assert batch(tmp_path, *WORDS, nodes=2, STATUS="0").wait(HANGS) == 0
    hosts = tmp_path / "hosts-17"
    assert given(tmp_path) == [*WORDS, "--gpus", "8", "--hostfile", str(hosts), "--resume"]
    assert hosts.read_text() == "node-1 slots=8\nnode-2 slots=8\n"


def test_sigterm_before_the_time_limit_saves_the_run_and_requeues_the_job(tmp_path: Path) -> None:
    job = batch(tmp_path, "sft", "--recipe=my.yaml", "--out=runs/mine", OUT="runs/mine")
    told_once_it_runs(job, tmp_path)
    assert job.wait(HANGS) == 130
    assert (tmp_path / "saved").read_text() == "saved\n"
    assert (tmp_path / "requeued").read_text() == "17\n"


def test_a_second_sigterm_still_waits_for_the_checkpoint(tmp_path: Path) -> None:
    job = batch(tmp_path, *WORDS, SAVING="1")
    told_once_it_runs(job, tmp_path)
    time.sleep(0.3)
    job.send_signal(signal.SIGTERM)
    assert job.wait(HANGS) == 130
    assert (tmp_path / "saved").read_text() == "saved\n"
    assert (tmp_path / "requeued").read_text() == "17\n"


@pytest.mark.parametrize(
    ("before", "variables", "status"),
    [
        (None, {"STEP": ""}, 130),
        ("000004", {"STEP": "000004"}, 130),
        (None, {"DEAF": "yes"}, 143),  # before vtune handles the signal
    ],
)
def test_a_job_that_added_no_checkpoint_is_not_requeued(
    tmp_path: Path, before: str | None, variables: dict[str, str], status: int
) -> None:
    """With a time limit below the seconds of --signal it is stopped at once, and would come again."""
    if before is not None:
        (tmp_path / "runs/my run/checkpoints").mkdir(parents=True)
        (tmp_path / "runs/my run/checkpoints/newest").symlink_to(f"step-{before}")
    job = batch(tmp_path, *WORDS, **variables)
    told_once_it_runs(job, tmp_path)
    assert job.wait(HANGS) == status
    assert not (tmp_path / "requeued").exists()
    assert job.stderr is not None
    assert "--time must cover" in job.stderr.read()


def test_the_job_gets_all_memory_of_its_nodes() -> None:
    """With --exclusive alone Slurm gives the CPUs of a node, and its default memory."""
    lines = (LAUNCH / "slurm.sbatch").read_text().splitlines()
    assert {"#SBATCH --exclusive", "#SBATCH --mem=0"} <= set(lines)
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize(
    ("words", "variables", "says"),
    [
        (["rl", "--recipe", "my.yaml"], {}, "usage: sbatch"),
        (WORDS, {"SLURM_GPUS_ON_NODE": ""}, "give sbatch --gpus-per-node"),
        ([*WORDS, "--gpus", "4"], {}, "leave out --gpus: GPUs and hosts are those of the job"),
        ([*WORDS, "--hostfile=mine"], {}, "leave out --hostfile: GPUs"),
    ],
)
def test_wrong_usage_is_reported_before_anything_starts(
    tmp_path: Path, words: list[str], variables: dict[str, str], says: str
) -> None:
    job = batch(tmp_path, *words, **variables)
    assert job.wait(HANGS) != 0
    assert job.stderr is not None
    assert says in job.stderr.read()
    assert not (tmp_path / "words").exists()


def test_the_image_installs_existing_extras_and_none_for_developers() -> None:
    extras = re.findall(r"/src\[(.*?)\]", (LAUNCH / "Dockerfile").read_text())
    there = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert len(extras) == 1
    assert set(extras[0].split(",")) == set(there) - {"dev", "ray"}


def test_the_image_has_a_home_for_users_that_it_does_not_know() -> None:
    """As with --user: torch's and Triton's caches would go to /, which only root may write, by no name."""
    assert "\nENV HOME=/tmp USER=" in (LAUNCH / "Dockerfile").read_text()
