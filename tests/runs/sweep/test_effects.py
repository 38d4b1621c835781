"""The sweeps that look for published effects: what varies, what their seeds can show, one step of each."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.runs.commands import setting, vtune
from tests.runs.sweep.test_sweep import inside
from vtune.config import find
from vtune.runs.sweep.recipe import Plan, load_sweep
from vtune.runs.sweep.runs import run_sweep

EFFECTS = {
    "credit": "credit-tiny",
    "iou": "orsta-tiny",
    "mix": "orsta-tiny",
    "freeze": "orsta-tiny",
    "both": "codev-tiny",
    "both-shortcut": "codev-tiny",
}
VARIED = {
    "credit": {"credit", "loss"},
    "iou": {"reward"},
    "mix": {"data"},
    "freeze": {"update"},
    "both": {"credit", "reward"},
    "both-shortcut": {"credit", "reward"},
}
"""Sections of the recipe in which the variants of a sweep differ."""

SMALL = (("--train", 16), ("--eval", 6), ("--traces", 16), ("--towns", 12), ("--eval-towns", 4))


def plan_of(name: str) -> Plan:
    return load_sweep(find(name, "recipes.sweep"), find(EFFECTS[name], "recipes.rl"), [])


@pytest.mark.parametrize("name", EFFECTS)
def test_variants_differ_only_in_the_subject_of_the_sweep(name: str) -> None:
    plan = plan_of(name)
    at_one_place = [row for row in plan.recipes if plan.at[row] == next(iter(plan.at.values()))]
    assert len(at_one_place) == len(plan.sweep.variants) > 2
    dumps = [plan.recipes[row].model_dump(mode="json") for row in at_one_place]
    told = [json.dumps([one.pop(key) for key in sorted(VARIED[name])]) for one in dumps]
    assert len(set(told)) == len(told)
    assert all(one == dumps[0] for one in dumps)
    assert all("{prepared}" in recipe.model for recipe in plan.recipes.values())


@pytest.mark.parametrize("name", EFFECTS)
def test_a_dry_run_says_what_the_seeds_can_show(name: str, tmp_path: Path) -> None:
    words = ["--recipe", EFFECTS[name], "--sweep", name, "--out", tmp_path / "out", "--dry-run", "--json"]
    ended = vtune("rl", *words)
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    assert told["missing"] == []
    seeds = len(plan_of(name).sweep.seeds)
    assert seeds >= (10 if name == "credit" else 5)
    assert len(told["runs"]) == seeds * len(plan_of(name).recipes)
    # Narrower than the effect that is sought: five points with ten seeds, ten with five.
    assert told["power"]["accuracy"]["reach"] < (0.05 if name == "credit" else 0.1)


def in_small(name: str, folder: Path) -> Path:
    """The sweep with one seed and its last variant, on a handful of puzzles."""
    values: dict[str, Any] = yaml.safe_load(find(name, "recipes.sweep").read_text())
    values |= {"seeds": [0], "last_steps": 1, "differences": []}
    last = list(values["variants"])[-1]
    settings = {key: value for key, value in values["variants"][last].items() if key != "updates_per_step"}
    settings |= {"steps": 1} if "steps" in settings else {}
    values["variants"] = {last: settings}
    values["axes"] = {axis: [1.0] for axis in values.get("axes", {})}
    values["held_out"] = values["held_out"][-1:]
    values["held_out"][0]["settings"]["rollout.max_new_tokens"] = 8
    for key, command in values["prepare"].items():
        for option, count in SMALL:
            command = re.sub(rf"{option} \d+", f"{option} {count}", command)
        if "trails" in command and command.startswith("data"):
            command += " --towns 12 --eval-towns 4"
        if command.startswith("sft"):
            command += " --set batch_size=8 --set update.warmup_steps=0"
            command += "" if "epochs=" in command else " --set epochs=1.0"
        values["prepare"][key] = command
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return path


@pytest.mark.train
@pytest.mark.parametrize("name", EFFECTS)
def test_one_step_of_each_sweep_runs_from_scratch_to_its_table(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(run_sweep.__kwdefaults__, "start", inside)
    given = {"prompts_per_step": 2, "group_size": 2, "rollout__max_new_tokens": 8, "update__warmup_steps": 0}
    given |= {} if name == "credit" else {"steps": 1}
    given |= {"updates_per_step": 1}
    words = ["--recipe", EFFECTS[name], "--sweep", in_small(name, tmp_path), "--out", tmp_path / "out"]
    ended = vtune("rl", *words, *setting(**given), "--json")
    assert ended.code == 0, ended.err
    table = json.loads(ended.out)
    assert (table["failed"], table["unfinished"]) == ([], [])
    (row,) = table["variants"].values()
    (suite,) = row["held_out"].values()
    assert suite["accuracy"]["value"] is not None
    assert row["entropy"]["value"] > 0
