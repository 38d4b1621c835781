"""`vtune rl` with vLLM, in the same process and on a server."""

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import mean

import psutil
import pytest

from tests.runs.commands import evaluation, numbers, rl, setting, vtune
from tests.runs.curate.test_curation import curate, pass_rate, source, write_recipe
from tests.vllm.serving import Server
from vtune.schema.parquet import read_samples, read_trajectories, write_samples
from vtune.schema.trajectory import Trajectory

STEPS = 4
GROUP = 4
LEARNS: dict[str, object] = {
    "steps": 8, "group_size": 8, "checkpoints__every": 8, "update__micro_tokens": 4096,
}  # fmt: skip
"""Settings for steps of 64 conversations each, enough to learn from."""


@dataclass(frozen=True)
class Ran:
    numbers: dict[tuple[int, str], dict[str, float]]
    trajectories: list[list[Trajectory]]


def train(model: Path, lens: Path, out: Path, **settings: object) -> Ran:
    given = {"steps": STEPS, "prompts_per_step": 8, "update__learning_rate": 1e-3} | settings
    ended = vtune(*rl(model, lens / "train.parquet", out, *setting(**given)))
    assert ended.code == 0, ended.err
    files = sorted((out / "trajectories").iterdir())
    assert [file.name for file in files] == [f"step-{step:06d}.parquet" for step in range(len(files))]
    assert len(files) == given["steps"]
    return Ran(numbers(out), [list(read_trajectories(file)) for file in files])


