import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.runs.commands import setting, vtune
from vtune.advantage.recipe import PAPER
from vtune.config import find, load_recipe
from vtune.errors import DataError, RecipeError, RunFailed
from vtune.report.sweep import render_sweeps
from vtune.runs.evaluate.evaluation import judged_as_shown
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.recipes.shipped import shipped_recipes
from vtune.runs.report.document import run_report
from vtune.runs.sweep.recipe import Plan, load_sweep
from vtune.runs.sweep.runs import check_failed, plan_sweep, run_sweep
from vtune.runs.train.rl import doubts

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
    "held_out": [{"suite": "lens", "settings": {}}],
}
RECIPE = find("codev-tiny", "recipes.rl")
START: dict[str, Any] = {"model": None, "settings": {}}


def write(folder: Path, **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(SWEEP | changes, sort_keys=False))
    return path


class Ended:
    """A command that has already ended, possibly after a while."""

    def __init__(self, code: int, *, looks: int = 0) -> None:
        self.code = code
        self.looks = looks
        self.signals: list[int] = []

    def poll(self) -> int | None:
        if self.signals:
            return 130
        self.looks -= 1
        return self.code if self.looks < 0 else None

    def send(self, number: int) -> None:
        self.signals.append(number)


def inside(words: Sequence[str], *, log: Path, result: Path | None, **more: Any) -> Ended:
    """Runs a command in this process, which has imported everything."""
    ended = vtune(*words)
    log.write_text(ended.err)
    if result and ended.code == 0:
        result.write_text(ended.out)
    return Ended(ended.code)


