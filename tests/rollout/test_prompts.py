from collections.abc import Callable
from dataclasses import replace

from tests.rollout.build import SAMPLE
from vtune.rollout.prompts import STYLES, codev, plain
from vtune.schema.message import Message

NAMES, SIZES = ("image_0.png", "image_1.jpg"), ((448, 336), (20, 30))


def test_the_prompt_of_codev_reads_as_reviewed(golden: Callable[[str, str], None]) -> None:
    messages = codev(SAMPLE, NAMES[:1], SIZES[:1])
    golden("prompt_codev.txt", "".join(f"--- {message.role}\n{message.content}\n" for message in messages))
    assert messages[-1].content.startswith(SAMPLE.prompt[0].content)
    assert '"image_0.png"' in messages[-1].content
    assert '"448×336"' in messages[-1].content


def test_codev_tells_the_first_picture_and_keeps_the_number_of_marks() -> None:
    two = replace(SAMPLE, prompt=(Message("user", "<image><image>Which?", (0, 1)),), images=SAMPLE.images * 2)
    content = codev(two, NAMES, SIZES)[-1].content
    assert content.count("<image>") == 2
    assert "image_0.png" in content
    assert "image_1.jpg" not in content


def test_codev_leaves_a_system_turn_alone_and_needs_none_without_tools() -> None:
    own = replace(SAMPLE, prompt=(Message("system", "Be brief."), *SAMPLE.prompt))
    assert codev(own, NAMES[:1], SIZES[:1])[:-1] == (Message("system", "Be brief."),)
    assert [m.role for m in codev(replace(SAMPLE, tools=()), NAMES[:1], SIZES[:1])] == ["user"]


def test_codev_asks_about_text_alone() -> None:
    text = replace(SAMPLE, prompt=(Message("user", "What is 1 + 1?"),), images=())
    assert codev(text, (), ())[-1] == text.prompt[0]


def test_the_path_goes_into_the_last_user_turn() -> None:
    turns = (*SAMPLE.prompt, Message("assistant", "What?"), Message("user", "The digit."))
    *_, first, _, last = codev(replace(SAMPLE, prompt=turns), NAMES[:1], SIZES[:1])
    assert "image_0.png" in last.content
    assert "image_0.png" not in first.content


def test_plain_adds_nothing() -> None:
    assert plain(SAMPLE, NAMES[:1], SIZES[:1]) == SAMPLE.prompt
    assert STYLES["plain"] is plain
