"""Credit transfer's chain, from SenseNova-MARS's published data to the tables, with the shipped recipes.

Training sets -> `data/search-4k` -> `rl/credit-search-8b` and `-4b`; test sets -> `eval/search`.

Of four rollouts the first does what its prompt asks, and the second what models have learnt from the data's
original prompt (`<thinking>`). Both are right. The third and fourth are wrong, one after a useful call and
the other after a useless one: credit transfer has to tell these apart.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chains.calling import called, responses, thousandths
from tests.chains.overrides import check_unchanged, settings
from tests.chains.pictures import shows_colour
from tests.chains.table import Record, record_earned
from tests.data.benchmarks import picture
from tests.judge.server import FakeJudge, serve
from tests.rollout.scripted import ScriptedEngine
from tests.runs.commands import vtune
from tests.scripted import draw_with
from vtune.judge.prompts import ANSWER_SYSTEM, TARGET_SYSTEM
from vtune.models.chat import Chat
from vtune.reward.preflight import HELLO
from vtune.rollout.engine import Completion, Request
from vtune.rollout.prompts import TOOLS_SYSTEM
from vtune.schema.parquet import read_samples, read_trajectories
from vtune.schema.trajectory import Trajectory
from vtune.tools.text_search import SUMMARISE

pytestmark = pytest.mark.train

SIZE = (400, 300)
SIGN = (40, 40, 140, 140)
"""Box of the only object in the pictures, in pixels."""
AROUND, NEAR, ELSEWHERE = (40, 40, 140, 140), (40, 50, 140, 140), (240, 180, 340, 280)
"""Looks at it with IoU 1, IoU 0.9 and no overlap."""

SYSTEM = (
    "#Role\nYou are a step-by-step reasoning assistant. \nGiven a question, your task is to solve the "
    "problem **one substep at a time**.\n\nAll outputs **must begin with a thought** enclosed in <thinking> "
    "</thinking> tags. Then one tool in <tool_call> </tool_call>, or <answer> Final answer </answer>"
)
"""The system prompt of the meta file, shortened."""


@dataclass(frozen=True)
class Asked:
    """A question of a published file."""

    source: str
    """Its name in the meta file."""
    text: str
    truth: str | list[str]
    says: str
    """A right answer in other words, if a judge compares."""
    found: tuple[str, ...] = ()
    """Titles that an image search finds; () if the row has no such column."""
    rule: bool = False
    """Whether it is multiple choice, compared by rule."""


PARK = "When was the park in the picture opened?"
TRAIN = (
    Asked(
        "fvqa_train", PARK, ["1996", "17 March 1996"], "It opened in 1996.",
        found=("Legoland Windsor could open golf course", "LEGOLAND Windsor Resort"),
    ),
    Asked("deepeyes_4k_train_non_mcq", "What is the colour of the sign?", "The sign is red.", "red"),
    Asked("visual_probe_train", "Which number is on the sign?", "73", "number 73"),
    Asked("deepeyes_4k_train_mcq", "Where is the sign?\n(A) left\n(B) right", "A", "A", rule=True),
)  # fmt: skip
TEST = (
    Asked(
        "fvqa_test", "In which year was the tower in the picture opened?", ["1889"], "opened in 1889",
        found=("Eiffel Tower by night",),
    ),
    Asked("hr_mmsearch", "Which word is on the sign?", "EXIT", "exit sign"),
)  # fmt: skip
NAMES = {"deepeyes_4k_train_non_mcq": "deepeyes_4k_non_mcq", "deepeyes_4k_train_mcq": "deepeyes_4k_mcq"}
"""Name in the meta file -> name in the data recipe."""
PASSAGES = (
    ("Legoland Windsor", "Legoland Windsor is a park in England. Its opening year is 1996."),
    ("Golf", "The best golf courses lie in Scotland."),
)


def published(folder: Path, name: str, questions: tuple[Asked, ...], used: str) -> Path:
    """Files as published by the authors: a meta file, and JSON lines and pictures for each set."""
    meta = {}
    for number, asked in enumerate(questions):
        here = folder / "data" / asked.source
        (here / "images").mkdir(parents=True)
        (here / "images" / "0.jpg").write_bytes(picture(number, SIZE, (40, 40, 100, 100)))
        row: dict[str, Any] = {
            "prompt": [{"role": "user", "content": f"<image>{asked.text}"}],
            "image": ["images/0.jpg"],
            "reward_model": {"ground_truth": asked.truth},
            "index": number,
        }
        if asked.found:
            row |= {
                "image_search_title_list": list(asked.found),
                "image_search_thumbnail_list": [f"thumbnails/{k}.jpg" for k in range(len(asked.found))],
            }
        (here / "data.jsonl").write_text(json.dumps(row) + "\n")
        rewards = {"reward_fn": [], "unused_reward_fn": []} | {
            used: ["em_score_mcq" if asked.rule else "llm_score"]
        }
        meta[asked.source] = rewards | {
            "root": f"./data/{asked.source}",
            "annotation": f"./data/{asked.source}/data.jsonl",
            "length": 1,
            "repeat_time": 1,
            "input_template": {
                "name": "general",
                "arguments": {"system_prompt": SYSTEM, "format_instruction": "", "add_image_path": False},
            },
            "comment": asked.source,
        }
    file = folder / name
    file.write_text(json.dumps(meta))
    return file


def models(request: dict[str, Any]) -> str:
    """A rule-based judge and summariser."""
    system, user = request["messages"]
    content = user["content"]
    text = content if isinstance(content, str) else next(p["text"] for p in content if p["type"] == "text")
    if system["content"] == ANSWER_SYSTEM:
        (reference,), (given,) = (
            re.findall(rf'{who} answer: "(.*)"', text) for who in ("Reference", "Student's")
        )
        key = reference.rstrip(".").split()[-1].lower()
        return "TRUE" if key in given.lower().split() or f"{key}." in given.split() else "FALSE"
    if system["content"] == SUMMARISE:
        return "In short: " + text.partition("Results:\n")[2].splitlines()[1]
    if system["content"] == TARGET_SYSTEM:
        return str(int(shows_colour(content)))
    assert system["content"] == HELLO.system
    return "1"


class Searching(ScriptedEngine):
    """Four rollouts of a question: obedient, taught, useful but wrong, useless and wrong.

    Args:
        chat: The chat template that it reads and writes.
        questions: The questions that it knows.
        always: Whether all rollouts are obedient.
    """

    def __init__(self, chat: Chat, questions: tuple[Asked, ...], *, always: bool) -> None:
        super().__init__(chat, ["never said"])
        self._questions = questions
        self._always = always

    async def generate(self, request: Request) -> Completion:
        *_, rollout, _ = request.key
        prompt = self._chat.decode(list(request.token_ids))
        (asked,) = [asked for asked in self._questions if asked.text in prompt]
        habit = 0 if self._always else rollout
        said = self.searches(prompt, asked, habit) if asked.found else self.looks(prompt, asked, habit)
        if habit == 1:
            said = said.replace("think>", "thinking>")
        return await ScriptedEngine(self._chat, [said]).generate(request)

    def searches(self, prompt: str, asked: Asked, habit: int) -> str:
        """Search for what the picture shows, then for facts about it; the answer is what was found."""
        told = responses(prompt)
        if habit == 3:
            return answered("1066") if told else called(prompt, "text_search_tool", query="best golf course")
        if not told:
            return called(prompt, "image_search_tool")
        if len(told) == 1:
            name = re.findall(r"1\. (\w+ \w+)", told[0])[0]
            query = f"{name} opening year" + (" England" if habit == 2 else "")
            return called(prompt, "text_search_tool", query=query)
        (year,) = re.findall(r"\b\d{4}\b", told[1])
        return answered("1066" if habit == 2 else f"It opened in {year}." if habit == 1 else year)

    def looks(self, prompt: str, asked: Asked, habit: int) -> str:
        """Look at the sign, or elsewhere; the right answer needs a look, unless it can be guessed."""
        right = asked.says if habit == 1 or isinstance(asked.truth, list) else asked.truth
        if habit == 1 and asked.rule:
            return answered(right)
        if not responses(prompt):
            box = {0: AROUND, 1: NEAR, 2: AROUND, 3: ELSEWHERE}[habit]
            return called(prompt, "image_zoom_in_tool", bbox_2d=thousandths(prompt, box, SIZE))
        return answered("B" if habit > 1 else str(right))


def answered(said: str) -> str:
    return f"<think>So it is.</think>\n<answer>{said}</answer>"


@pytest.fixture(scope="module")
def asked_models() -> Iterator[FakeJudge]:
    with serve(models) as served:
        yield served


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `data/search-4k` makes of the published training files."""
    folder = tmp_path_factory.mktemp("search")
    meta = published(folder, "train_qwen3_vl_8b.json", TRAIN, "reward_fn")
    out = folder / "train.parquet"
    ended = vtune("data", "import", "mars", meta, "--out", out, "--strict", "--json")
    assert ended.code == 0, ended.err
    names = [NAMES.get(asked.source, asked.source) for asked in TRAIN]
    changes = settings("data", **{f"sources__{name}__files": f"[{out}]" for name in names})
    ended = vtune("curate", "search-4k", "--out", folder / "curated", *changes, "--json")
    assert ended.code == 0, ended.err
    check_unchanged("data", "search-4k", folder / "curated" / "recipe.yaml")
    return folder / "curated" / "samples.parquet"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The local search index."""
    folder = tmp_path_factory.mktemp("wiki")
    rows = [{"id": str(n), "title": title, "text": text} for n, (title, text) in enumerate(PASSAGES)]
    (folder / "corpus.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    ended = vtune("data", "index", folder / "corpus.jsonl", "--out", folder / "index", "--json")
    assert ended.code == 0, ended.err
    return folder / "index"


@pytest.fixture(scope="module", params=["credit-search-8b", "credit-search-4b"])
def trained(
    request: pytest.FixtureRequest,
    samples: Path,
    index: Path,
    asked_models: FakeJudge,
    tiny3: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The run folder of one step of a recipe."""
    out = tmp_path_factory.mktemp("trained") / "run"
    url = asked_models.endpoint().base_url
    changes = settings(
        "rl",
        model=tiny3,
        data=f"[{samples}]",
        steps=1,
        prompts_per_step=len(TRAIN),
        group_size=4,
        rollout__engine="transformers",
        images__min_pixels=4096,
        images__max_pixels=16384,
        tools__text_search__index=index,
        tools__text_search__summariser__base_url=url,
        reward__judge__base_url=url,
        update__dtype="float32",
        update__threads=1,
        update__micro_tokens=16384,
    )
    with pytest.MonkeyPatch.context() as patch:
        draw_with(patch, lambda policy, **_: Searching(policy.chat, TRAIN, always=False))
        ended = vtune("rl", "--recipe", request.param, "--out", out, *changes, "--json")
    assert ended.code == 0, ended.err
    check_unchanged("rl", request.param, out / "recipe.yaml")
    return out


