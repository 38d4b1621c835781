"""`vtune recipes check`: shipped recipes fit together, and every break is found and named."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.data.formats.published import MAKERS
from tests.environments.worlds import MAZE, maze, using
from tests.runs.commands import vtune
from vtune.config import dump_recipe, load_recipe
from vtune.data import lens
from vtune.data.formats.building import Options
from vtune.data.formats.table import FORMATS
from vtune.errors import DataError, RecipeError
from vtune.reward import format as form
from vtune.reward.format import format_reward
from vtune.runs.data import importing
from vtune.runs.data.own_traces import make_box_traces
from vtune.runs.recipes.chain import writers
from vtune.runs.recipes.chain.joins import calls_of
from vtune.runs.recipes.chain.nodes import Node, shipped_nodes
from vtune.runs.recipes.chain.walk import check_joins
from vtune.runs.recipes.shipped import find_shipped, shipped_recipes
from vtune.runs.train.sft_recipe import SFTRecipe
from vtune.schema.message import Message
from vtune.schema.parquet import write_samples
from vtune.schema.trajectory import Call, Trajectory
from vtune.schema.verdict import Verdict


@pytest.fixture(scope="module")
def shipped() -> list[Node]:
    return shipped_nodes()


@pytest.fixture(scope="module")
def everything(shipped: list[Node]) -> dict[str, Any]:
    return check_joins([], shipped=shipped)


def breaks(found: Mapping[str, Any]) -> list[dict[str, str]]:
    return [join for join in found["joins"] if join["level"] == "break"]


def test_shipped_recipes_fit_together(everything: dict[str, Any]) -> None:
    assert breaks(everything) == []
    assert len(everything["recipes"]) == len(shipped_recipes())


@pytest.mark.parametrize(("sweep", "made"), [("both", "lens"), ("shortcut", "lens"), ("iou", "shapes")])
def test_only_the_sweep_reads_what_it_prepares(sweep: str, made: str, everything: dict[str, Any]) -> None:
    own = [join for join in everything["joins"] if join["reader"].startswith(f"sweep/{sweep}:")]
    assert {join["writer"] for join in own if join["about"] == "file"} == {f"data make {made}"}


def test_reading_a_file_that_the_sweep_does_not_prepare_is_a_break(
    shipped: list[Node], tmp_path: Path
) -> None:
    text = find_shipped("sweep/mix").path.read_text()
    (tmp_path / "mix.yaml").write_text(text.replace("{prepared}/counting/s", "{prepared}/gone/s"))
    at_fault = breaks(check_joins([str(tmp_path / "mix.yaml")], shipped=shipped))
    assert {(join["writer"], join["reader"]) for join in at_fault} == {("nobody", "sweep/mix:counting")}


def test_a_sweeps_cold_start_has_the_traces_named_by_its_command(shipped: list[Node], tmp_path: Path) -> None:
    text = find_shipped("sweep/iou").path.read_text()
    assert "data make shapes" in text
    (tmp_path / "iou.yaml").write_text(text.replace("data make shapes", "data make lens"))
    at_fault = breaks(check_joins([str(tmp_path / "iou.yaml")], shipped=shipped))
    assert {join["writer"] for join in at_fault} >= {"data make lens"}


def test_every_shipped_recipe_reads_or_writes(everything: dict[str, Any]) -> None:
    ends = {join[end] for join in everything["joins"] for end in ("reader", "writer")}
    # Agents and groups are given on the command line.
    joined = {name for name in everything["recipes"] if not name.startswith(("agent/", "group/"))}
    assert len(joined) > 30
    assert joined <= ends


@pytest.mark.parametrize("entry", [e for e in shipped_recipes() if e.kind == "rl"], ids=lambda e: e.name)
def test_training_is_checked_against_everything_samples_carry(entry: Any, everything: dict[str, Any]) -> None:
    about = {join["about"] for join in everything["joins"] if join["reader"] == f"rl/{entry.name}"}
    assert {"policy", "file", "tools", "prompt", "format", "verifiers", "weights", "looks"} <= about


def test_the_chains_of_the_papers_are_checked(everything: dict[str, Any]) -> None:
    edges = {(join["writer"], join["reader"]) for join in everything["joins"]}
    assert edges >= {
        ("data import thyme", "data/codev-sft"),
        ("data/codev-sft", "sft/codev"),
        ("data import deepeyes", "data/codev-rl"),
        ("sft/codev", "rl/codev"),
        ("data/codev-rl", "rl/codev"),
        ("rl/codev", "eval/vstar"),
        ("eval/vstar", "faithfulness"),
        ("data import vtriune", "data/orsta-47k"),
        ("data/orsta-47k", "rl/orsta-7b"),
        ("data import mars", "data/search-4k"),
        ("data/search-4k", "rl/credit-search-8b"),
        ("rl/credit-search-4b", "sweep/credit-ablation"),
    }


def test_the_number_of_calls_is_reported_per_trace(everything: dict[str, Any]) -> None:
    written = {join["written"] for join in everything["joins"] if join["about"] == "traces"}
    assert "0 or 1 calls per trace, of python" in written
    made = [trace_of(calls) for calls in ((), ("python",), ("python", "image_zoom_in_tool"))]
    assert calls_of(made) == "0 to 2 calls per trace, of image_zoom_in_tool, python"
    assert calls_of(made[1:2]) == "1 call per trace, of python"
    assert calls_of(made[:1]) == "no calls"


def trace_of(tools: Sequence[str]) -> Trajectory:
    calls = tuple(Call(tool=tool, arguments="{}", status="ok") for tool in tools)
    return Trajectory(sample_id="mine/0", source="mine", messages=(), calls=calls)


@dataclass(frozen=True)
class Mutation:
    """A change to a shipped file, and the join that it breaks."""

    name: str
    old: str
    new: str
    reader: str
    about: str
    why: str


IOU = "  iou:\n    schedule: staged          # V-Triune §3.2.1\n    thresholds: [0.85, 0.95, 0.99]\n"
IOU += "    until: [0.1, 0.25]\n    target: null\n"
MUTATIONS = {
    "break 1: zooms of DeepEyes": Mutation(
        "data/codev-rl", "    tools: [python]\n    sample: null\n    published: null\n  chart", "  chart",
        "rl/codev", "tools", "offers image_zoom_in_tool, but no section tools.zoom says how to run it",
    ),
    "break 1: ThinkLite without tools": Mutation(
        "data/codev-rl", "    tools: [python]           # ours", "    # ours",
        "rl/codev", "taught tools", "offer no tool that the cold start taught the policy",
    ),
    "break 2: tags counted where traces think in each turn": Mutation(
        "rl/codev-tiny", "format_rule: ordered", "format_rule: counted",
        "rl/codev-tiny", "format", "as the cold start says earns 0.75",
    ),
    "break 3: a benchmark for zooms": Mutation(
        "eval/vstar", "agent: codev", "agent: codev\noffers: [image_zoom_in_tool]",
        "eval/vstar", "tools", "the suite offers no python",
    ),
    "break 3: a benchmark without tools": Mutation(
        "eval/hrbench-4k", "agent: codev", "agent: codev\noffers: []",
        "eval/hrbench-4k", "tools", "the suite offers no python",
    ),
    "break 8: nobody asks for the box": Mutation(
        "rl/orsta-7b", "prompt: pool", "prompt: plain",
        "rl/orsta-7b", "prompt", "in the form that the prompt asks for earns 0",
    ),
    "a file that nobody writes": Mutation(
        "rl/codev", "data/curated/codev-rl/", "data/codev/",
        "rl/codev", "file", "nothing makes data/codev/samples.parquet",
    ),
    "a source that no import makes": Mutation(
        "data/codev-rl", "files: [data/codev/deepeyes_chart.parquet]", "files: [data/codev/charts.parquet]",
        "data/codev-rl", "file", "nothing makes data/codev/charts.parquet",
    ),
    "an import that writes elsewhere": Mutation(
        "data/codev-sft", "--out data/codev/thyme_sft.parquet", "--out data/thyme.parquet",
        "data/codev-sft", "file", "nothing makes data/codev/thyme_sft.parquet",
    ),
    "an import of samples where traces are read": Mutation(
        "data/codev-sft", "data import thyme", "data import easyr1",
        "data/codev-sft", "file", "writes samples to this path, but traces are read",
    ),
    "a cold start that goes elsewhere": Mutation(
        "sft/codev", "--out models/codev-7b-sft", "--out runs/school",
        "rl/codev", "policy", "nothing makes models/codev-7b-sft",
    ),
    "a policy that nobody trains": Mutation(
        "eval/vstar", "--model runs/codev/", "--model runs/codec/",
        "eval/vstar", "policy", "nothing makes runs/codec",
    ),
    "a tool that is not opened": Mutation(
        "rl/credit-search-8b", "  zoom: {space: relative_1000, min_side: 28}", "  zoom: null",
        "rl/credit-search-8b", "tools", "no section tools.zoom says how to run it",
    ),
    "a tool of which the prompt says nothing": Mutation(
        "rl/credit-search-8b", "prompt: tools", "prompt: codev",
        "rl/credit-search-8b", "tools", "which the prompt `codev` does not describe",
    ),
    "a call without a turn for the answer": Mutation(
        "rl/codev", "  max_turns: 10 ", "  max_turns: 1 ",
        "rl/codev", "turns", "no turn is left for the answer",
    ),
    "boxes without a threshold": Mutation(
        "rl/orsta-7b", IOU, "  iou: null\n",
        "rl/orsta-7b", "verifiers", "needs an IoU threshold for boxes",
    ),
    "an answer that nobody pays for": Mutation(
        "rl/codev", "  accuracy: 1.0 ", "  accuracy: 0.0 ",
        "rl/codev", "weights", "give no reward for the answer",
    ),
    "looks that nobody pays for": Mutation(
        "rl/codev", "    search_abilities: [visual_search]\n    search_sources: [vstar, chart, high_res]",
        "    search_abilities: []\n    search_sources: [high_res]",
        "rl/codev", "looks", "no tool call can earn anything",
    ),
    "an index that nobody builds": Mutation(
        "rl/credit-search-8b", "index: data/wiki-index ", "index: data/wikipedia ",
        "rl/credit-search-8b", "file", "nothing makes data/wikipedia",
    ),
    "credit between calls that cannot happen": Mutation(
        "rl/credit-codev", "    zoom: {similarity: 0.7, confidence: 0.5}",
        "    text_search: {similarity: 0.7, confidence: 0.5}",
        "rl/credit-codev", "credit", "no sample offers a tool of text_search",
    ),
    "pass rates of boxes without a threshold": Mutation(
        "data/orsta-47k", "verifier_parm: {iou: 0.5}", "verifier_parm: {}",
        "data/orsta-47k:filters.13", "verifiers", "needs an IoU threshold for boxes",
    ),
    "a benchmark that is not there": Mutation(
        "data/codev-sft", "suites: all", "suites: [vstarr]",
        "data/codev-sft:filters.1", "benchmark", "vstarr",
    ),
    "a sweep over the wrong rule": Mutation(
        "sweep/credit-tiny", "  grpo:\n", "  counting: {reward.format_rule: counted}\n  grpo:\n",
        "sweep/credit-tiny:counting", "format", "as the cold start says earns",
    ),
    "a sweep that is evaluated on nothing": Mutation(
        "sweep/credit-ablation-tiny", "suite: trails", "suite: lens",
        "eval/lens", "tools", "the suite offers no image_search_tool",
    ),
}  # fmt: skip


def mutated(name: str, old: str, new: str, folder: Path) -> Path:
    source = find_shipped(name).path
    text = source.read_text()
    assert old in text
    file = folder / source.name
    file.write_text(text.replace(old, new, 1))
    return file


@pytest.mark.parametrize("case", MUTATIONS.values(), ids=MUTATIONS)
def test_a_broken_copy_is_found_and_named(case: Mutation, shipped: list[Node], tmp_path: Path) -> None:
    found = check_joins([str(mutated(case.name, case.old, case.new, tmp_path))], shipped=shipped)
    at_fault = [b for b in breaks(found) if (b["reader"], b["about"]) == (case.reader, case.about)]
    assert at_fault, breaks(found)
    assert any(case.why in found["why"] for found in at_fault), at_fault
    assert all(found["fix"] for found in at_fault)


def test_there_are_at_least_20_mutations() -> None:
    assert len(MUTATIONS) >= 20


def test_a_missing_judge_that_answers_need_is_a_break(shipped: list[Node], tmp_path: Path) -> None:
    text = find_shipped("rl/credit-search-8b").path.read_text()
    head, _, rest = text.partition("  judge:")
    file = tmp_path / "credit-search-8b.yaml"
    file.write_text(f"{head}  judge: null\n  format_rule{rest.partition('  format_rule')[2]}")
    (found,) = breaks(check_joins([str(file)], shipped=shipped))
    assert found["about"] == "verifiers"
    assert "the recipe names none" in found["why"]
    assert found["fix"] == "set reward.judge"


def test_a_temperature_that_training_does_not_allow_is_a_break(shipped: list[Node], tmp_path: Path) -> None:
    file = mutated("rl/codev", "  temperature: 1.0 ", "  temperature: 0.7 ", tmp_path)
    (found,) = breaks(check_joins([str(file)], shipped=shipped))
    assert (found["about"], found["why"]) == ("engine", "rollout.temperature is 0.7")


def test_two_runs_in_one_folder_are_a_break(shipped: list[Node], tmp_path: Path) -> None:
    (tmp_path / "sft").mkdir()
    school = mutated("sft/codev", "--out models/codev-7b-sft", "--out runs/codev", tmp_path / "sft")
    training = mutated("rl/codev", "model: models/codev-7b-sft", "model: runs/codev", tmp_path)
    found = breaks(check_joins([str(school), str(training)], shipped=shipped))
    assert ("run folder", "rl/codev") in {(b["about"], b["reader"]) for b in found}


def test_random_weights_are_not_expected_to_obey(shipped: list[Node], tmp_path: Path) -> None:
    old = "model: runs/orsta-tiny-sft/checkpoints/newest"
    file = mutated("rl/orsta-tiny", old, "model: models/shapes-tiny", tmp_path)
    found = check_joins([str(file)], shipped=shipped)
    assert breaks(found) == []
    notes = {join["about"]: join["why"] for join in found["joins"] if join["level"] == "note"}
    assert notes.keys() >= {"prompt", "format"}
    assert notes["prompt"].startswith("the policy has random weights and no cold start")


def test_a_format_that_demands_a_thought_in_each_turn_is_a_break(
    shipped: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    def strict(messages: Sequence[Message], calls: Sequence[Call] = ()) -> Verdict:
        turns = [message.content for message in messages if message.role == "assistant"]
        late = [turn for turn in turns if not turn.startswith("<think>")]
        return (
            Verdict(0.0, f"{late[0][:20]!r} begins without <think>")
            if late
            else format_reward(messages, calls)
        )

    monkeypatch.setattr(form, "format_reward", strict)
    found = breaks(check_joins(["rl/codev"], shipped=shipped))
    assert {(b["reader"], b["about"]) for b in found} == {("rl/codev", "format")}
    assert "without <think>" in found[0]["why"]


def test_an_import_that_adds_no_instructions_is_a_break(
    shipped: list[Node], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = tmp_path / "mine.yaml"
    text = find_shipped("rl/orsta-7b").path.read_text().replace("prompt: pool", "prompt: plain")
    text = text.replace("data/curated/orsta-47k/samples.parquet", "data/tasks.parquet")
    own.write_text(
        "#   vtune data import coco instances.json --images photos --out data/tasks.parquet\n" + text
    )
    assert breaks(check_joins([str(own)], shipped=shipped)) == []
    monkeypatch.setattr(importing, "self_contained", lambda sample: sample)
    found = breaks(check_joins([str(own)], shipped=shipped))
    assert ("rl/mine", "prompt") in {(b["reader"], b["about"]) for b in found}


def test_a_reader_that_sets_the_tools_is_a_break(
    shipped: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    from vtune.runs.evaluate import questions

    monkeypatch.setattr(
        questions, "offering", lambda sample, tools: replace(sample, tools=("image_zoom_in_tool",))
    )
    found = breaks(check_joins(["eval/vstar"], shipped=shipped))
    assert "tools" in {b["about"] for b in found}


# A user's own recipes.


def test_user_recipes_join_through_the_commands_in_their_headers(shipped: list[Node], tmp_path: Path) -> None:
    mutated("data/own", "sources:\n  own", "sources:\n  mine", tmp_path)
    training = mutated("rl/codev", "data/curated/codev-rl/samples", "data/my_curated/samples", tmp_path)
    (tmp_path / "columns.yaml").write_text("source: mine\nquestion: q\nanswer: a\n")
    found = check_joins([str(tmp_path)], shipped=shipped)
    assert breaks(found) == []
    assert ("data/own", "rl/codev") in {(join["writer"], join["reader"]) for join in found["joins"]}
    training.write_text(training.read_text().replace("data/my_curated/", "data/other/"))
    assert [b["why"] for b in breaks(check_joins([str(tmp_path)], shipped=shipped))] == [
        "nothing makes data/other/samples.parquet"
    ]


def test_every_recipe_in_a_folder_is_checked(shipped: list[Node], tmp_path: Path) -> None:
    text = find_shipped("rl/codev-tiny").path.read_text()
    paid, unpaid = tmp_path / "paid", tmp_path / "unpaid"
    for folder in (paid, unpaid):
        folder.mkdir()
        (folder / "mine.yaml").write_text(text)
    with pytest.raises(RecipeError, match="are both rl/mine") as caught:
        check_joins([str(tmp_path)], shipped=shipped)
    assert str(paid / "mine.yaml") in caught.value.what
    assert str(unpaid / "mine.yaml") in caught.value.what
    with pytest.raises(RecipeError, match="are both rl/mine"):
        check_joins([str(paid), str(unpaid / "mine.yaml")], shipped=shipped)
    (unpaid / "mine.yaml").rename(unpaid / "other.yml")
    # A file that is given both directly and by its folder counts once.
    found = check_joins([str(tmp_path), str(paid / "mine.yaml")], shipped=shipped)
    assert found["recipes"] == ["rl/mine", "rl/other"]


def test_a_user_file_replaces_a_shipped_one_in_any_order(shipped: list[Node], tmp_path: Path) -> None:
    own = tmp_path / "codev-tiny.yaml"
    text = find_shipped("rl/codev-tiny").path.read_text()
    for part in ("accuracy: 1.0", "format: 0.3", "tool: 0.5"):
        text = text.replace(f"  {part}", f"  {part.partition(':')[0]}: 0.0")
    own.write_text(text)
    for names in ([str(own), "rl/codev-tiny"], ["rl/codev-tiny", str(own)]):
        assert breaks(check_joins(names, shipped=shipped))


def test_an_existing_data_file_is_read_itself(
    shipped: list[Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    samples = list(lens.samples(1, 4, seed=0, split="train"))
    file = mutated("rl/codev-tiny", "runs/demo/data/train.parquet", "mine.parquet", tmp_path)
    write_samples(Path("mine.parquet"), samples)
    assert breaks(check_joins([str(file)], shipped=shipped)) == []
    write_samples(Path("mine.parquet"), [replace(s, tools=("text_search_tool",)) for s in samples])
    found = breaks(check_joins([str(file)], shipped=shipped))
    assert {"tools", "taught tools"} == {b["about"] for b in found}
    assert {b["writer"] for b in found} == {"a file that is here"}


def test_a_cold_start_in_the_header_teaches_the_data_that_it_sets(
    shipped: list[Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = find_shipped("rl/codev-tiny").path.read_text()
    text = text.replace("runs/demo/sft/", "runs/school/").replace("runs/demo/data/train", "signs")
    write_samples(Path("signs.parquet"), list(lens.samples(1, 4, seed=0, split="train")))
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    untaught = breaks(check_joins([str(file)], shipped=shipped))
    assert ("policy", "nobody") in {(b["about"], b["writer"]) for b in untaught}
    file.write_text(
        "#   vtune data make traces --data signs.parquet --prompt plain --out cold.parquet\n"
        f'#   vtune sft --recipe codev-tiny --set "data=[cold.parquet]" --out runs/school\n{text}'
    )
    found = check_joins([str(file)], shipped=shipped)
    assert breaks(found) == []
    joined = {(join["writer"], join["reader"], join["about"]) for join in found["joins"]}
    assert ("sft/codev-tiny", "rl/mine", "policy") in joined


def test_rows_of_a_custom_environment_are_not_checked_against_our_tools(
    shipped: list[Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = mutated(
        "rl/codev-tiny", "[runs/demo/data/train.parquet]", "[signs.parquet, mazes.parquet]", tmp_path
    )
    file.write_text(
        f"uses: [{MAZE}]\ntools: {{zoom: {{space: relative_1000, min_side: 28}}}}\n{file.read_text()}"
    )
    write_samples(Path("signs.parquet"), list(lens.samples(1, 4, seed=0, split="train")))
    with using():
        write_samples(Path("mazes.parquet"), [maze("maze/1"), maze("maze/2")])
        found = check_joins([str(file)], shipped=shipped)
    assert breaks(found) == []
    noted = {(join["about"], join["why"]) for join in found["joins"] if join["level"] == "note"}
    assert ("environment", "rows of maze reward the tags of our tools") in noted
    assert not any("which no sample offers" in why for _, why in noted)


def test_the_exit_code_distinguishes_breaks_from_bad_input(tmp_path: Path) -> None:
    ended = vtune("recipes", "check", "rl/orsta-tiny", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["recipes"] == ["rl/orsta-tiny"]
    file = mutated("rl/orsta-tiny", "data/shapes/train.parquet", "data/shapes/trian.parquet", tmp_path)
    ended = vtune("recipes", "check", file)
    assert ended.code == 1
    assert "BREAK  nobody → rl/orsta-tiny, file" in ended.out
    assert "fix  write the command that makes it" in ended.out
    ended = vtune("recipes", "check", "rl/orsta-teeny")
    assert ended.code == 2
    assert "did you mean" in ended.err
    file.write_text("nothing: known\n")
    ended = vtune("recipes", "check", file)
    assert ended.code == 2
    assert "is not a recipe, data recipe, suite or sweep" in ended.err


def test_a_format_that_needs_a_column_map_has_no_specimen(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="rows of the format hf have no shape of their own"):
        writers._specimen("hf", tmp_path, "a recipe")


@pytest.mark.parametrize("name", FORMATS)
def test_every_layout_has_a_specimen_that_imports_like_published_files(name: str, tmp_path: Path) -> None:
    write = FORMATS[name].specimen
    assert write is not None
    found = write(tmp_path)
    options = Options(images=found.images, columns=found.columns)
    made = importing.import_data(
        name, [found.path], tmp_path / "out.parquet", options=options, strict=True, show=False
    )
    (tmp_path / "published").mkdir()
    published = MAKERS[name](tmp_path / "published")
    assert made["kept"] > 0
    assert set(made["by_verifier"]) <= set(published.verifiers)


def test_a_run_on_disk_has_taught_what_its_own_recipe_says(
    shipped: list[Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    samples = list(lens.samples(1, 4, seed=0, split="train"))
    write_samples(Path("signs.parquet"), samples)
    make_box_traces([Path("signs.parquet")], Path("cold.parquet"), prompt="plain")
    text = find_shipped("rl/codev-tiny").path.read_text()
    text = text.replace("runs/demo/sft/", "runs/school/").replace("runs/demo/data/train", "signs")
    Path("mine.yaml").write_text(text)
    newest = Path("runs/school/checkpoints/newest")
    newest.mkdir(parents=True)

    untaught = breaks(check_joins(["mine.yaml"], shipped=shipped))
    assert "prompt" in {join["about"] for join in untaught}

    school = load_recipe(find_shipped("sft/codev-tiny").path, SFTRecipe, ["data=[cold.parquet]"])
    Path("runs/school/recipe.yaml").write_text(dump_recipe(school))
    found = check_joins(["mine.yaml"], shipped=shipped)
    assert breaks(found) == []
    (policy,) = [join for join in found["joins"] if (join["reader"], join["about"]) == ("rl/mine", "policy")]
    assert policy["writer"] == "sft/recipe.yaml of runs/school"

    Path("runs/school/recipe.yaml").write_text("sources: {}\n")
    found = check_joins(["mine.yaml"], shipped=shipped)
    (policy,) = [join for join in found["joins"] if (join["reader"], join["about"]) == ("rl/mine", "policy")]
    assert policy["level"] == "note"
    assert "what runs/school was trained on is unknown: not the recipe of a run" in policy["why"]


@pytest.mark.parametrize(("prompt", "unseen"), [("plain", True), ("codev", False), ("tools", True)])
def test_a_prompt_that_the_cold_start_never_showed_is_noted(
    prompt: str, unseen: bool, shipped: list[Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_samples(Path("signs.parquet"), list(lens.samples(1, 4, seed=0, split="train")))
    text = find_shipped("rl/codev-tiny").path.read_text()
    text = text.replace("runs/demo/sft/", "runs/school/").replace("runs/demo/data/train", "signs")
    text = text.replace("prompt: plain ", f"prompt: {prompt} ")
    Path("mine.yaml").write_text(
        "#   vtune data make traces --data signs.parquet --prompt codev --out cold.parquet\n"
        f'#   vtune sft --recipe codev-tiny --set "data=[cold.parquet]" --out runs/school\n{text}'
    )
    found = check_joins(["mine.yaml"], shipped=shipped)
    notes = {join["about"]: join["why"] for join in found["joins"] if join["level"] == "note"}
    assert ("prompt" in notes) == unseen
    if unseen:
        assert "begin with a system turn that is not in this prompt" in notes["prompt"]


def test_a_sweep_still_joins_once_its_cold_start_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoints = tmp_path / "runs" / "credit-tiny-sft" / "checkpoints"
    (checkpoints / "step-000011").mkdir(parents=True)
    (checkpoints / "newest").symlink_to("step-000011")
    ended = vtune("recipes", "check", "sweep/credit-tiny")
    assert ended.code == 0, ended.out
