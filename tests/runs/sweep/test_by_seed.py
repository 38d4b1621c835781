"""A sweep with axes, and with separate data and starting weights per seed."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.runs.commands import setting, vtune
from tests.runs.sweep.test_sweep import RECIPE, SWEEP, Runs, estimate, mean, write
from vtune.config import find
from vtune.errors import RecipeError
from vtune.runs import demo
from vtune.runs.report.document import run_report
from vtune.runs.sweep.placeholders import differences, filled, marks, rows
from vtune.runs.sweep.recipe import Plan, load_sweep
from vtune.runs.sweep.runs import plan_sweep, run_sweep

HELD = {"data": ["{prepared}/data-{p}/heldout.parquet"], "threads": 1}
BY_SEED: dict[str, Any] = {
    "axes": {"p": [0.5, 0.9]},
    "prepare": {
        "nobody-reads": "sft --recipe codev-tiny --set seed={seed} --out {prepared}/nobody-reads",
        "words": "data make lens --seed {seed} --out {prepared}/start-of",
        "start": "sft --recipe codev-tiny --set seed={seed} --set data={prepared}/start-of "
        "--out {prepared}/start",
        "data-{p}": "data make lens --shortcut {p} --seed {seed} --out '{prepared}/data-{p}'",
    },
    "variants": {
        "plain": {"model": "{prepared}/start", "data": ["{prepared}/data-{p}/train.parquet"], "steps": 3},
        "sharp": {
            "model": "{prepared}/start",
            "data": ["{prepared}/data-{p}/train.parquet"],
            "steps": 3,
            "loss.clip_high": 0.3,
        },
    },
    "untrained": {"base": {"model": "{prepared}/start", "settings": {}}},
    "differences": [["sharp", "plain"], ["sharp", "base"]],
    "held_out": [{"suite": "lens", "settings": HELD}],
}
BOTH = [f"{name}-{p}" for p in (0.5, 0.9) for name in ("plain", "sharp")]
STARTS = ["base-0.5", "base-0.9"]


class Prepared(Runs):
    """As `Runs`; a model and data are prepared for every seed."""

    def __init__(self, tiny: Path, lens: Path) -> None:
        super().__init__()
        self._tiny, self._lens = tiny, lens

    def _run(self, words: Sequence[str], log: Path, result: Path | None) -> int:
        out = Path(words[words.index("--out") + 1])
        if words[0] in ("rl", "eval"):
            return super()._run(words, log, result)
        self.words.append(list(words))
        log.write_text("error: no room\n")
        if any(name in str(out) for name in self.fails):
            return 1
        if words[0] == "sft":
            out.symlink_to(self._tiny.resolve())
        else:
            out.mkdir()
            for name in ("train", "heldout"):
                shutil.copy(self._lens / f"{name}.parquet", out)
        assert result is not None
        result.write_text("{}")
        return 0

    def _evaluate(self, suite: Path, model: str, out: Path) -> None:
        values = yaml.safe_load(suite.read_text())
        seed = int(out.parts[-3].removeprefix("seed-"))
        assert f"prepared/seed-{seed}/data-" in values["data"][0]
        row = out.parts[-4]
        assert values["data"][0].split("data-")[1].startswith(row.split("-")[1])
        score = {"base": 0.25, "plain": 0.5, "sharp": 0.75}[row.split("-")[0]] + seed / 100
        looks = {"n": 6, "n_unscored": 0, "no_shares": None, "faithful_of_all": estimate(score / 2)}
        looks |= {"faithful_of_correct": estimate(0.5), "tool_calls": estimate(1.5)}
        share = {"share": estimate(0.25), "by_cue": estimate(0.5)}
        results = {
            "score": {"score": score},
            "faithfulness": looks,
            "habits": dict.fromkeys(("everything", "none", "whole", "miss"), share)
            | {"shows": {"share": estimate(0.25), "by_cue": None}},
            "model": str(Path(model).resolve()),
            "suite": values,
            "environment": {"data": {}},
        }
        (out / "results.json").write_text(json.dumps(results))


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.setattr("vtune.runs.sweep.runs.fingerprint", lambda path: None)
    monkeypatch.setattr("vtune.runs.sweep.runs.fingerprints", lambda suite: {})
    return load_sweep(write(tmp_path / "sweeps", **BY_SEED), RECIPE, [])


def test_rows_are_at_every_value_and_texts_are_filled() -> None:
    axes = {"p": [0.5, 0.9], "q": ["a"]}
    assert [row.name for row in rows({"x": 1, "y": 2}, axes)] == ["x-0.5-a", "y-0.5-a", "x-0.9-a", "y-0.9-a"]
    assert rows({"x": 1}, {})[0] == ("x", "x", {})
    assert differences([["x", "y"]], axes) == [("x-0.5-a", "y-0.5-a"), ("x-0.9-a", "y-0.9-a")]
    known = {"p": 0.9, "seed": 3}
    # Numbers stay numbers; unknown names stay, since prompts contain braces.
    assert filled({"a": "{p}", "b": ["{seed}/{p}", "{else} {p"], "{p}": 1}, known) == {
        "a": 0.9, "b": ["3/0.9", "{else} {p"], 0.9: 1,
    }  # fmt: skip
    assert marks({"a": ["{x} {y}"], "{z}": 1}) == {"x", "y", "z"}


def test_every_seed_has_its_own_data_and_starting_weights(
    plan: Plan, tiny: Path, lens: Path, tmp_path: Path
) -> None:
    out, runs = tmp_path / "out", Prepared(tiny, lens)
    table = run_sweep(plan, out, resume=False, processes=1, start=runs)
    assert (table["failed"], table["unfinished"]) == ([], [])
    own = [w for w in runs.words if w[0] in ("sft", "data")]
    folders = [f"{out}/prepared/seed-{seed}" for seed in (3, 5)]
    # Once per seed, and the data once per value, before it is read; but nothing that is not read.
    assert [w[w.index("--out") + 1] for w in own] == [
        f"{folder}/{name}" for folder in folders for name in ("start-of", "start", "data-0.5", "data-0.9")
    ]
    given = f"--set seed=3 --set data={folders[0]}/start-of --out {folders[0]}/start --json"
    assert " ".join(runs.words[1]) == f"sft --recipe codev-tiny {given}"
    assert own[2][:5] == ["data", "make", "lens", "--shortcut", "0.5"]
    recipe = yaml.safe_load((out / "sharp-0.9/seed-5.yaml").read_text())
    assert recipe["data"] == [f"{folders[1]}/data-0.9/train.parquet"]
    assert (recipe["seed"], recipe["model"]) == (5, str(tiny.resolve()))
    names = [Path(w[w.index("--out") + 1]).relative_to(out).as_posix() for w in runs.words if w[0] == "rl"]
    assert names == [f"{row}/seed-{seed}" for seed in (3, 5) for row in BOTH]
    assert set(table["variants"]) == {*BOTH, *STARTS}
    runs.words = []
    again = run_sweep(plan, out, resume=True, processes=1, start=runs)
    assert (runs.words, again["variants"]) == ([], table["variants"])
    assert run_report([out])["sweeps"][0]["variants"] == table["variants"]


def test_the_table_pairs_rows_at_the_same_value_and_starts_seed_by_seed(
    plan: Plan, tiny: Path, lens: Path, tmp_path: Path
) -> None:
    table = run_sweep(plan, tmp_path / "out", resume=False, processes=1, start=Prepared(tiny, lens))
    pairs = [f"{a}-{p} - {b}-{p}" for p in (0.5, 0.9) for a, b in (("sharp", "plain"), ("sharp", "base"))]
    assert list(table["differences"]) == pairs
    for pair in pairs:
        found = table["differences"][pair]
        assert found["seeds"] == 2
        expected = 0.25 if "plain" in pair else 0.5
        found = mean(table, "differences", pair, "accuracy", suite="lens")
        assert found == (pytest.approx(expected), None, None)
    row = table["variants"]["base-0.5"]
    # Whatever varies with the seed has an interval over seeds, though nothing was trained.
    assert (row["seeds"], row["accuracy"]) == (2, None)
    assert mean(table, "variants", "base-0.5", "accuracy", suite="lens")[0] == pytest.approx(0.29)
    held = row["held_out"]["lens"]
    assert held["no look"]["value"] == held["whole picture"]["value"] == 0.25
    assert (held["by cue"]["value"], held["by cue after a look"]) == (0.5, None)
    assert "by cue" in vtune("report", tmp_path / "out").out


def test_a_failed_preparation_is_tried_once_and_loses_only_its_seed(
    plan: Plan, tiny: Path, lens: Path, tmp_path: Path
) -> None:
    runs = Prepared(tiny, lens)
    runs.fails = {"seed-3/start-of": 1}
    table = run_sweep(plan, tmp_path / "out", resume=False, processes=1, start=runs)
    assert [one["name"] for one in table["failed"]] == ["base-0.5/seed-3: preparation of words"]
    assert table["failed"][0]["said"] == "error: no room"
    assert table["variants"]["sharp-0.5"]["seeds"] == 1
    assert {"sharp-0.9/seed-3", "base-0.5/seed-3/eval/lens"} <= set(table["unfinished"])
    runs.fails, runs.words = {}, []
    table = run_sweep(plan, tmp_path / "out", resume=True, processes=1, start=runs)
    assert table["unfinished"] == []
    assert not any("seed-5" in " ".join(w) for w in runs.words)


def test_a_dry_run_counts_later_preparations_and_says_what_seeds_can_show(tmp_path: Path) -> None:
    path = write(tmp_path / "sweeps", **BY_SEED, spread={"accuracy": 0.041, "faithful": 0.047})
    command = ["rl", "--recipe", "codev-tiny", "--sweep", path, "--out", tmp_path / "out", "--dry-run"]
    told = vtune(*command, "--json")
    assert told.code == 0, told.err
    document = json.loads(told.out)
    assert document["missing"] == []
    assert {tuple(facts["missing"]) for facts in document["variants"].values()} == {()}
    assert list(document["runs"])[:3] == ["base-0.5/seed-3", "base-0.9/seed-3", "plain-0.5/seed-3"]
    # Two seeds: t is 12.7, and half the interval 0.368.
    assert document["power"]["accuracy"]["reach"] == pytest.approx(12.7062 * 0.041 / 2**0.5, rel=1e-4)
    shown = vtune(*command, *setting(**{"sweep.seeds": "[0, 1, 2]"})).out
    assert "# power: 3 seeds show a difference of 0.1" in shown
    assert not (tmp_path / "out").exists()
    one = vtune(*command, *setting(**{"sweep.seeds": "[0]"})).out
    assert "# power: one seed has no interval; accuracy needs two or more" in one


def test_inputs_that_the_sweep_does_not_make_are_still_missing(tmp_path: Path) -> None:
    variants = {"plain": {"model": "{prepared}/start", "data": ["{prepared}/d.parquet", "nowhere.parquet"]}}
    changes = {**BY_SEED, "variants": variants, "differences": []}
    planned = load_sweep(write(tmp_path, **changes), RECIPE, ["steps=3"])

    def check(recipe: Any) -> dict[str, Any]:
        return {"missing": [f"model {recipe.model}", *(f"data file {name}" for name in recipe.data)]}

    facts = plan_sweep(planned, tmp_path / "out", check=check, resume=False, processes=1)
    assert facts["variants"]["plain-0.9"]["missing"] == ["data file nowhere.parquet"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"axes": {"seed": [1]}}, "axis 'seed' is not a name"),
        ({"axes": {"P": [1]}}, "axis 'P' is not a name"),
        ({"axes": {"p": []}}, "axis `p` needs values"),
        ({"axes": {"p": [1, 1]}}, "axis `p` needs values, each once"),
        ({"axes": {"p": ["a/b"]}}, "'plain-a/b' is not a valid folder name"),
        ({"prepare": {"x": "sft --out {prepared}/x"}}, r"`prepare.x` does not say \{seed\}"),
        ({"prepare": {"x": "sft --set seed={seed} --out x"}}, r"`prepare.x` does not say \{prepared\}"),
        ({"prepare": {"x": "sft --set seed={seed} {prepared}"}}, "where its result goes: --out"),
        ({"prepare": {"x": "sft --set seed={seed} --set a={p} --out {prepared}/x"}}, "another command"),
        ({"spread": {"beauty": 0.1}}, "`spread` has 'beauty'"),
        ({"spread": {"accuracy": 0}}, "greater than 0"),
    ],
)  # fmt: skip
def test_errors_in_axes_and_commands_are_named(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    assert set(SWEEP) <= set(BY_SEED) | {"seeds", "last_steps"}
    with pytest.raises(RecipeError, match=message):
        load_sweep(write(tmp_path, **(BY_SEED | changes)), RECIPE, [])


def test_the_comparing_demo_is_part_of_the_sweep() -> None:
    """The same recipes, data and starts: so a row of one is a row of the other."""
    whole = load_sweep(find("evidence", "recipes.sweep"), RECIPE, ["update.threads=1"])
    part = load_sweep(find("shortcut", "recipes.sweep"), RECIPE, [])
    assert set(part.recipes) == {"accuracy-only", "evidence"}
    for row, recipe in part.recipes.items():
        other = whole.recipes[f"{row}-0.95"]
        assert recipe.model_copy(update={"data": ("{prepared}/data-0.95/train.parquet",)}) == other
        for name, suite in part.suites_of(row).items():
            data = (suite.data[0].replace("/data/", "/data-0.95/"),)
            assert suite.model_copy(update={"data": data}) == whole.suites_of(f"{row}-0.95")[name]
    known = {"p": 0.95}
    same = {"traces": "traces", "cold-start": "cold-start", "data": "data-{p}"}
    for name, other_name in same.items():
        command = filled(whole.sweep.prepare[other_name], known).replace("data-0.95", "data")
        assert part.sweep.prepare[name] == command


def test_the_demo_compares_with_the_sweep_and_resumes(
    tiny: Path, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []

    def sweep(plan: Plan, out: Path, **given: Any) -> dict[str, Any]:
        calls.append({"seeds": plan.sweep.seeds, "rows": [*plan.at], **given})
        tier = {recipe.sandbox.isolation for recipe in plan.recipes.values()}
        assert tier == {suite.sandbox.isolation for suite in plan.suites.values()} == {"unsafe"}
        (out / "sweep.yaml").write_text("x: 1")
        (out / "evidence" / "seed-4" / "checkpoints").mkdir(parents=True, exist_ok=True)
        (out / "evidence" / "seed-4" / "done.json").write_text('{"seconds": 90.0}')
        rows = {row: {} for row in ("cold-start", "accuracy-only", "evidence")}
        return {"variants": rows, "suites": ["same"], "failed": []}

    shown: list[Path] = []

    def page(paths: Any, out: Path) -> dict[str, Any]:
        shown.extend(paths)
        return {"page": str(out)}

    monkeypatch.setattr(demo, "run_sweep", sweep)
    monkeypatch.setattr(os, "sched_getaffinity", lambda who: {*range(4)})
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(demo, "write_page", page)
    out = tmp_path / "demo"
    told = demo.run_demo(out, seed=4, compare=True, common=["sandbox.isolation=unsafe"])
    assert (told["seconds"], told["compared"]["suites"]) == (90.0, ["same"])
    assert shown[0] == out / "evidence/seed-4"
    assert shown[1:] == [out / f"{row}/seed-4/eval/same" for row in told["compared"]["variants"]]
    assert calls[0] == {
        "seeds": (4,), "rows": ["accuracy-only", "evidence", "cold-start"], "resume": False, "processes": 1,
        "shares": [{"OMP_NUM_THREADS": "2"}] * 2,
    }  # fmt: skip
    demo.run_demo(out, seed=4, compare=True, common=["sandbox.isolation=unsafe"])
    assert calls[1]["resume"] is True
    with pytest.raises(RecipeError, match="holds a demo with"):
        demo.run_demo(out, seed=4, compare=False)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("data mke lens --seed {seed} --out {prepared}/x", "No such command 'mke'"),
        ("sft --recipe codev-tiny --sed {seed} --out {prepared}/x", "No such option"),
        ("data make lens --seed some{seed} --out {prepared}/x", "should be a valid integer"),
    ],
)
def test_an_unknown_command_is_named_before_anything_runs(tmp_path: Path, command: str, why: str) -> None:
    variants = {"plain": {"model": "{prepared}/x", "data": ["{prepared}/x/train.parquet"]}}
    sweep = write(tmp_path / "sweeps", prepare={"x": command}, variants=variants, differences=[], held_out=[])
    out = tmp_path / "out"
    ended = vtune("rl", "--recipe", "codev-tiny", "--sweep", sweep, "--out", out, "--dry-run")
    assert ended.code == 2
    assert "`prepare.x` is not a command of vtune" in ended.err
    assert why in ended.err


@pytest.mark.parametrize("mark", ["{prepard}", "{sed}"])
def test_a_misspelt_placeholder_is_named(tmp_path: Path, mark: str) -> None:
    variants = {"plain": {"data": [f"{mark}/train.parquet"]}}
    with pytest.raises(RecipeError, match="not a placeholder; did you mean"):
        load_sweep(write(tmp_path / "sweeps", variants=variants, differences=[]), RECIPE, [])