def drawn(run: Path) -> dict[tuple[str, int], Trajectory]:
    """(source, rollout) -> trajectory."""
    (step,) = (run / "trajectories").iterdir()
    return {(found.source, found.rollout): found for found in read_trajectories(step)}


SOURCES = [NAMES.get(asked.source, asked.source) for asked in TRAIN]


def test_the_data_recipe_writes_what_the_training_recipe_reads(samples: Path) -> None:
    found = {sample.source: sample for sample in read_samples(samples)}
    assert set(found) == set(SOURCES)
    assert {name: sample.verifier for name, sample in found.items()} == {
        name: "choice" if asked.rule else "judge" for name, asked in zip(SOURCES, TRAIN, strict=True)
    }
    tools = ("image_zoom_in_tool", "text_search_tool", "image_search_tool")
    assert all(sample.tools == tools for sample in found.values())


def test_the_policy_reads_one_prompt_with_all_tools(trained: Path) -> None:
    for found in drawn(trained).values():
        system, user, *_ = found.messages
        assert system.content.startswith(TOOLS_SYSTEM)
        assert system.content.count("<tools>") == 2  # Qwen's sentence about tools also names the tag
        assert "<thinking>" not in system.content + user.content


@pytest.mark.parametrize(("rollout", "whose"), [(0, "obedient"), (1, "taught")])
def test_obedient_and_taught_rollouts_earn_full_marks_for_every_source(
    trained: Path, rollout: int, whose: str, record_property: Record
) -> None:
    name = yaml.safe_load((trained / "recipe.yaml").read_text())["loss"]["algorithm"]
    recipe = {"sapo": "rl/credit-search-8b", "grpo": "rl/credit-search-4b"}[name]
    found = drawn(trained)
    record_earned(record_property, f"{recipe}, {whose}", [found[source, rollout] for source in SOURCES])
    for source in SOURCES:
        reward = found[source, rollout].reward
        assert reward is not None
        assert (reward.accuracy, reward.format) == (1.0, 1.0), (source, reward.why)
        assert reward.total == 1.5  # appendix B.2


