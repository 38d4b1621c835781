"""The runner of the GPU checks, tested without a GPU, and rehearsals of checks with a tiny model."""

import ast
import json
import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tests.gpu.__main__ as command
from tests.conftest import ROOT
from tests.gpu.checks import CHECKS, MINUTES, Bar, Check, Result, chosen, judged, skipped
from tests.runs.launched import eventually
from tests.runs.processes.test_machines import alive

ONE = Check(name="one", about="a", entry="pretended:keeps", seconds=60)


def check(entry: str, *, seconds: float = 60, **given: Any) -> Check:
    return Check(name=entry, about="a", entry=f"pretended:{entry}", seconds=seconds, given=given)


def tried(*checks: Check, folder: Path, minutes: float = 25, gpus: int = 1) -> list[Result]:
    machine = {"gpus": gpus, "vllm": False}
    return list(command.tried(checks, folder, machine, tiny=False, minutes=minutes))


def test_the_checks_of_one_gpu_end_within_their_time() -> None:
    assert chosen(1)
    assert sum(one.seconds for one in chosen(1)) <= 60 * MINUTES
    assert sum(one.seconds for one in chosen(2)) <= 60 * MINUTES
    assert max(Counter(one.name for one in CHECKS).values()) == 1


@pytest.mark.parametrize("one", CHECKS, ids=lambda one: one.name)
def test_every_check_has_a_function_that_accepts_its_arguments(one: Check) -> None:
    module, _, function = one.entry.partition(":")
    tree = ast.parse((ROOT / "tests/gpu" / f"{module}.py").read_text())
    (found,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
    assert [argument.arg for argument in found.args.args] == ["place"]
    assert {argument.arg for argument in found.args.kwonlyargs} == set(one.given)


def test_each_check_runs_alone_and_none_stops_the_next(tmp_path: Path) -> None:
    found = tried(
        check("breaks"),
        check("dies"),
        check("holds_nothing"),
        check("keeps", value=3.0),
        ONE,
        folder=tmp_path,
    )
    assert [one.verdict for one in found] == ["broken", "broken", "broken", "failed", "passed"]
    assert "no kernel image is available" in found[0].why
    assert found[1].why.startswith("exit status -6")
    assert "it held nothing" in found[2].why
    assert found[3].why == "it 3 (at most 2)"
    assert found[4].as_json()["figures"] == {"tiny": False}
    assert command.status(found) == 1
    assert command.status(found[-1:]) == 0
    assert command.status([]) == 1


def test_a_hanging_check_is_ended_with_all_its_processes(tmp_path: Path) -> None:
    (found,) = tried(check("hangs", seconds=3), folder=tmp_path)
    assert found.verdict == "late"
    assert found.why.strip() == "after 3 s: waiting for the other rank"
    child = int((tmp_path / "hangs/child").read_text())
    assert eventually(lambda: not alive(child), 10)


@pytest.mark.parametrize(
    ("gpus", "vllm", "left", "tiny", "said"),
    [
        (1, True, 1000, False, ""),
        (0, True, 1000, False, "needs 1 GPU(s), and there are 0"),
        (0, True, 1000, True, ""),
        (1, False, 1000, False, "needs vLLM, which is not installed here"),
        (1, True, 59, False, "may take 60 s, and 59 s are left"),
        (1, True, -5, False, "may take 60 s, and 0 s are left"),
    ],
)
def test_a_check_that_cannot_run_is_skipped_with_the_reason(
    gpus: int, vllm: bool, left: float, tiny: bool, said: str
) -> None:
    one = Check(name="one", about="a", entry="pretended:keeps", seconds=60, vllm=True)
    assert skipped(one, gpus=gpus, vllm=vllm, left=left, tiny=tiny) == said


def test_a_check_without_a_rehearsal_is_skipped_without_a_gpu() -> None:
    one = Check(name="one", about="a", entry="pretended:keeps", seconds=60, rehearsed=False)
    assert "needs 1 GPU(s)" in skipped(one, gpus=0, vllm=True, left=99, tiny=True)


def test_skipped_checks_are_reported_and_do_not_count_as_success(tmp_path: Path) -> None:
    found = tried(ONE, folder=tmp_path, gpus=0)
    assert [(one.verdict, one.why) for one in found] == [("skipped", "needs 1 GPU(s), and there are 0")]
    assert command.status(found) == 1


@pytest.mark.parametrize(
    ("value", "kept"), [(1, True), (0.5, True), (2, True), (2.1, False), (0.4, False), (math.nan, False)]
)
def test_a_bar_must_be_within_both_bounds(value: float, kept: bool) -> None:
    assert Bar(what="it", value=value, at_least=0.5, at_most=2).kept is kept


def test_a_check_that_exits_with_0_but_returns_nothing_is_broken() -> None:
    assert judged(ONE, code=0, said=None, tail="", seconds=1).verdict == "broken"


def test_a_dry_run_lists_the_checks_and_runs_none(capsys: pytest.CaptureFixture[str]) -> None:
    for gpus in (1, 2):
        assert command.main(["--gpus", str(gpus), "--dry-run"]) == 0
        listed = json.loads(capsys.readouterr().out)
        assert [one["name"] for one in listed] == [one.name for one in chosen(gpus)]
        assert all(one["about"] and one["seconds"] for one in listed)


def test_an_unknown_check_is_a_user_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--only", "nothing", "--dry-run"]) == 2
    assert "no check of 1 GPU(s) is called nothing" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["Qwen2.5-VL-3B", "Qwen2.5-VL-7B", "Qwen3-VL-8B"])
