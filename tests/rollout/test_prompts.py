from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.rollout.build import SAMPLE
from vtune.rollout.prompt_pool import BOXED, TAGGED, THINK
from vtune.rollout.prompts import PYTHON_RULES, STYLES, Style, ask, codev, plain
from vtune.schema.message import Message
from vtune.verifiers import VERIFIERS

NAMES, SIZES = ("image_0.png", "image_1.jpg"), ((448, 336), (20, 30))


def test_the_codev_prompt_matches_the_golden_file(golden: Callable[[str, str], None]) -> None:
    messages = codev(SAMPLE, NAMES[:1], SIZES[:1])
    golden("prompt_codev.txt", "".join(f"--- {message.role}\n{message.content}\n" for message in messages))
    assert messages[-1].content.startswith(SAMPLE.prompt[0].content)
    assert '"image_0.png"' in messages[-1].content
    assert '"448×336"' in messages[-1].content


def test_codev_describes_every_picture_and_keeps_the_number_of_marks() -> None:
    two = replace(SAMPLE, prompt=(Message("user", "<image><image>Which?", (0, 1)),), images=SAMPLE.images * 2)
    content = codev(two, NAMES, SIZES)[-1].content
    assert content.startswith(
        "<image><image>Which?\n"
        '### User Image Path:** "image_0.png"\n### User Image Size:** "448×336"\n'
        '### User Image Path:** "image_1.jpg"\n### User Image Size:** "20×30"\n### **Output Format'
    )


def test_codev_appends_its_rules_to_a_system_turn_and_needs_none_without_tools() -> None:
    own = replace(SAMPLE, prompt=(Message("system", "Be brief."), *SAMPLE.prompt))
    (system, _) = codev(own, NAMES[:1], SIZES[:1])
    assert system == Message("system", f"Be brief.\n\n{PYTHON_RULES}")
    told = replace(SAMPLE, prompt=(Message("system", "Write <code>\nprint(1)\n</code>."), *SAMPLE.prompt))
    assert codev(told, NAMES[:1], SIZES[:1])[:-1] == told.prompt[:1]
    bare = replace(own, tools=())
    assert codev(bare, NAMES[:1], SIZES[:1])[:-1] == (Message("system", "Be brief."),)
    assert [m.role for m in codev(replace(SAMPLE, tools=()), NAMES[:1], SIZES[:1])] == ["user"]


def test_codev_asks_for_the_same_format_without_a_picture() -> None:
    text = replace(SAMPLE, prompt=(Message("user", "What is 1 + 1?"),), images=())
    content = codev(text, (), ())[-1].content
    assert content.startswith("What is 1 + 1?\n### **Output Format")
    assert codev(SAMPLE, NAMES[:1], SIZES[:1])[-1].content.endswith(content.removeprefix("What is 1 + 1?"))


def test_the_path_goes_into_the_last_user_turn() -> None:
    turns = (*SAMPLE.prompt, Message("assistant", "What?"), Message("user", "The digit."))
    *_, first, _, last = codev(replace(SAMPLE, prompt=turns), NAMES[:1], SIZES[:1])
    assert "image_0.png" in last.content
    assert "image_0.png" not in first.content


def test_plain_adds_nothing() -> None:
    assert plain(SAMPLE, NAMES[:1], SIZES[:1]) == SAMPLE.prompt
    assert STYLES["plain"].turns is plain


def pooled(draw: int, **changes: object) -> str:
    sample = replace(SAMPLE, **changes)  # type: ignore[arg-type]
    return ask("pool", sample, NAMES[:1], SIZES[:1], draw=draw)[-1].content


def test_the_pool_has_ten_by_ten_wordings_for_thoughts_and_the_answers_place() -> None:
    boxed = {pooled(draw, verifier="math", verifier_parm={"answer_in": "boxed"}) for draw in range(2000)}
    question = SAMPLE.prompt[0].content
    assert boxed == {f"{question}\n\n{think} {place}" for think in THINK for place in BOXED}
    assert len(boxed) == 100
    tagged = {pooled(draw, verifier="math") for draw in range(2000)}
    assert tagged == {f"{question}\n\n{think} {place}" for think in THINK for place in TAGGED}


def test_the_pool_gives_the_same_wording_for_the_same_seed() -> None:
    assert pooled(7) == pooled(7)
    assert pooled(7) != pooled(8)


@pytest.mark.parametrize(
    ("said", "changes"),
    [
        ("Think in <think> </think>, answer in <answer> </answer>.", {}),
        ("Put it in \\boxed{}.", {"verifier_parm": {"answer_in": "boxed"}}),
        ("Which?", {"verifier_parm": {"answer_in": "reply"}}),
    ],
)
def test_the_pool_adds_nothing_to_questions_that_state_the_answers_place(
    said: str, changes: dict[str, object]
) -> None:
    prompt = (Message("user", f"<image>{said}", (0,)),)
    assert pooled(7, prompt=prompt, **changes) == f"<image>{said}"


def test_a_box_in_tags_is_requested_if_the_tags_are_rewarded() -> None:
    """Like V-Triune's loader for rows with a format ratio."""
    asked = pooled(7, verifier="math", verifier_parm={"answer_in": "boxed"}, format_ratio=0.1)
    assert any(place in asked for place in TAGGED)
    assert any(place in asked for place in BOXED)


@pytest.mark.parametrize("style", ["codev", "tools", "pool"])
@pytest.mark.parametrize("name", sorted(name for name, one in VERIFIERS.items() if one.self_contained))
def test_every_style_except_plain_asks_for_a_format_that_cannot_be_guessed(style: Style, name: str) -> None:
    bare = replace(SAMPLE, verifier=name, verifier_parm={"space": "relative_1000"})
    form = VERIFIERS[name].form(bare)
    assert form in ask(style, bare, NAMES[:1], SIZES[:1], draw=0)[-1].content
    assert ask("plain", bare, NAMES[:1], SIZES[:1], draw=0) == SAMPLE.prompt