def test_searches_find_what_the_index_and_the_columns_hold(trained: Path) -> None:
    looked_up, read = drawn(trained)["fvqa_train", 0].calls
    assert looked_up.output.splitlines()[:2] == [f"{n + 1}. {t}" for n, t in enumerate(TRAIN[0].found)]
    assert read.output.startswith("In short: ")
    assert "1996" in read.output


def test_a_useful_call_before_a_wrong_answer_is_punished_less_per_the_formula(trained: Path) -> None:
    found = drawn(trained)
    up = 0.5 / ((4 * 0.25 / 3) ** 0.5 + 1e-6)  # rewards 1.5, 1.5, 0.5, 0.5
    for source in SOURCES:
        assert [found[source, k].advantage for k in range(4)] == pytest.approx([up, up, -up, -up], abs=1e-5)
        assert found[source, 3].call_advantages == pytest.approx([-up], abs=1e-5)

    def after(similarity: float, support: float) -> float:
        return min(-up + 0.25 * similarity * support * up, 0.0)  # eq. 3 and 4, beta 0.25

    # Both successes looked: IoU 1 and 0.9, mean 0.95. For the multiple choice question one did not look.
    for source in ("deepeyes_4k_non_mcq", "visual_probe_train"):
        assert found[source, 2].call_advantages == pytest.approx([after(0.95, 1.0)], abs=1e-5)
    assert found["deepeyes_4k_mcq", 2].call_advantages == pytest.approx([after(1.0, 0.5)], abs=1e-5)
    # Both searched for "Legoland Windsor opening year", the failing one for the same plus "England" (eq. 5).
    short, long = (
        {text[k : k + 2] for k in range(len(text) - 1)}
        for text in ("legoland windsor opening year", "legoland windsor opening year england")
    )
    wording = 0.3 * 4 / 5 + 0.5 * 1.0 + 0.2 * len(short & long) / len(short | long)
    assert found["fvqa_train", 2].call_advantages == pytest.approx(
        [after(1.0, 1.0), after(wording, 1.0)], abs=1e-5
    )


