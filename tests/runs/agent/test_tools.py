"""The `tools` section: what it accepts, and what a run refuses before it starts."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.judge.server import serve
from tests.rollout.build import SAMPLE
from tests.rollout.scripted import ScriptedEngine
from tests.runs.commands import evaluation, rl, setting
from tests.runs.commands import vtune as command
from tests.scripted import draw_with
from vtune.config import find, load_recipe
from vtune.errors import DataError, RecipeError
from vtune.runs.agent.tools import (
    ToolsRecipe,
    check_asking,
    check_indexes,
    check_tools,
    check_writers,
    tools_of,
)
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.schema.parquet import read_trajectories, write_samples
from vtune.tools.calls import read_calls
from vtune.tools.tool import Scene
from vtune.tools.toolbox import Results

TEXT: dict[str, Any] = {"top_k": 3, "max_chars": 500}
PICTURES: dict[str, Any] = TEXT | {"show": False}
PATIENCE = {"timeout_s": 5, "retries": 1, "deadline_s": 10, "concurrency": 2}


@pytest.mark.parametrize(
    ("tool", "section", "why"),
    [
        ("text_search", TEXT, "exactly one of index"),
        ("text_search", TEXT | {"index": "a", "url": "http://b:1", "patience": PATIENCE}, "exactly one"),
        ("text_search", TEXT | {"url": "b:1", "patience": PATIENCE}, "not a URL"),
        ("text_search", TEXT | {"url": "http://b:1"}, r"needs patience, e\.g\. patience: \{timeout_s: 10,"),
        ("text_search", TEXT | {"index": "a", "patience": PATIENCE}, "patience .* leave it out"),
        ("text_search", TEXT | {"index": "a", "token_env": "T"}, "token_env"),
        ("image_search", PICTURES, "exactly one of cached"),
        ("image_search", PICTURES | {"index": "a", "thumbnails": "b"}, "thumbnails"),
        ("image_search", PICTURES | {"cached": True}, "show is for index"),
        ("image_search", TEXT | {"index": "a"}, "show is for index"),
        ("image_search", TEXT | {"cached": True, "min_score": 0.5}, "min_score"),
        ("zoom", {"space": "pixels", "min_side": 28}, "shown_pixels"),
    ],
)
def test_a_contradictory_tools_section_is_refused(tool: str, section: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        ToolsRecipe.model_validate({tool: section})


def test_tools_can_be_added_to_shipped_recipes_and_suites() -> None:
    override = ["tools={zoom: {space: relative_1000, min_side: 28}}"]
    for name, package, kind in (
        ("codev-tiny", "recipes.rl", RLRecipe),
        ("lens", "eval_suites", EvalSuite),
    ):
        assert load_recipe(find(name, package), kind).tools is None
        recipe = load_recipe(find(name, package), kind, override)
        assert recipe.tools is not None
        assert recipe.tools.zoom is not None


@pytest.mark.parametrize("name", ["image_zoom_in_tool", "text_search_tool", "image_search_tool"])
def test_a_tool_that_the_recipe_does_not_set_up_is_refused(name: str) -> None:
    sample = replace(SAMPLE, tools=("python", name))
    for recipe in (None, ToolsRecipe()):
        with pytest.raises(RecipeError, match=f"offers {name}, but no section tools"):
            check_tools([SAMPLE, sample], recipe, "tools")
    check_tools([SAMPLE], None, "tools")


def test_a_missing_index_or_missing_cached_results_are_refused(tmp_path: Path) -> None:
    missing = ToolsRecipe.model_validate({"text_search": TEXT | {"index": str(tmp_path)}})
    with pytest.raises(DataError, match="no index in") as found:
        check_indexes(missing)
    assert found.value.where == "tools.text_search"
    check_indexes(None)
    cached = ToolsRecipe.model_validate({"image_search": TEXT | {"cached": True}})
    with pytest.raises(DataError, match="not a cached image search"):
        check_tools([replace(SAMPLE, tools=("image_search_tool",))], cached, "tools")


SERPER: dict[str, Any] = {"api_key_env": "NO_SUCH_KEY", "max_requests": 1, "recorded": []}
PAGES = {"engine": "serper", "api_key_env": "NO_SUCH_KEY", "read": 0, "page_chars": 9}
SEARCHED = TEXT | {"patience": PATIENCE}
ASKING: dict[str, tuple[dict[str, Any], str]] = {
    "web": ({"text_search": SEARCHED | {"web": SERPER}}, "NO_SUCH_KEY"),
    "pages": ({"text_search": SEARCHED | {"pages": PAGES}}, "NO_SUCH_KEY"),
    "a service": (
        {"text_search": SEARCHED | {"url": "http://b:1", "token_env": "NO_SUCH_KEY"}},
        "NO_SUCH_KEY",
    ),
    "pictures": (
        {"image_search": SEARCHED | {"web": {"url": "http://b:1", "api_key_env": "NO_SUCH_KEY"}}},
        "NO_SUCH_KEY",
    ),
    "recorded": (
        {"text_search": SEARCHED | {"web": SERPER | {"api_key_env": None, "recorded": ["gone.jsonl"]}}},
        "gone.jsonl",
    ),
    "replay": ({"text_search": SEARCHED | {"pages": PAGES}, "web": {"replay": ["gone.jsonl"]}}, "gone.jsonl"),
}


@pytest.mark.parametrize("what", ASKING)
def test_missing_tool_credentials_are_found_before_weights_are_loaded(
    what: str, tiny: Path, lens: Path, tmp_path: Path
) -> None:
    section, missing = ASKING[what]
    with pytest.raises((RecipeError, DataError), match=missing):
        check_asking(ToolsRecipe.model_validate(section))
    words = rl(tiny, lens / "train.parquet", tmp_path / "run", "--set", f"tools={json.dumps(section)}")
    ended = command(*words)
    assert (ended.code, missing in ended.err) == (2, True)
    assert not (tmp_path / "run").exists()
    assert missing in command(*words, "--dry-run").out


def test_a_dry_run_lists_unreachable_services_of_a_suites_tools(
    tiny: Path, lens: Path, tmp_path: Path
) -> None:
    section, missing = ASKING["a service"]
    suite = {"suite": "lens", "settings": {"data": [str(lens / "heldout.parquet")], "tools": section}}
    given = ("--set", f"eval={json.dumps({'every': 1, 'suites': [suite]})}")
    words = rl(tiny, lens / "train.parquet", tmp_path / "run", *given)
    dry = command(*words, "--dry-run", "--json")
    assert dry.code == 0, dry.err
    (line,) = json.loads(dry.out)["check"]["missing"]
    assert line.startswith("tools of eval suite lens")
    assert missing in line
    assert command(*words).code == 2


def test_a_replay_needs_no_key(tmp_path: Path) -> None:
    (tmp_path / "web.jsonl").write_text("")
    replayed = {"text_search": SEARCHED | {"pages": PAGES}, "web": {"replay": [str(tmp_path / "web.jsonl")]}}
    check_asking(ToolsRecipe.model_validate(replayed))


def test_several_processes_cannot_write_one_web_record(tiny: Path, lens: Path, tmp_path: Path) -> None:
    section = {
        "text_search": SEARCHED | {"pages": PAGES | {"api_key_env": None}},
        "web": {"record": "w.jsonl"},
    }
    words = rl(tiny, lens / "train.parquet", tmp_path / "run", "--set", f"tools={json.dumps(section)}")
    ended = command(*words, "--dry-run", *setting(prompts_per_step=2), "--gpus", 2)
    assert ended.code == 2
    assert "2 processes would write to the same record of the web, w.jsonl" in ended.err
    check_writers(ToolsRecipe.model_validate(section), world=1)


async def summarised(url: str, folder: Path) -> str:
    from vtune.runs.data.indexing import index_passages

    (folder / "corpus.jsonl").write_text('{"text": "A ferry sails to Sark."}\n')
    index_passages(folder / "corpus.jsonl", folder / "index")
    model = {
        "base_url": url,
        "model": "m",
        "temperature": 0,
        "max_tokens": 99,
        "concurrency": 1,
        "retries": 0,
        "timeout_s": 5,
        "api_key_env": None,
    }
    section = TEXT | {"index": str(folder / "index"), "summariser": model}
    recipe = ToolsRecipe.model_validate({"text_search": section})
    turn = '<tool_call>{"name": "text_search_tool", "arguments": {"query": "ferry"}}</tool_call>'
    async with tools_of(recipe, folder / "record.jsonl") as toolbox:
        (asked,) = read_calls(turn, ["text_search_tool"])
        seen = await toolbox.run(asked, Scene(SAMPLE, (), ()), 0, Results())
    return f"{seen.status}: {seen.text}"


def test_a_summariser_reads_the_results_and_its_failure_is_our_error(tmp_path: Path) -> None:
    with serve("It sails.") as judge:
        text = asyncio.run(summarised(judge.endpoint().base_url, tmp_path))
        assert text == "ok: It sails."
        assert "A ferry sails to Sark." in str(judge.requests)
    (tmp_path / "again").mkdir()
    assert asyncio.run(summarised("http://127.0.0.1:1/v1", tmp_path / "again")).startswith("infra")


def test_a_summariser_that_does_not_answer_is_found_at_the_start(
    tiny: Path, tmp_path: Path, asked: list[str]
) -> None:
    with serve(404) as model:
        endpoint = {**model.endpoint().model_dump(), "api_key_env": "null"}
        text = ", ".join(f"{key}: {value}" for key, value in endpoint.items())
        asked += ["--set", f"tools.text_search.summariser={{{text}}}"]
        data = tmp_path / "data.parquet"
        training = rl(tiny, data, tmp_path / "run", *asked, *setting(reward__tool=0.0))
        for words in (training, evaluation(tiny, data, tmp_path / "out", *asked)):
            ended = command(*words)
            assert ended.code == 1
            assert "text searches would have no summary" in ended.err
    assert not (tmp_path / "run").exists()


def calling(policy: Any, **_: Any) -> ScriptedEngine:
    """An engine whose policy searches, zooms in, and answers."""
    calls = [
        '{"name": "text_search_tool", "arguments": {"query": "ferry"}}',
        '{"name": "image_zoom_in_tool", "arguments": {"bbox_2d": [0, 0, 500, 500]}}',
    ]
    turns = [f"<think>I look.</think>\n<tool_call>\n{call}\n</tool_call>" for call in calls]
    return ScriptedEngine(policy.chat, [*turns, "<think>So.</think>\n<answer>7</answer>"])


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """`--set` arguments of a run whose samples offer tools; its engine makes two calls per rollout."""
    draw_with(monkeypatch, calling)
    offered = ("text_search_tool", "image_zoom_in_tool")
    samples = [replace(SAMPLE, id=f"signs/{n}", tools=offered) for n in range(4)]
    write_samples(tmp_path / "data.parquet", samples)
    (tmp_path / "corpus.jsonl").write_text('{"text": "A ferry sails to Sark."}\n')
    ended = command("data", "index", tmp_path / "corpus.jsonl", "--out", tmp_path / "index", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["passages"] == 1
    text = f"{{index: {tmp_path / 'index'}, top_k: 3, max_chars: 99}}"
    tools = f"tools={{zoom: {{space: relative_1000, min_side: 8}}, text_search: {text}}}"
    limits = setting(rollout__prompt="tools", rollout__max_tokens=2000, rollout__max_new_tokens=200)
    return [*limits, "--set", tools, *setting(rollout__max_batch=1)]


def test_an_evaluation_calls_the_tools_and_counts_their_results(
    tiny: Path, tmp_path: Path, asked: list[str]
) -> None:
    data, out = tmp_path / "data.parquet", tmp_path / "out"
    refused = command(*evaluation(tiny, data, out))
    assert refused.code == 2
    assert "no section tools.text_search says how to run it" in refused.err
    ended = command(*evaluation(tiny, data, out, *asked), "--json")
    assert ended.code == 0, ended.err
    result = json.loads(ended.out)
    assert result["sources"]["all"]["tool_calls"] == 2
    assert result["sources"]["all"]["accuracy"] == 1
    assert (result["sources"]["all"]["calls_ok"], result["sources"]["all"]["calls_invalid"]) == (8, 0)
    for found in read_trajectories(out / "trajectories.parquet"):
        assert [call.tool for call in found.calls] == ["text_search_tool", "image_zoom_in_tool"]
        assert "A ferry sails to Sark." in found.calls[0].output
        assert [crop.bbox for crop in found.calls[1].crops] == [(0.0, 0.0, 28.0, 28.0)]
        assert found.reward is not None
        assert found.reward.format == 1.0


def test_a_step_of_training_learns_from_conversations_with_tools(
    tiny: Path, tmp_path: Path, asked: list[str]
) -> None:
    out = tmp_path / "out"
    words = rl(tiny, tmp_path / "data.parquet", out, *asked, *setting(steps=1, reward__tool=0.0))
    ended = command(*words, "--json")
    assert ended.code == 0, ended.err
    (step,) = (out / "trajectories").iterdir()
    drawn = list(read_trajectories(step))
    assert len(drawn) == 8
    assert all(found.advantage is not None and len(found.calls) == 2 for found in drawn)