def test_the_steps_of_large_models_fit_one_gpu_according_to_the_plan(name: str, tmp_path: Path) -> None:
    from tests.gpu.steps import recipe_settings
    from vtune.config import find, load_recipe
    from vtune.models.shape import known_shapes, shape_of
    from vtune.runs.plan.estimate import fits
    from vtune.runs.plan.machine import machine_of
    from vtune.runs.train.rl_recipe import RLRecipe

    for vllm in (True, False):
        given = recipe_settings(Path("m"), tmp_path / "train.parquet", tiny=False, vllm=vllm)
        words = [f"{key}={value}" for key, value in given.items()]
        recipe = load_recipe(find("codev-tiny", "recipes.rl"), RLRecipe, words)
        assert fits(recipe, shape_of(known_shapes()[name]), machine_of(1, 79.6))


def test_the_server_multiplies_float32_as_an_engine_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In TF32 its attention alone moves log-probabilities by 0.0015, where 0.0001 is allowed."""
    import torch

    from tests.gpu import server
    from vtune.rollout.vllm_environment import child_environment

    given: dict[str, str] = {}

    class Started:
        def __init__(self, command: Any, *, env: dict[str, str], **rest: Any) -> None:
            given.update(env)

        def terminate(self) -> None:
            """Do nothing."""

        wait = terminate

    monkeypatch.setattr(server.subprocess, "Popen", Started)
    monkeypatch.setattr(server, "_wait", lambda *_: None)
    with server.served(tmp_path, tmp_path / "log"):
        pass
    wanted = child_environment(torch.device("cuda", 1), threads=1)
    same = ("TRITON_F32_DEFAULT", "CUDA_VISIBLE_DEVICES")
    assert {name: given.get(name) for name in same} == {name: wanted[name] for name in same}


@pytest.mark.parametrize("family", ["tiny", "tiny3"])
def test_changed_weights_change_what_must_not_be_kept(family: str, request: pytest.FixtureRequest) -> None:
    """Otherwise a vLLM that keeps keys, values and features of the earlier weights passes the checks."""
    import torch

    from tests.conftest import load
    from tests.gpu.models import changed
    from tests.models.rows import SHOWN, ragged
    from tests.update.build import logprobs_of
    from vtune.update.batch import Item

    policy = load(request.getfixturevalue(family))
    ids = [*ragged(policy)[1].token_ids, policy.chat.end_id]
    item = Item(ids, SHOWN[1], [False] * (len(ids) - 1) + [True])
    kept: dict[str, torch.Tensor] = {}

    def keeps(name: str) -> Any:
        return lambda module, given, out: kept.__setitem__(name, out)

    for name, module in policy.model.named_modules():
        if re.search(r"\.v_proj$|\.merger$|merger_list\.\d+$", name):
            module.register_forward_hook(keeps(name))
    with torch.no_grad():
        logprobs_of(policy, [item])
        before = dict(kept)
        changed(policy.model)
        logprobs_of(policy, [item])
    assert sum(name.endswith(".v_proj") for name in kept) > 1
    assert any("merger" in name for name in kept)
    for name, values in before.items():
        assert float((kept[name] - values).norm() / values.norm()) > 0.5, name


@pytest.mark.slow
@pytest.mark.train
def test_shared_rows_are_compared_with_those_of_one_process(tiny: Path, tmp_path: Path) -> None:
    from tests.gpu.ranks import GRADIENTS
    from tests.gpu.shared import compared
    from tests.update.build import with_heads

    found = compared(with_heads(tiny, tmp_path / "model", kv_heads=2), tmp_path / "apart.json")
    assert found["logprobs"] < 1e-5
    assert found["gradients"] < GRADIENTS / 100


@pytest.mark.parametrize("factor", [0.0, 0.5, 2.0, -1.0], ids=["lost", "halved", "doubled", "negated"])
def test_a_wrong_gradient_of_a_shared_row_misses_its_bar(factor: float) -> None:
    import torch

    from tests.gpu.ranks import GRADIENTS
    from tests.gpu.shared import apart

    alone = {"logprobs": torch.zeros(2), "entropy": torch.zeros(2), "a": torch.ones(3), "b": torch.ones(2)}
    assert apart(alone, alone) == {"logprobs": 0.0, "gradients": 0.0}
    assert apart(alone | {"b": factor * alone["b"]}, alone)["gradients"] > 100 * GRADIENTS


@pytest.mark.train
def test_a_step_is_rehearsed_with_a_tiny_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "found.json"
    names = "policy,varlen,step 3B"
    assert command.main(["--tiny", "--only", names, "--folder", str(tmp_path), "--out", str(out)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert json.loads(out.read_text()) == document
    assert [one["verdict"] for one in document["checks"]] == ["passed"] * 3
    _, varlen, step = document["checks"]
    assert all(found["one_call_ms"] > 0 for found in varlen["figures"]["rows"].values())
    assert step["figures"]["engine"] == "transformers"
    assert step["figures"]["tokens_per_second_per_gpu"] > 0
    assert [bar["what"] for bar in step["bars"]][:2] == ["steps", "mismatch"]
    assert not list(tmp_path.glob("vtune-gpu-*"))
    assert sorted(log.name for log in tmp_path.glob("found.json.logs/*")) == [
        "policy.log",
        "step-3B.log",
        "varlen.log",
    ]


def test_results_before_an_interrupt_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = command.alone

    def until_the_second(check: Check, *given: Any, **named: Any) -> Result:
        if check.name == "two":
            raise KeyboardInterrupt
        return alone(check, *given, **named)

    out = tmp_path / "found.json"
    monkeypatch.setattr(command, "alone", until_the_second)
    monkeypatch.setattr(command, "chosen", lambda gpus, only: [ONE, replace(ONE, name="two")])
    monkeypatch.setattr(command, "machine_here", lambda: {"gpus": 1, "vllm": False})
    assert command.main(["--folder", str(tmp_path), "--out", str(out)]) == 130
    (one,) = json.loads(capsys.readouterr().out)["checks"]
    assert (one["name"], one["verdict"]) == ("one", "passed")
    assert json.loads(out.read_text())["checks"] == [one]
