import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.runs.commands import setting, vtune
from vtune.advantage.recipe import PAPER
from vtune.config import find
from vtune.errors import DataError, RecipeError, RunFailed
from vtune.report.sweep import render_sweeps
from vtune.runs.report import run_report
from vtune.runs.rl import doubts
from vtune.runs.sweep import Plan, check_failed, load_sweep, plan_sweep, run_sweep

SWEEP: dict[str, Any] = {
    "seeds": [3, 5],
    "last_steps": 2,
    "variants": {
        "plain": {},
        "sharp": {
            "loss.clip_high": 0.3,
            "credit": {"beta": 0.25, "tools": {"zoom": {"similarity": 0.7, "confidence": 0.5}}},
        },
    },
    "differences": [["sharp", "plain"]],
    "held_out": {"suite": "lens", "settings": {}},
}
RECIPE = find("codev-tiny", "recipes.rl")


def write(folder: Path, **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(SWEEP | changes))
    return path


class Runs:
    """Takes the place of processes: notes the commands, and writes what they would leave."""

    def __init__(self) -> None:
        self.words: list[list[str]] = []
        self.fails: dict[str, int] = {}
        """Part of a run folder's path -> status that a command about it ends with."""
        self.interrupted = ""

    def __call__(self, words: Sequence[str], *, log: Path, result: Path | None) -> int:
        self.words.append(list(words))
        out = Path(words[words.index("--out") + 1])
        out.mkdir(exist_ok=True)
        if words[0] == "rl":
            given = yaml.safe_load(Path(words[words.index("--recipe") + 1]).read_text())
            (out / "recipe.yaml").write_text(yaml.safe_dump(given))
            (out / "environment.json").write_text(json.dumps({"processes": 1, "data": {}}))
            self._train(given, out)
        log.write_text("epoch one\nerror: no more memory\n")
        for name, code in self.fails.items():
            if name in str(out):
                return code
        if self.interrupted and self.interrupted in str(out):
            raise SystemExit(130)
        if words[0] == "rl" and result is not None:
            result.write_text("{}")
        elif words[0] == "eval":
            self._evaluate(Path(words[words.index("--suite") + 1]), out)
        return 0

    def _train(self, given: dict[str, Any], out: Path) -> None:
        sharp = given["loss"]["clip_high"] == 0.3
        row = {"source": "all", "entropy": 1.0 + given["seed"] / 10, "tool_calls": 2.0}
        row |= {f"calls_{status}": 0 for status in ("blocked", "timeout", "killed")}
        row |= {"calls_ok": 6, "calls_error": 2, "calls_infra": 2, "accuracy": 0.5 + 0.25 * sharp}
        lines = [{"step": 0, **row, "accuracy": 0.0}, {"step": 1, **row}, {"step": 2, **row}]
        (out / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    def _evaluate(self, suite: Path, out: Path) -> None:
        seed = 3 if "seed-3" in str(out) else 5
        score = {"plain": {3: 0.4, 5: 0.6}, "sharp": {3: 0.5, 5: 0.9}}[out.parent.parent.name][seed]
        given = yaml.safe_load(suite.read_text())
        results = {"score": {"score": score, "n": 6}, "suite": given, "environment": {"data": self.prints}}
        (out / "results.json").write_text(json.dumps(results))

    prints: dict[str, str] = {}  # noqa: RUF012


@pytest.fixture
def runs() -> Runs:
    return Runs()


@pytest.fixture
def plan(tiny: Path, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Four runs on puzzles that are there; their fingerprints are not looked at."""
    monkeypatch.setattr("vtune.runs.sweep.fingerprint", lambda path: None)
    monkeypatch.setattr("vtune.runs.sweep.fingerprints", lambda suite: {})
    return load_sweep(write(tmp_path / "sweeps", held_out=held_out(lens)), RECIPE, words(tiny, lens))


def words(tiny: Path, lens: Path) -> list[str]:
    return [f"model={tiny}", f"data=[{lens / 'train.parquet'}]", "steps=3", "update.threads=1"]


def held_out(lens: Path) -> dict[str, Any]:
    return {"suite": "lens", "settings": {"data": [str(lens / "heldout.parquet")], "threads": 1}}


def sweep(plan: Plan, out: Path, runs: Runs, *, resume: bool = False) -> dict[str, Any]:
    return run_sweep(plan, out, resume=resume, processes=1, start=runs)


def mean(table: dict[str, Any], part: str, row: str, number: str) -> tuple[float, float, float]:
    found = table[part][row][number]
    return found["value"], found["low"], found["high"]


def test_every_variant_is_run_with_every_seed_and_evaluated(plan: Plan, tmp_path: Path, runs: Runs) -> None:
    out = tmp_path / "out"
    table = sweep(plan, out, runs)
    order = [Path(w[w.index("--out") + 1]).relative_to(out).as_posix() for w in runs.words]
    folders = ["plain/seed-3", "sharp/seed-3", "plain/seed-5", "sharp/seed-5"]
    assert order == [name for folder in folders for name in (folder, f"{folder}/eval")]
    recipe = yaml.safe_load((out / "sharp/seed-5.yaml").read_text())
    assert (recipe["seed"], recipe["loss"]["clip_high"], recipe["credit"]["beta"]) == (5, 0.3, 0.25)
    assert yaml.safe_load((out / "plain/seed-5.yaml").read_text())["loss"]["clip_high"] == 0.2
    assert (table["unfinished"], table["failed"]) == ([], [])
    assert not any("--resume" in w for w in runs.words)


def test_the_table_has_means_over_seeds_and_paired_differences(
    plan: Plan, tmp_path: Path, runs: Runs
) -> None:
    table = sweep(plan, tmp_path / "out", runs)
    t = 12.7062047
    assert mean(table, "variants", "plain", "held-out accuracy") == pytest.approx(
        (0.5, 0.5 - t * 0.1, 0.5 + t * 0.1), abs=1e-6
    )
    # Seed by seed 0.1 and 0.3: their own spread, not that of the variants.
    assert mean(table, "differences", "sharp - plain", "held-out accuracy") == pytest.approx(
        (0.2, 0.2 - t * 0.1, 0.2 + t * 0.1), abs=1e-6
    )
    # The first of three steps is none of the last two.
    assert mean(table, "variants", "plain", "accuracy") == pytest.approx((0.5, 0.5, 0.5))
    assert mean(table, "differences", "sharp - plain", "accuracy") == pytest.approx((0.25, 0.25, 0.25))
    assert table["variants"]["plain"]["entropy"]["value"] == pytest.approx(1.4)
    assert table["variants"]["plain"]["tool calls"]["value"] == 2.0
    # Of ten calls two failed by the model's doing, and two by ours.
    assert table["variants"]["plain"]["call errors"]["value"] == pytest.approx(0.2)
    assert table["variants"]["plain"]["seeds"] == 2


def test_a_report_shows_the_table_again(
    plan: Plan, tmp_path: Path, runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    table = sweep(plan, out, runs)
    del table["failed"]
    assert run_report([out])["sweeps"] == [table]
    assert json.loads((out / "table.json").read_text()) == table
    shown = vtune("report", out)
    assert shown.code == 0
    for word in ("held-out accuracy", "call errors", "sharp - plain", "Student's t", "0.5 [-0.7706, 1.771]"):
        assert word in shown.out
    assert run_report([out / "plain" / "seed-3"])["runs"][0]["name"] == "seed-3"  # type: ignore[index]


def test_a_failing_run_costs_no_other_and_is_named(plan: Plan, tmp_path: Path, runs: Runs) -> None:
    runs.fails = {"sharp/seed-3": -9}
    table = sweep(plan, tmp_path / "out", runs)
    assert len(runs.words) == 7  # it has nothing to be evaluated
    assert table["unfinished"] == ["sharp/seed-3"]
    assert table["variants"]["sharp"]["seeds"] == table["differences"]["sharp - plain"]["seeds"] == 1
    assert table["variants"]["sharp"]["held-out accuracy"] == {
        "value": 0.9,
        "low": None,
        "high": None,
        "n": 1,
    }
    with pytest.raises(RunFailed, match="no more memory") as caught:
        check_failed(table["failed"])
    assert "sharp/seed-3: training was killed by signal 9" in str(caught.value)
    assert "--resume" in caught.value.fix
    render_sweeps([table])


def test_a_mean_of_fewer_runs_than_there_are_says_so(plan: Plan, tmp_path: Path, runs: Runs) -> None:
    runs.fails = {"sharp/seed-3/eval": 1}
    table = sweep(plan, tmp_path / "out", runs)
    row = table["variants"]["sharp"]
    assert (row["seeds"], row["accuracy"]["n"], row["held-out accuracy"]["n"]) == (2, 2, 1)
    difference = table["differences"]["sharp - plain"]
    assert (difference["seeds"], difference["held-out accuracy"]["n"]) == (2, 1)
    assert "(of 1)" in vtune("report", tmp_path / "out").out


def test_a_sweep_goes_on_where_it_stopped(plan: Plan, tmp_path: Path, runs: Runs) -> None:
    out = tmp_path / "out"
    runs.interrupted = "sharp/seed-3"
    with pytest.raises(SystemExit):
        sweep(plan, out, runs)
    states = plan_sweep(plan, out, check=lambda recipe: {"missing": []}, resume=True, processes=1)["runs"]
    assert states["plain/seed-3"] == "finished"
    assert (states["sharp/seed-3"], states["plain/seed-5"]) == ("to go on", "to start")
    runs.interrupted, runs.words = "", []
    with pytest.raises(RecipeError, match="holds a sweep already"):
        sweep(plan, out, runs)
    assert sweep(plan, out, runs, resume=True)["unfinished"] == []
    assert [("--resume" in w, w[0]) for w in runs.words[:3]] == [(True, "rl"), (False, "eval"), (False, "rl")]
    runs.words = []
    assert sweep(plan, out, runs, resume=True)["unfinished"] == []
    assert runs.words == []


def test_what_a_folder_began_with_cannot_change(
    plan: Plan, tiny: Path, lens: Path, tmp_path: Path, runs: Runs
) -> None:
    out = tmp_path / "out"
    with pytest.raises(RecipeError, match="holds no sweep to resume"):
        sweep(plan, out, runs, resume=True)
    sweep(plan, out, runs)
    held = held_out(lens)
    path = write(tmp_path / "sweeps", held_out=held, seeds=[3, 5, 8])
    more = load_sweep(path, RECIPE, words(tiny, lens))
    runs.words = []
    sweep(more, out, runs, resume=True)
    assert {Path(w[w.index("--out") + 1]).relative_to(out).parts[1] for w in runs.words} == {"seed-8"}
    other = load_sweep(path, RECIPE, [*words(tiny, lens), "group_size=4"])
    with pytest.raises(RecipeError, match="differs in group_size"):
        sweep(other, out, runs, resume=True)
    held["settings"]["rollouts"] = 2
    other = load_sweep(write(tmp_path / "sweeps", held_out=held), RECIPE, words(tiny, lens))
    with pytest.raises(RecipeError, match=r"the suite is not the one .* differs in rollouts"):
        sweep(other, out, runs, resume=True)
    results = out / "plain/seed-3/eval/results.json"
    results.write_text(results.read_text().replace('"data": {}', '"data": {"x": "y"}'))
    with pytest.raises(DataError, match="evaluated on other data"):
        sweep(more, out, runs, resume=True)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"variants": {"a": {"loss.clip_hihg": 1}, "b": {"steps": "x"}}, "differences": []},
     r"(?s)variant `a`.*unknown key `loss.clip_hihg`; did you mean `clip_high`.*variant `b`.*`steps`"),
    ({"variants": {"a/b": {}}, "differences": []}, "is no name of a folder"),
    ({"variants": {"a": {"seed": 1}}, "differences": []}, "sets `seed`"),
    ({"seeds": [1, 1]}, "a seed is given twice"),
    ({"seeds": []}, "at least 1 item"),
    ({"differences": [["sharp", "flat"]]}, "`flat`, which is none of the variants"),
    ({"differences": [["sharp", "sharp"]]}, "with itself"),
    ({"last_steps": 101}, "variant `plain` has 100 steps, and last_steps is 101"),
    ({"variants": {"a": {"steps": 1}, "b": {}}, "differences": []}, "`a` has 1 steps, and last_steps is 2"),
    ({"variants": {"table.json": {}}, "differences": []}, "is no name of a folder"),
    ({"held_out": {"suite": "lens", "settings": {"rollots": 1}}}, "(?s)`held_out`.*did you mean `rollouts`"),
    ({"zeal": 1}, "unknown key `zeal`"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_what_is_wrong_is_named_before_anything_starts(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match=message):
        load_sweep(write(tmp_path, **changes), RECIPE, [])


@pytest.mark.parametrize("key", ["loss.clip_high", "credit.beta", "seed"])
def test_a_setting_for_all_variants_that_one_of_them_hides_is_refused(key: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="without effect"):
        load_sweep(write(tmp_path), RECIPE, [f"{key}=1"])


def test_a_dry_run_plans_all_and_starts_nothing(tiny: Path, lens: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "sweeps", held_out=held_out(lens))
    given = setting(model=tiny, data=f"[{lens / 'train.parquet'}]", steps=3)
    command = [
        "rl",
        "--recipe",
        "codev-tiny",
        "--sweep",
        path,
        "--out",
        tmp_path / "out",
        *given,
        "--dry-run",
    ]
    told = vtune(*command, "--json")
    assert told.code == 0, told.err
    document = json.loads(told.out)
    assert document["runs"] == {
        f"{variant}/seed-{seed}": "to start" for seed in (3, 5) for variant in ("plain", "sharp")
    }
    assert document["variants"]["sharp"]["samples"] == 16
    shown = vtune(*command)
    assert "# each run of plain, sharp:" in shown.out
    assert yaml.safe_load(shown.out)["seeds"] == [3, 5]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "recipe", "held_out"),
    [("credit-tiny", "credit-tiny", True), ("credit-algorithms", "credit-search-4b", False)],
)
def test_a_shipped_sweep_tells_algorithms_apart_and_each_with_transfer_from_without(
    name: str, recipe: str, held_out: bool
) -> None:
    plan = load_sweep(find(name, "recipes.sweep"), find(recipe, "recipes.rl"), [])
    assert (plan.suite is not None) == held_out
    assert len(plan.recipes) == 6
    assert {varied.loss.algorithm for varied in plan.recipes.values()} == {"grpo", "gspo", "sapo"}
    assert [doubts(varied) for varied in plan.recipes.values()] == [[]] * 6
    for first, second in plan.sweep.differences:
        one, other = (plan.recipes[name].model_dump() for name in (first, second))
        assert one.pop("credit") is not None
        assert other.pop("credit") is None
        assert one == other


@pytest.mark.parametrize(
    ("name", "recipe"),
    [("credit-ablation-tiny", "credit-tiny"), ("credit-ablation", "credit-search-4b")],
)
def test_a_shipped_sweep_has_the_rows_of_table_3_and_varies_the_gates(name: str, recipe: str) -> None:
    plan = load_sweep(find(name, "recipes.sweep"), find(recipe, "recipes.rl"), [])
    credits = {variant: varied.credit for variant, varied in plan.recipes.items()}
    rows = {
        v: (c.beta, c.support, c.clip) for v, c in credits.items() if c is not None and c.tools == PAPER.tools
    }
    assert rows == {
        **{f"beta-{beta}": (beta, True, True) for beta in (0.1, 0.25, 0.4, 0.6, 0.8, 1.0)},
        "no-support": (1.0, False, True),
        "no-clip": (1.0, True, False),
    }
    assert credits["grpo"] is None
    assert [v for v, c in credits.items() if c is not None and c.tools != PAPER.tools and c.beta == 0.25] == [
        "theta-low", "theta-high", "alpha-low", "alpha-high",
    ]  # fmt: skip


def test_an_algorithm_that_one_on_policy_update_makes_another_of_is_warned_of(
    tiny: Path, lens: Path, tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("vtune.runs.sweep.fingerprint", lambda path: None)
    soft = {"algorithm": "sapo", "tau_positive": 1.0, "tau_negative": 1.05}
    soft |= {"aggregation": "sequence_mean", "kl_weight": 0.0}
    mine = write(tmp_path / "sweeps", held_out=None, variants={"plain": {}, "sharp": {"loss": soft}})
    plan = load_sweep(mine, RECIPE, words(tiny, lens))
    assert [bool(doubts(recipe)) for recipe in plan.recipes.values()] == [False, True]
    assert not doubts(plan.recipes["sharp"].model_copy(update={"updates_per_step": 2}))
    sweep(plan, tmp_path / "out", runs)
    assert capsys.readouterr().err.count("warning: with one on-policy update a step") == 1
    given = [option for word in words(tiny, lens) for option in ("--set", word)]
    given += ["--set", f"loss={json.dumps(soft)}", "--dry-run"]
    told = vtune("rl", "--recipe", RECIPE, *given)
    assert "# warning: with one on-policy update a step, loss.algorithm sapo" in told.out


def test_an_interrupted_sweep_says_what_to_type(
    tiny: Path, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: object, **more: object) -> None:
        raise SystemExit(130)

    monkeypatch.setattr("vtune.runs.sweep.run_sweep", interrupted)
    ended = vtune("rl", "--recipe", "codev-tiny", "--sweep", write(tmp_path), "--set", "steps=3", "--resume")
    assert ended.code == 130
    assert (
        f"to go on: vtune rl --recipe codev-tiny --sweep {tmp_path}/mine.yaml --set steps=3 --resume\n"
        in ended.err
    )


def test_a_sweep_of_real_runs(
    tiny: Path, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def inside(words: Sequence[str], *, log: Path, result: Path | None) -> int:
        ended = vtune(*words)
        log.write_text(ended.err)
        if result and ended.code == 0:
            result.write_text(ended.out)
        return ended.code

    monkeypatch.setitem(run_sweep.__kwdefaults__, "start", inside)
    held = held_out(lens)
    held["settings"] |= {"rollout.max_new_tokens": 8}
    path = write(
        tmp_path / "sweeps", seeds=[3], last_steps=1, variants={"plain": {}}, differences=[], held_out=held
    )
    given = setting(
        model=tiny,
        data=f"[{lens / 'train.parquet'}]",
        steps=1,
        prompts_per_step=1,
        group_size=2,
        rollout__max_new_tokens=8,
        update__threads=1,
    )
    out = tmp_path / "out"
    ended = vtune("rl", "--recipe", "codev-tiny", "--sweep", path, "--out", out, *given, "--json")
    assert ended.code == 0, ended.err
    table = json.loads(ended.out)
    assert table["unfinished"] == []
    row = table["variants"]["plain"]
    assert row["held-out accuracy"]["value"] is not None
    assert row["entropy"]["value"] > 0
    assert json.loads((out / "plain/seed-3/done.json").read_text())["steps"] == 1
