import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from vtune.config import RENAMED, find, load_recipe
from vtune.errors import DataError, RecipeError
from vtune.runs import folder
from vtune.runs.agent.tools import ToolsRecipe
from vtune.runs.folder import check_same_run, environment, running, start_run
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.schema.parquet import fingerprint
from vtune.sections import Strict
from vtune.update.manifest import MANIFEST
from vtune.update.ranks import Ranks


class Checkpoints(Strict):
    every: int
    keep: int


class Plan(Strict):
    seed: int
    steps: int
    checkpoints: Checkpoints


def plan(seed: int = 0, steps: int = 3, every: int = 1, keep: int = 1) -> Plan:
    return Plan(seed=seed, steps=steps, checkpoints=Checkpoints(every=every, keep=keep))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.parquet"
    path.write_bytes(b"rows")
    return path


@pytest.fixture
def run(data: Path, tmp_path: Path) -> Path:
    start_run(tmp_path / "runs/mine", plan(), [data], resume=False)
    return tmp_path / "runs/mine"


def test_a_new_run_records_its_recipe_and_environment(run: Path, data: Path) -> None:
    assert yaml.safe_load((run / "recipe.yaml").read_text()) == plan().model_dump()
    found = json.loads((run / "environment.json").read_text())
    assert {"packages", "python", "machine", "processes", "git_commit", "data"} == set(found)
    assert found["packages"]["vtune"]
    assert list(found["data"]) == [str(data)]
    assert sorted(path.name for path in run.iterdir()) == ["environment.json", "recipe.yaml"]


@pytest.mark.parametrize("done", ["metrics.jsonl", "checkpoints", "trajectories"])
def test_a_folder_with_a_run_accepts_no_new_one(run: Path, data: Path, done: str) -> None:
    (run / done).mkdir()
    with pytest.raises(RecipeError, match="holds a run already"):
        start_run(run, plan(), [data], resume=False)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    ("files", "what"),
    [(("recipe.yaml", "curation.json"), "a curation"), (("suite.yaml", "results.json"), "an evaluation")],
)
def test_a_folder_of_another_command_accepts_no_run(
    tmp_path: Path, data: Path, files: tuple[str, ...], what: str, resume: bool
) -> None:
    for name in files:
        (tmp_path / name).touch()
    with pytest.raises(RecipeError, match=f"holds {what}") as refused:
        start_run(tmp_path, plan(), [data], resume=resume)
    assert refused.value.fix == "choose another --out"