class Runs:
    """Replaces processes: records the commands and writes their output files."""

    def __init__(self) -> None:
        self.words: list[list[str]] = []
        self.fails: dict[str, int] = {}
        """Part of a run folder's path -> exit status of a command about that folder."""
        self.interrupted = ""

    def __call__(self, words: Sequence[str], *, log: Path, result: Path | None, **more: Any) -> Ended:
        return Ended(self._run(words, log, result))

    def _run(self, words: Sequence[str], log: Path, result: Path | None) -> int:
        self.words.append(list(words))
        out = Path(words[words.index("--out") + 1])
        out.mkdir(parents=True, exist_ok=True)
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
            self._evaluate(Path(words[words.index("--suite") + 1]), words[words.index("--model") + 1], out)
        return 0

    def _train(self, given: dict[str, Any], out: Path) -> None:
        sharp = given["loss"].get("clip_high") == 0.3
        row = {"source": "all", "entropy": 1.0 + given["seed"] / 10, "tool_calls": 2.0}
        row |= {f"calls_{status}": 0 for status in ("blocked", "timeout", "killed")}
        row |= {"calls_ok": 6, "calls_error": 2, "calls_infra": 2, "accuracy": 0.5 + 0.25 * sharp}
        lines = [{"step": 0, **row, "accuracy": 0.0}, {"step": 1, **row}, {"step": 2, **row}]
        (out / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    def _evaluate(self, suite: Path, model: str, out: Path) -> None:
        variant = next((name for name in ("plain", "sharp") if name in out.parts), "base")
        seed = 3 if variant == "base" or "seed-3" in out.parts else 5
        score = {"plain": {3: 0.4, 5: 0.6}, "sharp": {3: 0.5, 5: 0.9}, "base": {3: 0.25}}[variant][seed]
        nobody = out.name == "dark" and variant == "sharp"
        looks = {
            "n": 6,
            "n_unscored": 0,
            "no_shares": "6 of 6 could not be audited: no judge" if nobody else None,
            "faithful_of_all": None if nobody else estimate(score / 2),
            "faithful_of_correct": None if nobody else estimate(0.5),
            "tool_calls": estimate(1.5),
        }
        results = {
            "score": {"score": score, "n": 6} | ({"fsp": 0.75} if out.name == "dark" else {}),
            "faithfulness": looks,
            "model": model,
            # As `vtune eval` records a suite that blackens what calls show.
            "suite": judged_as_shown(load_recipe(suite, EvalSuite)).model_dump(mode="json"),
            "environment": {"data": self.prints},
        }
        (out / "results.json").write_text(json.dumps(results))

    prints: dict[str, str] = {}  # noqa: RUF012


def estimate(value: float) -> dict[str, float]:
    return {"value": value, "low": value - 0.125, "high": value + 0.125}


@pytest.fixture
def runs() -> Runs:
    return Runs()


@pytest.fixture
def plan(tiny: Path, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A plan of four runs on existing puzzles; fingerprints are not checked."""
    monkeypatch.setattr("vtune.runs.sweep.runs.fingerprint", lambda path: None)
    monkeypatch.setattr("vtune.runs.sweep.runs.fingerprints", lambda suite: {})
    return load_sweep(write(tmp_path / "sweeps", held_out=held_out(lens)), RECIPE, words(tiny, lens))


def words(tiny: Path, lens: Path) -> list[str]:
    return [f"model={tiny}", f"data=[{lens / 'train.parquet'}]", "steps=3", "update.threads=1"]


def held_out(lens: Path, **more: Any) -> list[dict[str, Any]]:
    return [{"suite": "lens", "settings": {"data": [str(lens / "heldout.parquet")], "threads": 1, **more}}]


def two_suites(lens: Path) -> list[dict[str, Any]]:
    return held_out(lens) + [one | {"name": "dark"} for one in held_out(lens, call_images="black")]


def sweep(plan: Plan, out: Path, runs: Runs, *, resume: bool = False) -> dict[str, Any]:
    return run_sweep(plan, out, resume=resume, processes=1, start=runs)


def mean(
    table: dict[str, Any], part: str, row: str, number: str, *, suite: str = ""
) -> tuple[float, float, float]:
    numbers = table[part][row]
    found = (numbers["held_out"][suite] if suite else numbers)[number]
    return found["value"], found["low"], found["high"]


def test_every_variant_is_run_with_every_seed_and_evaluated(plan: Plan, tmp_path: Path, runs: Runs) -> None:
    out = tmp_path / "out"
    table = sweep(plan, out, runs)
    order = [Path(w[w.index("--out") + 1]).relative_to(out).as_posix() for w in runs.words]
    folders = ["plain/seed-3", "sharp/seed-3", "plain/seed-5", "sharp/seed-5"]
    assert order == [name for folder in folders for name in (folder, f"{folder}/eval/lens")]
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
    assert mean(table, "variants", "plain", "accuracy", suite="lens") == pytest.approx(
        (0.5, 0.5 - t * 0.1, 0.5 + t * 0.1), abs=1e-6
    )
    # By seed 0.1 and 0.3: their own spread, not that of the variants.
    assert mean(table, "differences", "sharp - plain", "accuracy", suite="lens") == pytest.approx(
        (0.2, 0.2 - t * 0.1, 0.2 + t * 0.1), abs=1e-6
    )
    # The first of three steps is not among the last two; identical seeds have no interval.
    assert mean(table, "variants", "plain", "accuracy") == (pytest.approx(0.5), None, None)
    assert mean(table, "differences", "sharp - plain", "accuracy") == (pytest.approx(0.25), None, None)
    assert table["variants"]["plain"]["entropy"]["value"] == pytest.approx(1.4)
    assert table["variants"]["plain"]["tool calls"]["value"] == 2.0
    # Out of ten calls, two failed because of the model, and two because of us.
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
    for word in (
        "held out: lens",
        "faithful of right",
        "call errors",
        "sharp - plain",
        "Student's t",
        "[-77.1, 177.1]",
    ):
        assert word in shown.out
    assert run_report([out / "plain" / "seed-3"])["runs"][0]["name"] == "seed-3"  # type: ignore[index]


def test_a_failing_run_affects_no_other_and_is_named(plan: Plan, tmp_path: Path, runs: Runs) -> None:
    runs.fails = {"sharp/seed-3": -9}
    table = sweep(plan, tmp_path / "out", runs)
    assert len(runs.words) == 7  # it has nothing to evaluate
    assert table["unfinished"] == ["sharp/seed-3"]
    assert table["variants"]["sharp"]["seeds"] == table["differences"]["sharp - plain"]["seeds"] == 1
    assert table["variants"]["sharp"]["held_out"]["lens"]["accuracy"] == {
        "value": 0.9,
        "low": None,
        "high": None,
        "n": 1,
        "values": [0.9],
    }
    with pytest.raises(RunFailed, match="no more memory") as caught:
        check_failed(table["failed"])
    assert "sharp/seed-3: training was killed by signal 9" in str(caught.value)
    assert "--resume" in caught.value.fix
    render_sweeps([table])


def test_a_run_that_failed_by_its_settings_is_retried_once_its_folder_is_removed(
    plan: Plan, tiny: Path, lens: Path, tmp_path: Path, runs: Runs
) -> None:
    out = tmp_path / "out"
    runs.fails = {"sharp/seed-3": 1, "sharp/seed-5": 1}
    sweep(plan, out, runs)
    variants = {"plain": {}, "sharp": {**SWEEP["variants"]["sharp"], "update.learning_rate": 1.0e-7}}
    file = write(tmp_path / "sweeps", held_out=held_out(lens), variants=variants)
    corrected = load_sweep(file, RECIPE, words(tiny, lens))
    runs.fails, runs.words = {}, []
    for seed in (3, 5):
        folder = out / f"sharp/seed-{seed}"
        with pytest.raises(RecipeError, match=r"differs in update\.learning_rate") as caught:
            sweep(corrected, out, runs, resume=True)
        assert f"remove {folder} to do this run anew" in caught.value.fix
        shutil.rmtree(folder)
    assert sweep(corrected, out, runs, resume=True)["unfinished"] == []
    assert [word[0] for word in runs.words] == ["rl", "eval"] * 2, "of the others none is done again"


def test_a_mean_over_fewer_runs_says_so(plan: Plan, tmp_path: Path, runs: Runs) -> None:
    runs.fails = {"sharp/seed-3/eval": 1}
    table = sweep(plan, tmp_path / "out", runs)
    row = table["variants"]["sharp"]
    assert (row["seeds"], row["accuracy"]["n"], row["held_out"]["lens"]["accuracy"]["n"]) == (2, 2, 1)
    difference = table["differences"]["sharp - plain"]
    assert (difference["seeds"], difference["held_out"]["lens"]["accuracy"]["n"]) == (2, 1)
    assert "(of 1)" in vtune("report", tmp_path / "out").out


def test_a_sweep_resumes_where_it_stopped(plan: Plan, tmp_path: Path, runs: Runs) -> None:
    out = tmp_path / "out"
    runs.interrupted = "sharp/seed-3"
    with pytest.raises(SystemExit):
        sweep(plan, out, runs)
    states = plan_sweep(plan, out, check=lambda recipe: {"missing": []}, resume=True, processes=1)["runs"]
    assert states["plain/seed-3"] == "finished"
    assert (states["sharp/seed-3"], states["plain/seed-5"]) == ("to continue", "to start")
    runs.interrupted, runs.words = "", []
    with pytest.raises(RecipeError, match="holds a sweep already"):
        sweep(plan, out, runs)
    assert sweep(plan, out, runs, resume=True)["unfinished"] == []
    assert [("--resume" in w, w[0]) for w in runs.words[:3]] == [(True, "rl"), (False, "eval"), (False, "rl")]
    runs.words = []
    assert sweep(plan, out, runs, resume=True)["unfinished"] == []
    assert runs.words == []


def test_a_sweeps_settings_cannot_change_later(
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
    held[0]["settings"]["rollouts"] = 2
    other = load_sweep(write(tmp_path / "sweeps", held_out=held), RECIPE, words(tiny, lens))
    with pytest.raises(RecipeError, match=r"the suite is not the one .* differs in rollouts"):
        sweep(other, out, runs, resume=True)
    results = out / "plain/seed-3/eval/lens/results.json"
    results.write_text(results.read_text().replace('"data": {}', '"data": {"x": "y"}'))
    with pytest.raises(DataError, match="evaluated on other data"):
        sweep(more, out, runs, resume=True)


def with_a_start(tiny: Path, lens: Path, folder: Path, **changes: Any) -> Plan:
    """Two suites, and a model that is only evaluated, with black pictures on both."""
    start = {"model": str(tiny), "settings": {"call_images": "black"}}
    values: dict[str, Any] = {
        "held_out": two_suites(lens),
        "untrained": {"base": start},
        "differences": [["sharp", "plain"], ["plain", "base"], ["base", "sharp"]],
    }
    return load_sweep(write(folder, **(values | changes)), RECIPE, words(tiny, lens))


@pytest.mark.usefixtures("plan")  # for its fingerprints
def test_every_suite_has_its_accuracy_and_faithfulness_with_differences(
    tiny: Path, lens: Path, tmp_path: Path, runs: Runs
) -> None:
    table = sweep(with_a_start(tiny, lens, tmp_path / "two"), tmp_path / "out", runs)
    assert table["suites"] == ["lens", "dark"]
    t = 12.7062047
    for suite in table["suites"]:
        assert mean(table, "variants", "plain", "faithful", suite=suite) == pytest.approx(
            (0.25, 0.25 - t * 0.05, 0.25 + t * 0.05), abs=1e-6
        )
    assert mean(table, "differences", "sharp - plain", "faithful", suite="lens") == pytest.approx(
        (0.1, 0.1 - t * 0.05, 0.1 + t * 0.05), abs=1e-6
    )
    # Only one suite distinguishes HR-Bench's parts.
    assert table["variants"]["plain"]["held_out"]["lens"]["fsp"] is None
    assert mean(table, "variants", "plain", "fsp", suite="dark") == (0.75, None, None)
    assert table["runs"]["sharp/seed-5"]["held_out"]["lens"]["faithful"] == 0.45


@pytest.mark.usefixtures("plan")
def test_unknown_shares_are_null_with_the_reason(tiny: Path, lens: Path, tmp_path: Path, runs: Runs) -> None:
    out = tmp_path / "out"
    table = sweep(with_a_start(tiny, lens, tmp_path / "two"), out, runs)
    row = table["variants"]["sharp"]["held_out"]["dark"]
    assert (row["faithful"], row["faithful of right"]) == (None, None)
    assert row["no_shares"] == "6 of 6 could not be audited: no judge"
    assert row["accuracy"]["value"] == pytest.approx(0.7)
    difference = table["differences"]["sharp - plain"]["held_out"]["dark"]
    assert (difference["faithful"], difference["no_shares"]) == (None, row["no_shares"])
    assert table["variants"]["sharp"]["held_out"]["lens"]["no_shares"] is None
    assert "no shares for sharp: 6 of 6 could not be audited" in vtune("report", out).out


@pytest.mark.usefixtures("plan")
def test_an_untrained_model_is_evaluated_once_and_compared_with_every_seed(
    tiny: Path, lens: Path, tmp_path: Path, runs: Runs
) -> None:
    out = tmp_path / "out"
    planned = with_a_start(tiny, lens, tmp_path / "two")
    table = sweep(planned, out, runs)
    mine = [w for w in runs.words if out / "base" in Path(w[w.index("--out") + 1]).parents]
    assert [(w[0], w[w.index("--model") + 1]) for w in mine] == [("eval", str(tiny.resolve()))] * 2
    assert runs.words[:2] == mine
    assert [yaml.safe_load(Path(w[2]).read_text())["call_images"] for w in mine] == ["black"] * 2
    assert yaml.safe_load((out / "held-out/lens.yaml").read_text())["call_images"] == "shown"
    row = table["variants"]["base"]
    assert (row["seeds"], row["entropy"]) == (None, None)
    # A single evaluation has the interval over its own questions.
    assert mean(table, "variants", "base", "faithful", suite="lens") == (0.125, 0.0, 0.25)
    assert [table["differences"][pair]["seeds"] for pair in ("plain - base", "base - sharp")] == [2, 2]
    # 0.4 and 0.6 minus 0.25, and the other way round 0.5 and 0.9.
    assert mean(table, "differences", "plain - base", "accuracy", suite="lens")[0] == pytest.approx(0.25)
    assert mean(table, "differences", "base - sharp", "accuracy", suite="lens")[0] == pytest.approx(-0.45)
    states = plan_sweep(planned, out, check=lambda recipe: {"missing": []}, resume=True, processes=1)["runs"]
    assert set(states.values()) == {"finished"}
    runs.words = []
    assert sweep(planned, out, runs, resume=True)["unfinished"] == []
    assert runs.words == []
    vtune("report", out)


@pytest.mark.usefixtures("plan")
def test_two_untrained_models_have_one_difference_and_another_model_is_not_the_same(
    tiny: Path, lens: Path, tmp_path: Path, runs: Runs
) -> None:
    out = tmp_path / "out"
    two = {"untrained": {"base": START, "base-2": START}, "differences": [["base", "base-2"]]}
    table = sweep(with_a_start(tiny, lens, tmp_path / "two", **two), out, runs)
    assert table["differences"]["base - base-2"]["seeds"] == 1
    assert mean(table, "differences", "base - base-2", "accuracy", suite="lens") == (0.0, None, None)
    results = out / "base/eval/dark/results.json"
    results.write_text(results.read_text().replace(str(tiny.resolve()), "models/other"))
    with pytest.raises(RecipeError, match=r"base/eval/dark is about the model models/other, not "):
        sweep(with_a_start(tiny, lens, tmp_path / "two", **two), out, runs, resume=True)


@pytest.mark.usefixtures("plan")
def test_a_failing_evaluation_affects_no_other(tiny: Path, lens: Path, tmp_path: Path, runs: Runs) -> None:
    runs.fails = {"plain/seed-3/eval/lens": 2}
    table = sweep(with_a_start(tiny, lens, tmp_path / "two"), tmp_path / "out", runs)
    assert table["unfinished"] == ["plain/seed-3/eval/lens"]
    assert [one["name"] for one in table["failed"]] == ["plain/seed-3: evaluation on lens"]
    row = table["variants"]["plain"]["held_out"]
    assert (row["lens"]["accuracy"]["n"], row["dark"]["accuracy"]["n"]) == (1, 2)


def test_a_folder_from_before_several_suites_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(SWEEP | {"held_out": None}))
    with pytest.raises(DataError, match="before there were tables of several suites"):
        run_report([tmp_path])


def test_a_dry_run_names_missing_models(lens: Path, tiny: Path, tmp_path: Path) -> None:
    missing = {"base": {"model": "models/nowhere", "settings": {}}, "start": START}
    planned = with_a_start(tiny, lens, tmp_path / "two", untrained=missing, differences=[])
    facts = plan_sweep(
        planned, tmp_path / "out", check=lambda recipe: {"missing": []}, resume=False, processes=1
    )
    assert facts["missing"] == ["model models/nowhere"]
    assert facts["runs"]["base"] == "to start"
    with pytest.raises(RecipeError, match="/dev/null/out cannot be written"):
        plan_sweep(
            planned, Path("/dev/null/out"), check=lambda recipe: {"missing": []}, resume=False, processes=1
        )


BAD: list[tuple[dict[str, Any], str]] = [
    ({"variants": {"a": {"loss.clip_hihg": 1}, "b": {"steps": "x"}}, "differences": []},
     r"(?s)variant `a`.*unknown key `loss.clip_hihg`; did you mean `clip_high`.*variant `b`.*`steps`"),
    ({"variants": {"a/b": {}}, "differences": []}, "is not a valid folder name"),
    ({"variants": {"a": {"seed": 1}}, "differences": []}, "sets `seed`"),
    ({"seeds": [1, 1]}, "a seed is given twice"),
    ({"seeds": []}, "give at least 1"),
    ({"differences": [["sharp", "flat"]]}, "`flat`, which is not one of the variants"),
    ({"differences": [["sharp", "sharp"]]}, "with itself"),
    ({"last_steps": 101}, "variant `plain` has 100 steps, and last_steps is 101"),
    ({"variants": {"a": {"steps": 1}, "b": {}}, "differences": []}, "`a` has 1 steps, and last_steps is 2"),
    ({"variants": {"table.json": {}}, "differences": []}, "is not a valid folder name"),
    ({"held_out": [{"suite": "lens", "settings": {"rollots": 1}}]}, "(?s)`held_out`.*mean `rollouts`"),
    ({"held_out": {"suite": "lens", "settings": {}}}, r"is a list of suites: write `- suite: NAME`"),
    ({"held_out": None}, r"is a list of suites.* or \[\] for none"),
    ({"held_out": SWEEP["held_out"] * 2}, "has `lens` twice: give one another `name`"),
    ({"held_out": [{"suite": "lens", "settings": {}, "name": "a/b"}]}, "is not a valid folder name"),
    ({"untrained": {"plain": START}}, "`plain` is a variant, and is also in `untrained`"),
    ({"untrained": {"a/b": START}}, "is not a valid folder name"),
    ({"untrained": {"base": START}, "held_out": []}, "only evaluated: name a suite in `held_out`"),
    ({"untrained": {"base": {"model": None, "settings": {"ofers": []}}}}, "(?s)untrained.base.*`offers`"),
    ({"zeal": 1}, "unknown key `zeal`"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_errors_are_named_before_anything_starts(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match=message):
        load_sweep(write(tmp_path, **changes), RECIPE, [])


@pytest.mark.parametrize("key", ["loss.clip_high", "credit.beta", "seed"])
def test_a_setting_for_all_variants_that_one_of_them_hides_is_refused(key: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"(has|have) no effect"):
        load_sweep(write(tmp_path), RECIPE, [f"{key}=1"])


def test_keys_of_the_sweep_itself_can_be_set(tmp_path: Path) -> None:
    path = write(tmp_path)
    plan = load_sweep(path, RECIPE, ["steps=1", "sweep.last_steps=1", "sweep.seeds=[7]"])
    assert (plan.sweep.last_steps, plan.sweep.seeds) == (1, (7,))
    assert plan.recipes["plain"].steps == 1
    with pytest.raises(RecipeError, match="unknown key `last_step`; did you mean `last_steps`"):
        load_sweep(path, RECIPE, ["sweep.last_step=1"])
    with pytest.raises(RecipeError, match=re.escape("lower it (`--set sweep.last_steps=1`)")):
        load_sweep(path, RECIPE, ["steps=1"])


def test_some_variants_are_run_now_and_others_later(
    tiny: Path, lens: Path, tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtune.runs.sweep.runs.fingerprint", lambda path: None)
    monkeypatch.setattr("vtune.runs.sweep.runs.fingerprints", lambda suite: {})
    monkeypatch.setitem(run_sweep.__kwdefaults__, "start", runs)
    path = write(tmp_path / "sweeps", held_out=held_out(lens))
    given = setting(model=tiny, data=f"[{lens / 'train.parquet'}]", steps=3, update__threads=1)
    out = tmp_path / "out"
    command = ["rl", "--recipe", "codev-tiny", "--sweep", path, "--out", out, *given, "--json"]
    first = json.loads(vtune(*command, "--only", "plain", "--jobs", "2").out)
    assert (list(first["variants"]), first["differences"], first["unfinished"]) == (["plain"], {}, [])
    assert {Path(w[w.index("--out") + 1]).parts[-2] for w in runs.words if w[0] == "rl"} == {"plain"}
    runs.words = []
    both = json.loads(vtune(*command, "--only", "sharp", "--resume").out)
    assert {Path(w[w.index("--out") + 1]).parts[-2] for w in runs.words if w[0] == "rl"} == {"sharp"}
    assert (set(both["variants"]), list(both["differences"])) == ({"plain", "sharp"}, ["sharp - plain"])
    assert both["variants"]["plain"] == first["variants"]["plain"]
    # A run that is no longer in the file costs nothing.
    write(
        tmp_path / "sweeps",
        held_out=held_out(lens),
        variants={"sharp": SWEEP["variants"]["sharp"]},
        differences=[],
    )
    alone = json.loads(vtune(*command, "--only", "sharp", "--resume").out)
    assert list(alone["variants"]) == ["sharp"]
    kept = (out / "sweep.yaml").read_text()
    (out / "sweep.yaml").write_text("- not\n- a sweep\n")
    broken = vtune(*command, "--only", "sharp", "--resume")
    assert (broken.code, "not the settings of a sweep" in broken.err) == (2, True)
    (out / "sweep.yaml").write_text(kept)
    missed = vtune(*command, "--only", "sharpe", "--resume")
    assert (missed.code, "the sweep has no variant `sharpe`" in missed.err) == (2, True)
    assert "did you mean `sharp`" in missed.err


@pytest.mark.parametrize(
    ("only", "message", "fix"),
    [
        ("plain,sharp", "no variant `plain,sharp`", "one name for each --only"),
        ("plain-0.5", "no variant `plain-0.5`", "`--only plain` runs it at all values of p"),
        ("start", "only models that are not trained", "plain, sharp"),
    ],
)
def test_an_unknown_variant_in_only_gets_a_suggestion(
    only: str, message: str, fix: str, tmp_path: Path
) -> None:
    path = write(
        tmp_path,
        axes={"p": [0.5, 0.9]},
        untrained={"start": START},
        held_out=[{"suite": "lens", "settings": {}}],
    )
    with pytest.raises(RecipeError, match=re.escape(message)) as caught:
        load_sweep(path, RECIPE, ["steps=3"], only=[only])
    assert fix in (caught.value.fix or "")


def test_a_dry_run_says_how_many_runs_are_concurrent(tiny: Path, lens: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "sweeps", held_out=held_out(lens))
    given = setting(model=tiny, data=f"[{lens / 'train.parquet'}]", steps=3)
    words = ["rl", "--recipe", "codev-tiny", "--sweep", path, "--out", tmp_path / "out"]
    command = [*words, *given, "--dry-run"]
    assert "# 4 runs at a time, which share this machine's memory" in vtune(*command, "--jobs", "9").out
    assert "runs at a time" not in vtune(*command).out


def test_sweep_options_need_a_sweep(tmp_path: Path) -> None:
    for option, value in (("--jobs", "2"), ("--only", "plain")):
        told = vtune("rl", "--recipe", "codev-tiny", "--out", tmp_path / "out", option, value)
        assert (told.code, "only with --sweep" in told.err) == (2, True)
    told = vtune("rl", "--recipe", "codev-tiny", "--set", "sweep.seeds=[0]", "--dry-run")
    assert (told.code, "need --sweep" in told.err) == (2, True)
    hosts = ("--gpus", "1", "--hostfile", tmp_path / "hosts")
    told = vtune("rl", "--recipe", "credit-tiny", "--sweep", "credit-tiny", "--jobs", "2", *hosts)
    assert (told.code, "runs on many machines go one by one" in told.err) == (2, True)


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
    ("name", "recipe"), [("credit-tiny", "credit-tiny"), ("credit-algorithms", "credit-search-4b")]
)
def test_a_shipped_sweep_compares_algorithms_with_and_without_transfer(name: str, recipe: str) -> None:
    plan = load_sweep(find(name, "recipes.sweep"), find(recipe, "recipes.rl"), [])
    assert plan.suites
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


ABLATIONS = [("codev-ablation", "codev", "model"), ("codev-ablation-tiny", "codev-tiny", "text")]


@pytest.mark.parametrize(("name", "recipe", "by"), ABLATIONS)
def test_a_shipped_sweep_has_the_rows_of_codevs_tables(name: str, recipe: str, by: str) -> None:
    plan = load_sweep(find(name, "recipes.sweep"), find(recipe, "recipes.rl"), [])
    codev = plan.recipes["codev"]
    assert {*plan.recipes} - {"weak-judge", "gpt-5-nano-judge"} == {
        "codev", "zero-rl", "accuracy-only", "consistency",
    }  # fmt: skip
    rewards = {variant: varied.reward for variant, varied in plan.recipes.items()}
    assert rewards["accuracy-only"] == codev.reward.model_copy(update={"tool": 0.0})
    asked = rewards["consistency"].consistency
    assert asked is not None
    assert (asked.weight, asked.by) == (0.5, by)
    assert rewards["consistency"].model_copy(update={"consistency": None}) == rewards["accuracy-only"]
    # The same reward, from the weights that are untrained in the other row.
    base = plan.untrained[next(row for row in plan.untrained if row != "cold-start-sft")]
    assert plan.recipes["zero-rl"] == codev.model_copy(update={"model": base.model})
    assert plan.untrained["cold-start-sft"].model == codev.model != base.model
    assert len(plan.suites) > 1


def test_the_weak_judge_variant_differs_only_in_the_judge() -> None:
    for name, recipe, row, key in (
        ("codev-ablation", "codev", "gpt-5-nano-judge", "judge"),
        ("codev-ablation-tiny", "codev-tiny", "weak-judge", "evidence"),
    ):
        plan = load_sweep(find(name, "recipes.sweep"), find(recipe, "recipes.rl"), [])
        strong, weak = (plan.recipes[variant].model_dump() for variant in ("codev", row))
        assert strong["reward"].pop(key) != weak["reward"].pop(key)
        assert strong == weak


def test_the_base_model_is_evaluated_without_tools_and_with_a_fitting_prompt() -> None:
    plan = load_sweep(find("codev-ablation", "recipes.sweep"), find("codev", "recipes.rl"), [])
    for name, suite in plan.suites_of("qwen2.5-vl-7b").items():
        assert (suite.offers, suite.rollout.prompt, suite.answer_in) == ((), "plain", "reply")
        assert plan.suites_of("cold-start-sft")[name] == plan.suites[name] != suite


COMMANDS = {
    entry.name: re.findall(rf"--recipe (\S+) --sweep {re.escape(entry.name)} ", entry.path.read_text())
    for entry in shipped_recipes()
    if entry.kind == "sweep"
}


def test_every_shipped_sweep_names_its_recipe() -> None:
    assert {"codev-ablation", "credit-tiny"} <= set(COMMANDS)
    assert {name for name, recipes in COMMANDS.items() if not recipes} == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_shipped_sweep_loads_with_its_recipe(name: str) -> None:
    for recipe in COMMANDS[name]:
        plan = load_sweep(find(name, "recipes.sweep"), find(recipe, "recipes.rl"), [])
        assert set(plan.recipes) == {row.name for row in plan.sweep.rows(plan.sweep.variants)}
        assert len(plan.suites) == len(plan.sweep.held_out)


@pytest.mark.parametrize(
    ("name", "recipe"), [("iou-schedules-tiny", "orsta-tiny"), ("iou-schedules", "orsta-7b")]
)
def test_a_shipped_sweep_has_the_schedules_of_figures_3_10_and_11(name: str, recipe: str) -> None:
    plan = load_sweep(find(name, "recipes.sweep"), find(recipe, "recipes.rl"), [])
    found = {v: varied.reward.iou for v, varied in plan.recipes.items()}
    assert {v: (iou.schedule, iou.thresholds) for v, iou in found.items() if iou and iou.target is None} == {
        "dynamic": ("staged", (0.85, 0.95, 0.99)),
        "fixed-50": ("fixed", (0.5,)),
        "fixed-99": ("fixed", (0.99,)),
        "loose": ("staged", (0.7, 0.8, 0.85)),
        "strict": ("staged", (0.9, 0.95, 0.99)),
    }
    adaptive = {v: iou for v, iou in found.items() if iou and iou.target is not None}
    assert {v: iou.target for v, iou in adaptive.items()} == {
        f"adaptive-{t}": t for t in (0.1, 0.3, 0.5, 0.7, 0.9)
    }
    assert {iou.thresholds for iou in adaptive.values()} == {
        (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99)
    }


@pytest.mark.parametrize(
    ("name", "recipe", "varied"),
    [
        ("iou-schedules", "orsta-7b", "reward"),
        ("iou-schedules-tiny", "orsta-tiny", "reward"),
        ("learning-rate", "orsta-32b", "update"),
        ("learning-rate-tiny", "orsta-tiny", "update"),
        ("task-mix", "orsta-7b", "data"),
        ("task-mix-tiny", "orsta-tiny", "data"),
    ],
)
def test_variants_of_a_curve_sweep_differ_in_one_thing_and_share_the_evaluation(
    name: str, recipe: str, varied: str
) -> None:
    plan = load_sweep(find(name, "recipes.sweep"), find(recipe, "recipes.rl"), [])
    dumps = [one.model_dump(mode="json") for one in plan.recipes.values()]
    assert len({json.dumps(one.pop(varied)) for one in dumps}) == len(dumps) > 2
    assert all(one == dumps[0] for one in dumps)
    assert dumps[0]["eval"] is not None


def test_an_algorithm_that_reduces_to_another_on_policy_gives_a_warning(
    tiny: Path, lens: Path, tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("vtune.runs.sweep.runs.fingerprint", lambda path: None)
    soft = {"algorithm": "sapo", "tau_positive": 1.0, "tau_negative": 1.05}
    soft |= {"aggregation": "sequence_mean", "kl_weight": 0.0}
    mine = write(tmp_path / "sweeps", held_out=[], variants={"plain": {}, "sharp": {"loss": soft}})
    plan = load_sweep(mine, RECIPE, words(tiny, lens))
    assert [bool(doubts(recipe)) for recipe in plan.recipes.values()] == [False, True]
    assert not doubts(plan.recipes["sharp"].model_copy(update={"updates_per_step": 2}))
    sweep(plan, tmp_path / "out", runs)
    assert capsys.readouterr().err.count("warning: with one on-policy update per step") == 1
    given = [option for word in words(tiny, lens) for option in ("--set", word)]
    given += ["--set", f"loss={json.dumps(soft)}", "--dry-run"]
    told = vtune("rl", "--recipe", RECIPE, *given)
    assert "# warning: with one on-policy update per step, loss.algorithm sapo" in told.out


def test_an_interrupted_sweep_prints_the_command_to_continue(
    tiny: Path, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    def interrupted(*given: object, **more: object) -> None:
        out.mkdir()
        (out / "sweep.yaml").touch()
        raise SystemExit(130)

    monkeypatch.setattr("vtune.runs.sweep.runs.run_sweep", interrupted)
    words = ["--recipe", "codev-tiny", "--sweep", write(tmp_path), "--out", out, "--set", "steps=3"]
    ended = vtune("rl", *words, "--resume")
    assert ended.code == 130
    assert (
        f"to continue: vtune rl --recipe codev-tiny --sweep {tmp_path}/mine.yaml --out {out} --set steps=3 "
        "--resume\n"
    ) in ended.err


def test_a_sweep_of_real_runs_works(
    tiny: Path, lens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(run_sweep.__kwdefaults__, "start", inside)
    held = held_out(lens)
    held[0]["settings"] |= {"rollout.max_new_tokens": 8}
    path = write(
        tmp_path / "sweeps",
        seeds=[3],
        last_steps=1,
        variants={"plain": {}},
        untrained={"start": START},
        differences=[["plain", "start"]],
        held_out=held,
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
    assert row["held_out"]["lens"]["accuracy"]["value"] is not None
    assert row["entropy"]["value"] > 0
    assert json.loads((out / "plain/seed-3/done.json").read_text())["steps"] == 1
    start = json.loads((out / "start/eval/lens/results.json").read_text())
    assert start["model"] == str(tiny.resolve())
    assert table["variants"]["start"]["held_out"]["lens"]["accuracy"]["value"] == start["score"]["score"]
    assert table["differences"]["plain - start"]["seeds"] == 1