def test_the_report_shows_whose_credit_was_transferred(trained: Path) -> None:
    ended = vtune("report", trained, "--credit", "--json")
    assert ended.code == 0, ended.err
    (told,) = json.loads(ended.out)["runs"]
    assert told["transferred"]
    assert (told["failing_trajectories"], told["failing_calls"]) == (8, 9)
    assert {name: tool["corrected"] for name, tool in told["tools"].items()} == {
        "image_search": 1, "zoom": 3, "text_search": 1,
    }  # fmt: skip


@pytest.fixture(scope="module")
def evaluated(asked_models: FakeJudge, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `eval/search` on published test files, by an obedient policy."""
    folder = tmp_path_factory.mktemp("evaluated")
    meta, data = published(folder, "test_all.json", TEST, "unused_reward_fn"), folder / "test.parquet"
    ended = vtune("data", "import", "mars", meta, "--out", data, "--strict", "--json")
    assert ended.code == 0, ended.err
    results = [{"id": "w", "title": "Eiffel Tower", "text": "It opened in 1889."}]
    web = {"query": "Eiffel Tower opening year", "top_k": 3, "results": results}
    (folder / "web.jsonl").write_text(json.dumps(web) + "\n")
    url, out = asked_models.endpoint().base_url, folder / "out"
    changes = settings(
        "eval",
        data=f"[{data}]",
        images__min_pixels=4096,
        images__max_pixels=16384,
        dtype="float32",
        threads=1,
        reward__judge__base_url=url,
        tools__text_search__summariser__base_url=url,
        tools__text_search__web__api_key_env="null",
        tools__text_search__web__recorded=f"[{folder / 'web.jsonl'}]",
    )
    with pytest.MonkeyPatch.context() as patch:
        draw_with(patch, lambda policy, **_: Searching(policy.chat, TEST, always=True))
        ended = vtune("eval", "--suite", "search", "--model", trained, "--out", out, *changes, "--json")
    assert ended.code == 0, ended.err
    check_unchanged("eval", "search", out / "suite.yaml")
    return out


def test_the_benchmarks_are_scored_as_in_their_table(evaluated: Path, record_property: Record) -> None:
    result = json.loads((evaluated / "results.json").read_text())["score"]
    assert result["score"] == 1.0
    assert {name: part["score"] for name, part in result["sources"].items()} == {
        "fvqa_test": 1.0, "hr_mmsearch": 1.0,
    }  # fmt: skip
    trajectories = list(read_trajectories(evaluated / "trajectories.parquet"))
    assert {found.reward.format for found in trajectories if found.reward} == {1.0}
    record_earned(record_property, "eval/search, obedient", trajectories)


def test_only_zooms_are_audited(trained: Path, evaluated: Path) -> None:
    audited = audit(trained)
    assert audited["n"] == 12  # four rollouts for each of three visual questions
    assert audited["accuracy"]["value"] == 0.5
    assert audited["faithful_of_correct"]["value"] == pytest.approx(5 / 6)  # one guessed
    assert audit(evaluated)["faithful_of_all"]["value"] == 1.0


def audit(run: Path) -> dict[str, Any]:
    ended = vtune("faithfulness", run, "--json")
    assert ended.code == 0, ended.err
    return dict(json.loads(ended.out)["all"])


def test_the_report_shows_training_and_evaluation_side_by_side(trained: Path, evaluated: Path) -> None:
    ended = vtune("report", trained, evaluated, "--json")
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    (run,), (evaluation,) = told["runs"], told["evaluations"]
    assert set(run["sources"]) == {"all", *SOURCES}
    assert run["sources"]["all"]["reward_accuracy"]["last"] == 0.5
    assert evaluation["score"]["sources"]["hr_mmsearch"]["score"] == 1.0