def test_a_users_recipe_in_a_folder_is_not_overwritten(tmp_path: Path, data: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("# mine\n")
    with pytest.raises(RecipeError, match="holds a run already"):
        start_run(tmp_path, plan(), [data], resume=False)
    assert (tmp_path / "recipe.yaml").read_text() == "# mine\n"


def test_a_failed_start_is_not_a_run(run: Path, data: Path) -> None:
    """No model could be loaded, say: the next start need not remove anything first."""
    (run / "logs").mkdir()
    (run / "logs/rank-0.log").write_text("no model")
    (run / "search-0-web.jsonl.lock").touch()  # of tools that were opened, and asked nothing
    with running(run, plan(every=9), [data], resume=False, ranks=Ranks(rank=0, world=1, local=0)):
        assert yaml.safe_load((run / "recipe.yaml").read_text()) == plan(every=9).model_dump()
        again = running(run, plan(), [data], resume=False, ranks=Ranks(rank=0, world=1, local=0))
        with pytest.raises(RecipeError, match="another process is working in"), again:
            pytest.fail("both ran")
    assert (run / "logs/rank-0.log").read_text() == "no model"


def test_two_processes_cannot_train_in_one_folder(run: Path, data: Path) -> None:
    before = (run / "recipe.yaml").read_text()
    with running(run, plan(), [data], resume=True, ranks=Ranks(rank=0, world=2, local=0)):
        second = running(run, plan(every=9), [data], resume=True, ranks=Ranks(rank=0, world=2, local=0))
        with pytest.raises(RecipeError, match=f"another process is working in {run}"), second:
            pytest.fail("both ran")
        with running(run, plan(), [data], resume=True, ranks=Ranks(rank=1, world=2, local=1)):
            pass
    assert (run / "recipe.yaml").read_text() == before


def test_an_impossible_resume_leaves_no_folder(tmp_path: Path, data: Path) -> None:
    nothing = running(tmp_path / "x", plan(), [data], resume=True, ranks=Ranks(rank=0, world=1, local=0))
    with pytest.raises(RecipeError, match="holds no run to resume"), nothing:
        pytest.fail("it ran")
    assert not (tmp_path / "x").exists()


def test_only_settings_that_do_not_affect_learning_may_change(run: Path, data: Path) -> None:
    start_run(run, plan(every=4, keep=2), [data], resume=True)
    assert yaml.safe_load((run / "recipe.yaml").read_text())["checkpoints"] == {"every": 4, "keep": 2}
    before = (run / "recipe.yaml").read_text()
    with pytest.raises(RecipeError, match=r"it differs in seed( \(.*\))?\n"):
        start_run(run, plan(seed=1, steps=12), [data], resume=True)
    assert (run / "recipe.yaml").read_text() == before


class Searching(Strict):
    seed: int
    steps: int
    tools: ToolsRecipe


PATIENCE = {"timeout_s": 1.0, "retries": 0, "deadline_s": 2.0, "concurrency": 1}
ENDPOINT: dict[str, Any] = {
    **{"base_url": "http://a/v1", "model": "m", "temperature": 0.0, "max_tokens": 9},
    **{"concurrency": 1, "retries": 1, "timeout_s": 1.0, "api_key_env": None},
}
PAGES: dict[str, Any] = {
    "engine": "searxng",
    "url": "http://a/search",
    "api_key_env": None,
    "read": 1,
    "page_chars": 9,
}
PICTURES = {"url": "http://a/lens", "api_key_env": None}


WEB = {"api_key_env": None, "max_requests": 5, "recorded": []}


def searching(key: str = "", value: Any = None, *, web: bool = False) -> Searching:
    place = {"web": WEB} if web else {"pages": PAGES}
    text = {**place, "patience": PATIENCE, "top_k": 1, "max_chars": 9, "summariser": ENDPOINT}
    image = {"web": PICTURES, "patience": PATIENCE, "top_k": 1, "max_chars": 9}
    tools: dict[str, Any] = {"text_search": text, "image_search": image, "web": {"budget": {"requests": 5}}}
    values: dict[str, Any] = copy.deepcopy({"seed": 0, "steps": 3, "tools": tools})
    *sections, last = key.split(".") if key else ["seed"]
    section: dict[str, Any] = values
    for name in sections:
        section = section[name]
    section[last] = value if key else 0
    return Searching(**values)


ASKED_ELSEWHERE = {
    "tools.web.budget.requests": 50,
    "tools.web.budget.money": 5.0,
    "tools.web.budget.per_page": 0.1,
    "tools.web.record": "web.jsonl",
    "tools.text_search.pages.url": "http://b/search",
    "tools.text_search.pages.api_key_env": "KEY",
    "tools.text_search.web.api_key_env": "KEY",
    "tools.text_search.web.max_requests": 50,
    "tools.text_search.summariser.base_url": "http://b/v1",
    "tools.text_search.summariser.retries": 9,
    "tools.text_search.summariser.api_key_env": "KEY",
    "tools.text_search.summariser.prices": {"input": 1, "cached_input": 1, "output": 1, "currency": "EUR"},
    "tools.text_search.summariser.budget": {"tokens": 9},
    "tools.image_search.web.url": "http://b/lens",
    "tools.image_search.web.api_key_env": "KEY",
    "tools.image_search.patience.retries": 3,
}
ASKED_OTHERWISE = {
    "tools.web.blocked": ["example.org"],
    "tools.text_search.pages.read": 2,
    "tools.text_search.summariser.model": "n",
    "tools.image_search.top_k": 2,
}


@pytest.mark.parametrize("key", ASKED_ELSEWHERE)
def test_search_addresses_timeouts_and_budgets_may_change(key: str, data: Path, tmp_path: Path) -> None:
    web = key.startswith("tools.text_search.web.")
    start_run(tmp_path / "run", searching(web=web), [data], resume=False)
    start_run(tmp_path / "run", searching(key, ASKED_ELSEWHERE[key], web=web), [data], resume=True)


@pytest.mark.parametrize("key", ASKED_OTHERWISE)
def test_settings_that_affect_search_results_may_not_change(key: str, data: Path, tmp_path: Path) -> None:
    start_run(tmp_path / "run", searching(), [data], resume=False)
    with pytest.raises(RecipeError, match=rf"it differs in {key}( \(.*\))?\n"):
        start_run(tmp_path / "run", searching(key, ASKED_OTHERWISE[key]), [data], resume=True)


def test_a_run_may_be_extended_but_not_shortened(
    run: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start_run(run, plan(steps=5), [data], resume=True)
    assert f"{run} is extended: steps 3 -> 5;" in capsys.readouterr().err
    start_run(run, plan(steps=9), [data], resume=True)
    assert json.loads((run / "environment.json").read_text())["extended"] == ["steps 3 -> 5", "steps 5 -> 9"]
    assert yaml.safe_load((run / "recipe.yaml").read_text())["steps"] == 9
    with pytest.raises(RecipeError, match=r"it differs in steps( \(.*\))?\n"):
        start_run(run, plan(steps=2), [data], resume=True)
    prints = {str(data): fingerprint(data)}
    with pytest.raises(RecipeError, match=r"it differs in steps( \(.*\))?\n"):
        check_same_run(run, plan(steps=12), prints, processes=1)


def test_a_mistyped_length_can_be_reduced_to_the_steps_done(
    run: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start_run(run, plan(steps=5000), [data], resume=True)
    done = run / "checkpoints/step-000004"
    done.mkdir(parents=True)
    (done / MANIFEST).write_text(json.dumps({"step": 4}))
    with pytest.raises(RecipeError, match="has already done 4 steps, but would now end after 3"):
        start_run(run, plan(steps=3), [data], resume=True)
    assert yaml.safe_load((run / "recipe.yaml").read_text())["steps"] == 5000
    start_run(run, plan(steps=5), [data], resume=True)
    assert f"{run} is shortened again: steps 5000 -> 5;" in capsys.readouterr().err
    assert yaml.safe_load((run / "recipe.yaml").read_text())["steps"] == 5
    told = json.loads((run / "environment.json").read_text())["extended"]
    assert told == ["steps 3 -> 5000", "steps 5000 -> 5"]
    start_run(run, plan(steps=6), [data], resume=True)
    start_run(run, plan(steps=4), [data], resume=True)


def test_a_length_with_many_digits_can_be_reduced_to_the_original(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    start_run(run, plan(steps=1234567), [data], resume=False)
    start_run(run, plan(steps=2000000), [data], resume=True)
    with pytest.raises(RecipeError, match=r"it differs in steps( \(.*\))?\n"):
        start_run(run, plan(steps=1234566), [data], resume=True)
    start_run(run, plan(steps=1234567), [data], resume=True)


def test_the_number_of_steps_of_an_epoch_recipe_is_recorded(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    start_run(run, plan(), [data], resume=False, steps=12)
    assert json.loads((run / "environment.json").read_text())["steps"] == 12
    start_run(run, plan(steps=5), [data], resume=True, steps=20)
    found = json.loads((run / "environment.json").read_text())
    assert (found["steps"], found["extended"]) == (20, ["steps 3 -> 5"])


def test_an_older_run_gets_its_number_of_steps_on_resume(run: Path, data: Path) -> None:
    before = json.loads((run / "environment.json").read_text())
    start_run(run, plan(), [data], resume=True, steps=12)
    assert json.loads((run / "environment.json").read_text()) == before | {"steps": 12}


class LaterPlan(Plan):
    rule: str = "as before"


def test_a_key_newer_than_a_run_may_only_have_its_former_meaning(run: Path, data: Path) -> None:
    values = plan().model_dump()
    with pytest.raises(RecipeError, match="it differs in rule"):
        start_run(run, LaterPlan(**values, rule="new"), [data], resume=True)
    start_run(run, LaterPlan(**values), [data], resume=True)
    assert yaml.safe_load((run / "recipe.yaml").read_text())["rule"] == "as before"


def test_there_must_be_a_run_to_resume(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no run to resume"):
        start_run(tmp_path / "none", plan(), [data], resume=True)
    assert not (tmp_path / "none").exists()


def test_changed_and_additional_data_are_refused(run: Path, data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.parquet"
    other.write_bytes(b"rows")
    with pytest.raises(DataError, match=r"other\.parquet is not the file"):
        start_run(run, plan(), [data, other], resume=True)
    data.write_bytes(b"rowz")
    with pytest.raises(DataError, match=r"data\.parquet is not the file"):
        start_run(run, plan(), [data], resume=True)
    data.unlink()
    with pytest.raises(DataError, match="cannot read"):
        start_run(run, plan(), [data], resume=True)


def test_missing_data_leave_no_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        start_run(tmp_path / "run", plan(), [tmp_path / "none.parquet"], resume=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(not Path(".git").exists(), reason="not a checkout")
def test_the_recorded_commit_is_that_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = environment({})["git_commit"]
    assert commit is not None
    folder._commit.cache_clear()
    monkeypatch.chdir(tmp_path)
    assert environment({})["git_commit"] == commit


def test_without_git_or_a_repository_there_is_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("PATH", str(tmp_path)), ("GIT_DIR", str(tmp_path / "none"))):
        with monkeypatch.context() as patch:
            folder._commit.cache_clear()
            patch.setenv(name, value)
            assert environment({})["git_commit"] is None, name
    folder._commit.cache_clear()


def test_a_run_resumes_only_with_the_same_number_of_processes(
    run: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RecipeError, match="began with 1 process"):
        start_run(run, plan(), [data], resume=True)


class Paid(Strict):
    reward: dict[str, object]


def test_a_run_may_resume_with_other_reward_services_or_none(data: Path, tmp_path: Path) -> None:
    section = {"urls": ["http://a:1"], "token_env": None, "deadline_s": 120.0}
    services = [None, section, section | {"urls": ["http://b:2"], "deadline_s": 9.0}, None]
    start_run(tmp_path / "run", Paid(reward={"tool": 1.0}), [data], resume=False)
    for service in services:
        start_run(tmp_path / "run", Paid(reward={"tool": 1.0, "service": service}), [data], resume=True)
    with pytest.raises(RecipeError, match=r"differs in reward\.tool( \(.*\))?\n"):
        start_run(tmp_path / "run", Paid(reward={"tool": 0.5, "service": None}), [data], resume=True)


@pytest.mark.parametrize("old", RENAMED)
def test_a_run_with_a_renamed_key_in_its_recipe_resumes(data: Path, tmp_path: Path, old: str) -> None:
    run, shipped = tmp_path / "run", find("codev-tiny", "recipes.rl")
    start_run(run, load_recipe(shipped, RLRecipe), [data], resume=False)
    written = yaml.safe_load((run / "recipe.yaml").read_text())
    (before, key), (section, new) = old.split("."), RENAMED[old].split(".")
    written[before][key] = written[section].pop(new)
    (run / "recipe.yaml").write_text(yaml.safe_dump(written))
    other = load_recipe(shipped, RLRecipe, [f"{RENAMED[old]}={written[before][key] + 1}"])
    with pytest.raises(RecipeError, match=rf"it differs in {RENAMED[old]}( \(.*\))?\n"):
        start_run(run, other, [data], resume=True)
    start_run(run, load_recipe(shipped, RLRecipe), [data], resume=True)
    assert new in yaml.safe_load((run / "recipe.yaml").read_text())[section]


OLD_LOSSES = {
    "grpo": {"clip_low": 0.2, "clip_high": 0.2, "importance_cap": 2.0},
    "sapo": {"tau_positive": 1.0, "tau_negative": 1.05},
}
OLD_NULLS = dict.fromkeys(
    ("clip_low", "clip_high", "dual_clip", "importance_cap", "tau_positive", "tau_negative", "length")
)


@pytest.mark.parametrize("algorithm", OLD_LOSSES)
def test_a_run_with_null_keys_of_other_losses_resumes(data: Path, tmp_path: Path, algorithm: str) -> None:
    """So recipes were written while one section had the keys of all losses."""
    shared = {"aggregation": "token_mean", "kl_weight": 0.0, "kl_estimator": "k3"}
    loss = {"algorithm": algorithm, **OLD_LOSSES[algorithm], **shared}
    recipe = load_recipe(find("codev-tiny", "recipes.rl"), RLRecipe, [f"loss={json.dumps(loss)}"])
    run = tmp_path / "runs/old"
    start_run(run, recipe, [data], resume=False)
    written = yaml.safe_load((run / "recipe.yaml").read_text())
    written["loss"] = OLD_NULLS | loss
    (run / "recipe.yaml").write_text(yaml.safe_dump(written))
    start_run(run, load_recipe(run / "recipe.yaml", RLRecipe), [data], resume=True)
    assert set(yaml.safe_load((run / "recipe.yaml").read_text())["loss"]) == set(
        type(recipe.loss).model_fields
    )
    (run / "recipe.yaml").write_text(yaml.safe_dump(written))
    changed = recipe.model_copy(update={"loss": recipe.loss.model_copy(update={"kl_weight": 0.1})})
    with pytest.raises(RecipeError, match=r"it differs in loss.kl_weight( \(.*\))?\n"):
        start_run(run, changed, [data], resume=True)
