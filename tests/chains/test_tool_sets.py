"""Every importer and verifier, prompt style and set of tools: doing what is asked earns the full reward.

A combination that cannot work is refused before the run: a style that does not describe a tool, or a question
that mentions a tool which is not offered. So every combination either earns the full reward or does not
start.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pytest

from tests.chains.calling import without_tools
from tests.chains.obedient import TAGS, answer, obedient, replied
from tests.chains.table import Record, record_combinations
from tests.chains.test_obedience import (
    IMPORTERS,
    SHOWN,
    SIZE,
    STYLES,
    earned,
    imported,
    judged,
    picture_size,
)
from tests.chains.toolsets import LOOKS, TOOL_SETS, Player, Step, as_published, searchable, tells_of_code
from tests.data.formats.published import jpeg
from tests.verifiers.cases import CASES, sample_of
from vtune.config import load_recipe
from vtune.data.offer import offering
from vtune.errors import DataError, RecipeError
from vtune.reward.format import counted_tags, format_reward
from vtune.rollout.prompts import Style, ask
from vtune.runs.agent.tools import ToolsRecipe, check_tools
from vtune.runs.recipes.shipped import find_shipped, shipped_recipes
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.parquet import load_picture
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call
from vtune.tools import TOOLS
from vtune.verifiers import VERIFIERS
from vtune.verifiers.answer_instruction import self_contained
from vtune.verifiers.verifier import ANSWER_IN

__all__ = ["imported"]
"""A fixture of a neighbouring module."""

BACKED = ToolsRecipe.model_validate(
    {
        "zoom": {"space": "relative_1000", "min_side": 28},
        "text_search": {"index": "index", "top_k": 3, "max_chars": 1000},
        "image_search": {"cached": True, "top_k": 5, "max_chars": 1000},
    }
)


@pytest.fixture(scope="module")
def player() -> Player:
    recipe = load_recipe(find_shipped("rl/codev").path, RLRecipe)
    return Player(recipe.reward.evidence)


@dataclass(frozen=True)
class Case:
    """A sample that offers a set of tools; None if it cannot."""

    tools: str
    sample: Sample | None


def offered_sets(sample: Sample) -> Iterator[Case]:
    for name, tools in TOOL_SETS.items():
        try:
            yield Case(name, searchable(offering(sample, tools)))
        except DataError:
            yield Case(name, None)


def is_asked(sample: Sample, style: Style) -> bool:
    """Whether a run accepts the sample, as `vtune rl` and `vtune eval` check before they start."""
    try:
        check_tools([sample], BACKED, style)
    except RecipeError:
        return False
    return True


def obey(sample: Sample, style: Style, player: Player, size: tuple[int, int]) -> None:
    """Check that obedience earns accuracy, format and the full reward for looks."""
    names = [f"image_{number}.png" for number in range(len(sample.images))]
    schemas = player.tools.schemas(player.tools.names(sample.tools))
    turns = ask(style, sample, names, [size] * len(names), schemas, draw=7)
    prompt = "\n".join(turn.content for turn in turns)
    assert tells_of_code(prompt) == ("python" in sample.tools), prompt
    messages, steps = player.play(sample, turns, obedient(without_tools(prompt), sample, SHOWN), prompt)
    paid(sample, messages, steps, counted=style == "pool")


def paid(
    sample: Sample, messages: Sequence[Message], steps: Sequence[Step], *, counted: bool = False
) -> None:
    """Check that a conversation earns accuracy and format in full, and each look its full score."""
    reply = "\n".join(turn.content for turn in messages if turn.role == "assistant")
    assert earned(sample, reply, SHOWN) == pytest.approx(1.0), reply
    calls: list[Call] = [step.call for step in steps]
    if counted:
        assert sample.format_ratio == 0 or counted_tags(reply).score == 1.0, reply
    else:
        assert format_reward(messages, calls).score == 1.0, reply
    for step in steps:
        assert step.call.status == "ok", step.call.error
        assert step.score == (1.0 if step.call.tool in LOOKS else 0.0)


def every(sample: Sample, player: Player, size: tuple[int, int]) -> Counter[str]:
    """Check obedience for all tool sets and styles of a sample, and the forms that cold starts teach.

    Returns:
        How many combinations were obeyed, refused before a run, or checked in the taught forms.
    """
    found: Counter[str] = Counter()
    for case in offered_sets(sample):
        for style in STYLES:
            if case.sample is None or not is_asked(case.sample, style):
                found["refused"] += 1
                continue
            obey(case.sample, style, player, size)
            found["obeyed"] += 1
        if case.sample is not None:
            found["taught"] += taught(case.sample, player)
    return found


def taught(sample: Sample, player: Player) -> int:
    """Check that the forms that cold starts teach earn the format reward; return how many there are.

    The forms of `vtune data make traces`, Thyme (one pair of `<think>` tags around all code) and
    SenseNova-MARS.
    """
    schemas = player.tools.schemas(player.tools.names(sample.tools))
    shown = tuple(range(len(sample.images)))
    bare = replace(sample, prompt=(Message("user", f"{IMAGE * len(shown)}?", shown),))
    told, *_ = ask("tools", bare, [], [], schemas, draw=0)
    boxed = TAGS if sample.verifier_parm.get("answer_in") == "boxed" else TAGS[:2]
    question = "\n".join(turn.content for turn in sample.prompt)
    final = replied(answer(question, sample, SHOWN), [*boxed])
    first, steps = player.play(sample, sample.prompt, final, told.content)
    second, _ = player.play(sample, sample.prompt, final, told.content, one_pair=True)
    forms = [first, second, as_published(first)]
    for messages in forms:
        paid(sample, messages, steps)
    return len(forms)


def of_importer(file: Path, player: Player) -> Counter[str]:
    """Check all combinations for the samples of an importer."""
    found: Counter[str] = Counter()
    for sample in judged(file):
        pictures = tuple(Picture(data=load_picture(picture, file.parent)) for picture in sample.images)
        found += every(replace(sample, images=pictures), player, picture_size(sample, file))
    return found


def of_verifier(name: str, player: Player) -> Counter[str]:
    """Check all combinations for samples of a verifier: every answer place, format rewarded or not."""
    found: Counter[str] = Counter()
    picture = Picture(data=jpeg(0, SIZE))
    space = {"space": "pixels", "width": SIZE[0], "height": SIZE[1]} if VERIFIERS[name].self_contained else {}
    for place, ratio in product(ANSWER_IN, (0.0, 0.1)):
        sample = replace(
            sample_of(name),
            prompt=(Message("user", f"{IMAGE}Which one?", (0,)),),
            images=(picture,),
            format_ratio=ratio,
            verifier_parm={"answer_in": place} | space,
        )
        # As after an import: policies trained on traces get no further instructions.
        found += every(self_contained(sample) if space else sample, player, SIZE)
    return found


@pytest.mark.parametrize("name", IMPORTERS)
def test_every_importer_works_with_every_style_and_tool_set(
    name: str, imported: dict[str, Path], player: Player, record_property: Record
) -> None:
    if not judged(imported[name]):  # all of it needs the official evaluator
        assert name == "mega_bench"
        return
    found = of_importer(imported[name], player)
    record_combinations(record_property, {f"importer, {kind}": count for kind, count in found.items()})
    assert (found["obeyed"] + found["refused"]) % (len(STYLES) * len(TOOL_SETS)) == 0
    assert found["obeyed"] >= len(TOOL_SETS) + 3
    assert found["taught"] >= 3 * len(TOOL_SETS)


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_verifier_works_with_every_style_and_tool_set(
    name: str, player: Player, record_property: Record
) -> None:
    found = of_verifier(name, player)
    record_combinations(record_property, {f"verifier, {kind}": count for kind, count in found.items()})
    # Six samples: `tools` describes all sets, `codev` only no tools and code, `pool` only no tools.
    assert found == {"obeyed": 6 * 12, "refused": 6 * 15, "taught": 6 * 27}


def test_the_tool_sets_include_those_of_the_recipes() -> None:
    used = set()
    for entry in shipped_recipes():
        tools = load_recipe(entry.path, RLRecipe).tools if entry.kind == "rl" else None
        used.add(frozenset() if tools is None else frozenset(tools.model_dump(exclude_none=True)) - {"web"})
    known = {
        frozenset(TOOLS[tool].section for tool in tools if tool != "python") for tools in TOOL_SETS.values()
    }
    assert len(used) > 1
    assert used <= known