@pytest.fixture(scope="module")
def colocated(schooled: Path, lens: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return train(schooled, lens, tmp_path_factory.mktemp("runs") / "colocated", rollout__engine="vllm")


@pytest.fixture(scope="module")
def served(schooled: Path, lens: Path, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    out = tmp_path_factory.mktemp("runs") / "served"
    on_server = {"rollout__engine": "vllm", "rollout__servers": f"[{server.url}]"}
    return train(schooled, lens, out, **on_server, **LEARNS)


@pytest.fixture(params=["colocated", "served"])
def ran(request: pytest.FixtureRequest) -> Ran:
    found: Ran = request.getfixturevalue(request.param)
    return found


def test_log_probabilities_match_the_trainers_after_every_update(ran: Ran) -> None:
    """`mismatch` is the largest difference over all tokens of a step before its update."""
    looks = [t for step in ran.trajectories for t in step if len(t.images) > 1 and sum(_turns(t)) > 1]
    assert len(looks) > len(ran.trajectories), "no conversation has several turns and pictures"
    steps = [ran.numbers[step, "all"] for step in range(len(ran.trajectories))]
    assert all(step["grad_norm"] > 0 for step in steps)
    assert max(step["mismatch"] for step in steps) < 1e-4


def _turns(trajectory: Trajectory) -> list[bool]:
    return [message.role == "assistant" for message in trajectory.messages]


def test_every_token_records_the_weights_that_generated_it(ran: Ran) -> None:
    for step, drawn in enumerate(ran.trajectories):
        for trajectory in drawn:
            sampled = zip(trajectory.weight_versions, trajectory.loss_mask, strict=True)
            assert all(version == (step if counts else None) for version, counts in sampled)
        assert ran.numbers[step, "all"]["staleness"] == 0


def test_a_server_generates_the_same_as_an_in_process_vllm(colocated: Ran, served: Ran) -> None:
    """In the first step, with the same weights and seeds; rounding may change a few.

    The server's groups are larger, and start with those of the other run.
    """
    size = int(str(LEARNS["group_size"]))
    there = [t for number, t in enumerate(served.trajectories[0]) if number % size < GROUP]
    pairs = list(zip(colocated.trajectories[0], there, strict=True))
    assert sum(a.token_ids == b.token_ids for a, b in pairs) >= 0.8 * len(pairs)


def test_training_with_vllm_learns_like_with_the_transformers_engine(
    schooled: Path, lens: Path, served: Ran, tmp_path: Path
) -> None:
    """Eight steps from the same cold start; samples differ, so only means can be compared."""

    def rewards(ran: Ran) -> list[float]:
        return [ran.numbers[step, "all"]["reward"] for step in range(8)]

    own = rewards(train(schooled, lens, tmp_path / "transformers", **LEARNS))
    vllm = rewards(served)
    early, late = (mean(own[:3]), mean(vllm[:3])), (mean(own[-3:]), mean(vllm[-3:]))
    print(f"reward, first and last three steps: transformers {early[0]:.2f} {late[0]:.2f}, "
          f"vllm {early[1]:.2f} {late[1]:.2f}")  # fmt: skip
    # The means over 192 conversations rise by 0.24, with an error of 0.03 each.
    assert late[0] > early[0] + 0.05
    assert late[1] > early[1] + 0.05
    assert abs(late[0] - late[1]) < 0.2


def test_one_step_off_policy_weights_are_exactly_one_step_behind(
    schooled: Path, lens: Path, server: Server, tmp_path: Path
) -> None:
    ran = train(
        schooled, lens, tmp_path / "run",
        rollout__engine="vllm", rollout__servers=f"[{server.url}]", rollout__staleness=1,
    )  # fmt: skip
    assert [ran.numbers[step, "all"]["staleness"] for step in range(STEPS)] == [0.0, 1.0, 1.0, 1.0]
    for step, drawn in enumerate(ran.trajectories):
        versions = {v for t in drawn for v in t.weight_versions if v is not None}
        assert versions == {max(0, step - 1)}
    # Changes since generation are corrected: the ratio is to the weights that generated.
    assert max(ran.numbers[step, "all"]["mismatch"] for step in range(1, STEPS)) > 1e-4


def test_weights_may_change_during_conversations(schooled: Path, lens: Path, tmp_path: Path) -> None:
    """Two steps ahead; whether new weights arrive during or between turns is random."""
    behind = 2
    ran = train(
        schooled, lens, tmp_path / "run",
        rollout__engine="vllm", rollout__staleness=behind, rollout__interrupt=True,
    )  # fmt: skip
    found = set()
    for step, drawn in enumerate(ran.trajectories):
        versions = {v for t in drawn for v in t.weight_versions if v is not None}
        assert max(0, step - behind) <= min(versions) <= max(versions) <= step
        assert ran.numbers[step, "all"]["staleness_max"] == step - min(versions)
        found |= {step - version for version in versions}
    assert max(found) > 0


def test_an_in_process_vllm_gets_only_adapters(schooled: Path, lens: Path, tmp_path: Path) -> None:
    ran = train(
        schooled, lens, tmp_path / "run",
        rollout__engine="vllm", rollout__adapters="alone", update__freeze="[vision, connector]",
        update__lora="{rank: 4, alpha: 8, targets: [q_proj, v_proj]}",
    )  # fmt: skip
    steps = [ran.numbers[step, "all"] for step in range(STEPS)]
    assert all(step["grad_norm"] > 0 for step in steps)
    assert max(step["mismatch"] for step in steps) < 1e-4
    for step, drawn in enumerate(ran.trajectories):
        assert {v for t in drawn for v in t.weight_versions if v is not None} == {step}


def test_a_run_whose_server_is_killed_stops_with_the_reason_and_can_resume(
    schooled: Path, lens: Path, server: Server, tmp_path: Path
) -> None:
    words = long_run(schooled, lens, tmp_path, rollout__servers=f"[{server.url}]")
    stopped = run_until_killed(words, tmp_path, server.kill)
    assert f"no vLLM server is left\n  {server.url}: " in stopped
    server.start()
    ended = vtune(*words, "--resume")
    assert ended.code == 0, ended.err
    assert sorted(step for step, source in numbers(tmp_path) if source == "all") == list(range(LONG))


def test_a_run_whose_vllm_is_killed_stops_with_the_reason(schooled: Path, lens: Path, tmp_path: Path) -> None:
    def kill() -> None:
        # The server's core runs in a separate session.
        (core,) = [
            process
            for process in psutil.Process().children(recursive=True)
            if process.name().startswith("VLLM::EngineCore") and os.getsid(process.pid) == os.getsid(0)
        ]
        core.kill()

    stopped = run_until_killed(long_run(schooled, lens, tmp_path), tmp_path, kill)
    assert "the vLLM of this process has died" in stopped


LONG = 12


def long_run(model: Path, lens: Path, out: Path, **settings: object) -> list[str]:
    """The command line of a run that saves checkpoints only at the end."""
    given = setting(steps=LONG, rollout__engine="vllm", checkpoints__every=LONG, **settings)
    return rl(model, lens / "train.parquet", out, *given)


def run_until_killed(words: list[str], out: Path, kill: Callable[[], None]) -> str:
    """Run, kill in the third step, and check that all training is saved; return the run's output."""
    metrics = out / "metrics.jsonl"

    def trained() -> int:
        return metrics.read_text().count('"all"') if metrics.is_file() else 0

    def kill_in_time() -> None:
        while trained() < 2:
            time.sleep(0.02)
        kill()

    killer = threading.Thread(target=kill_in_time, daemon=True)
    killer.start()
    ended = vtune(*words)
    assert ended.code == 1, ended.err
    killer.join()
    assert 2 <= trained() < LONG
    # This checkpoint was written because the run had to stop.
    assert (out / "checkpoints" / "newest").resolve().name == f"step-{trained():06d}"
    return ended.err


def test_an_evaluation_with_vllm_says_so_and_gives_the_same_scores(
    schooled: Path, lens: Path, tmp_path: Path
) -> None:
    """At temperature 0 both generate the same tokens except for rounding ties."""
    found = []
    for kind in ("transformers", "vllm"):
        given = setting(rollout__temperature=0.0, rollout__max_batch=8)
        out = tmp_path / kind
        engine = ["--vllm"] if kind == "vllm" else []
        ended = vtune(*evaluation(schooled, lens / "heldout.parquet", out, *engine, *given))
        assert ended.code == 0, ended.err
        assert json.loads((out / "results.json").read_text())["engine"] == kind
        found.append(list(read_trajectories(out / "trajectories.parquet")))
    same = [a.token_ids == b.token_ids for a, b in zip(*found, strict=True)]
    assert sum(same) >= len(same) - 1


def test_pass_rates_use_vllm_with_tools_and_are_generated_once(
    schooled: Path, lens: Path, tmp_path: Path
) -> None:
    """Code and zooms are offered; how the cold-started model uses them does not matter."""
    data, out = tmp_path / "few.parquet", tmp_path / "out"
    rows = islice(read_samples(lens / "train.parquet"), 4)
    write_samples(data, [replace(row, tools=("python", "image_zoom_in_tool")) for row in rows])
    zoom = {"zoom": {"space": "relative_1000", "min_side": 28}}
    spec = pass_rate(schooled, engine="vllm", rows="all", tools=zoom, rollouts=4, first=None)
    spec |= {"band": {"of": "mean", "at_most": 1.0}}
    recipe = write_recipe(tmp_path / "r.yaml", {"lens": source(data)}, [spec])
    result = curate(recipe, out)
    assert result["funnel"]["all"]["after"] == 4
    assert result["unscored"] == {}
    kept = [
        json.loads(line)["result"] for line in (out / "results" / "replies.jsonl").read_text().splitlines()
    ]
    assert len(kept) == 16
    assert sum(reply["calls"] for reply in kept) > 0
    assert all(0 <= row.extra["pass_rate"] <= 1 for row in read_samples(out / "samples.parquet"))
    before = (out / "samples.parquet").read_bytes()
    (out / "drops.jsonl").unlink()
    curate(recipe, out)
    assert (out / "samples.parquet").read_bytes() == before
    assert len((out / "results" / "replies.jsonl").read_text().splitlines()) == 16
