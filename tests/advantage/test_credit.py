import itertools
import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.advantage.brute import random_question, transferred
from vtune.advantage.credit import Transfer, token_advantages, transfer_credit
from vtune.advantage.recipe import PAPER, Credit, Gate
from vtune.config import load_recipe
from vtune.errors import RecipeError
from vtune.schema.message import Picture
from vtune.schema.reward import Reward
from vtune.schema.trajectory import Call, Crop, Trajectory

seeds = st.integers(0, 2**32)


def questions(seed: int, count: int) -> list[list[Trajectory]]:
    rng = random.Random(seed)
    return [random_question(rng, group) for group in range(count)]


def flat(groups: list[list[Trajectory]]) -> list[Trajectory]:
    return [trajectory for group in groups for trajectory in group]


@settings(max_examples=100)
@given(
    seed=seeds,
    beta=st.sampled_from([0.1, 0.25, 1.0]),
    theta=st.sampled_from([0.3, 0.5, 0.7, 0.8]),
    alpha=st.sampled_from([0.0, 0.2, 0.5]),
    without=st.sampled_from([None, None, "support", "clip"]),
)
def test_ten_thousand_groups_match_the_slow_reference(
    seed: int, beta: float, theta: float, alpha: float, without: str | None
) -> None:
    """A hundred groups at a time, as in a step; also checks invariants of all groups."""
    gate = Gate(similarity=theta, confidence=alpha)
    tools = {"image_search": gate, "zoom": gate, "text_search": gate}
    recipe = Credit(beta=beta, tools=tools, support=without != "support", clip=without != "clip")
    groups = questions(seed, 100)
    everything = flat(groups)
    found = transfer_credit(everything, recipe)
    slow = [advantages for group in groups for advantages in transferred(group, recipe)]
    corrected = 0
    for trajectory, mine, theirs in zip(everything, found.call_advantages, slow, strict=True):
        assert [a is None for a in mine] == [a is None for a in theirs]
        assert [a for a in mine if a is not None] == pytest.approx(
            [a for a in theirs if a is not None], abs=1e-6
        )
        won = trajectory.reward is not None and trajectory.reward.accuracy == 1.0
        for advantage in mine:
            changed = advantage is not None and advantage != trajectory.advantage
            assert not (changed and won), "a successful trajectory was changed"
            kept = not recipe.clip or not changed or advantage <= 0  # type: ignore[operator]
            assert kept, "a failing step was raised above 0"
            corrected += changed
    assert corrected == sum(match.correction != 0 for match in found.matches) > 0


@settings(max_examples=20)
@given(seed=seeds)
def test_the_order_of_trajectories_and_calls_does_not_matter(seed: int) -> None:
    everything = flat(questions(seed, 12))
    straight = transfer_credit(everything, PAPER)
    rng = random.Random(seed)
    order = list(range(len(everything)))
    rng.shuffle(order)
    turns = [rng.sample(range(len(t.calls)), len(t.calls)) for t in everything]
    mixed = transfer_credit(
        [replace(everything[i], calls=tuple(everything[i].calls[k] for k in turns[i])) for i in order], PAPER
    )
    for place, i in enumerate(order):
        for at, k in enumerate(turns[i]):
            a, b = mixed.call_advantages[place][at], straight.call_advantages[i][k]
            assert a == b or a == pytest.approx(b, abs=1e-9)


@settings(max_examples=20)
@given(seed=seeds)
def test_questions_do_not_affect_each_other(seed: int) -> None:
    groups = questions(seed, 6)
    alone = [advantages for group in groups for advantages in transfer_credit(group, PAPER).call_advantages]
    together = transfer_credit(flat(groups), PAPER).call_advantages
    assert [len(one) for one in together] == [len(one) for one in alone]
    for mine, theirs in zip(together, alone, strict=True):
        assert [a or 0.0 for a in mine] == pytest.approx([a or 0.0 for a in theirs], abs=1e-12)


@settings(max_examples=20)
@given(seed=seeds)
def test_without_matches_the_group_advantages_are_unchanged(seed: int) -> None:
    """Every call asks something else; also if no trajectory, or every one, is right."""
    everything = flat(questions(seed, 6))
    numbers = itertools.count()
    strange = [
        replace(
            t,
            calls=tuple(
                replace(
                    call,
                    tool="text_search_tool",
                    arguments=json.dumps({"query": chr(0x4E00 + next(numbers))}),
                )
                for call in t.calls
            ),
        )
        for t in everything
    ]
    for accuracy in (None, 0.0, 1.0):
        given = [
            t
            if accuracy is None or t.reward is None
            else replace(t, reward=replace(t.reward, accuracy=accuracy))
            for t in (strange if accuracy is None else everything)
        ]
        found = transfer_credit(given, PAPER)
        for t, advantages in zip(given, found.call_advantages, strict=True):
            known = t.reward is not None and t.reward.accuracy is not None
            assert advantages == (t.advantage if known else None,) * len(t.calls)
        assert not any(match.correction for match in found.matches)


def ask(query: str, **changes: object) -> Call:
    return replace(
        Call(tool="text_search_tool", arguments=json.dumps({"query": query}), status="ok"), **changes
    )  # type: ignore[arg-type]


def look(*boxes: tuple[float, float, float, float], tool: str = "image_zoom_in_tool", image: int = 0) -> Call:
    return Call(
        tool=tool, arguments="{}", status="ok", crops=tuple(Crop(image, box, shown=0) for box in boxes)
    )


SEARCH = Call(tool="image_search_tool", arguments="{}", status="ok")
PICTURES = (Picture(data=b"photo"), Picture(data=b"crop", origin="call:0"))


def tried(right: bool, advantage: float, *calls: Call, **changes: object) -> Trajectory:
    reward = Reward(total=float(right), accuracy=float(right), format=1.0, tool=None, why="")
    made = Trajectory(
        sample_id="q/1", source="q", images=PICTURES, calls=calls, reward=reward, advantage=advantage
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def after(*trajectories: Trajectory, recipe: Credit = PAPER) -> Transfer:
    return transfer_credit(trajectories, recipe)


def test_the_papers_example_matches_a_hand_calculation() -> None:
    """Both successes searched the picture and one asked the same query: mean advantages 0.8 and 1.2."""
    question = (
        tried(True, 1.2, SEARCH, ask("legoland windsor opening year")),
        tried(True, 0.4, SEARCH),
        tried(False, -0.8, SEARCH, ask("legoland windsor opening year"), ask("golf club fees")),
    )
    found = after(*question)
    searched, asked, strange = found.call_advantages[2]
    # The picture: similarity 1, support 2/2, mean advantage 0.8. The query: support 1/2, mean 1.2.
    assert searched == pytest.approx(-0.8 + 0.25 * 1.0 * 0.8)
    assert asked == pytest.approx(-0.8 + 0.25 * 0.5 * 1.2)
    assert strange == -0.8
    assert found.call_advantages[:2] == ((1.2, 1.2), (0.4,))
    assert found.failing == (2,)
    assert found.failing_calls == 3


def test_a_large_credit_is_clipped_at_zero() -> None:
    found = after(tried(True, 2.5, SEARCH), tried(False, -0.1, SEARCH))
    assert found.call_advantages[1] == (0.0,)


def test_without_the_clip_a_failing_call_may_get_a_positive_advantage() -> None:
    question = (tried(True, 2.5, SEARCH), tried(False, -0.1, SEARCH))
    recipe = PAPER.model_copy(update={"clip": False})
    assert after(*question, recipe=recipe).call_advantages[1] == (pytest.approx(-0.1 + 0.25 * 2.5),)


def test_without_support_a_single_witness_transfers_its_full_credit() -> None:
    question = (tried(True, 1.0, SEARCH), tried(True, 1.0), tried(True, 1.0), tried(False, -1.0, SEARCH))
    recipe = PAPER.model_copy(update={"support": False})
    assert after(*question).call_advantages[3] == (-1.0,)
    found = after(*question, recipe=recipe)
    assert found.call_advantages[3] == (-1.0 + 0.25 * 1.0,)
    assert found.matches[0].support == pytest.approx(1 / 3)


def test_group_advantage_averages_calls_and_support_counts_trajectories() -> None:
    question = (
        tried(True, 2.0, SEARCH, SEARCH, SEARCH), tried(True, 0.4, SEARCH), tried(False, -2.0, SEARCH)
    )  # fmt: skip
    (match,) = after(*question).matches
    assert (match.similarity, match.support) == (1.0, 1.0)
    assert match.credit == pytest.approx((3 * 2.0 + 0.4) / 4)


def test_image_search_needs_every_success_as_a_witness() -> None:
    question = (tried(True, 1.0, SEARCH), tried(True, 1.0), tried(False, -1.0, SEARCH))
    assert after(*question).call_advantages[2] == (-1.0,)
    assert after(question[0], question[2]).call_advantages[1] == (-0.75,)


def test_success_means_a_right_answer_not_a_high_reward() -> None:
    """A wrong answer with a high reward for format and looks is not a witness."""
    rich = tried(False, 1.5, SEARCH)
    assert after(rich, tried(False, -1.0, SEARCH)).matches == ()
    # Nor is it changed if others were right: its advantage is not negative.
    found = after(tried(True, 1.0, SEARCH), rich)
    assert found.call_advantages[1] == (1.5,)


@pytest.mark.parametrize("status", ["timeout", "killed"])
def test_a_call_that_failed_is_no_witness_but_its_arguments_may_earn_credit(status: str) -> None:
    query = "legoland windsor opening year"
    failed, fine = ask(query, status=status), ask(query)
    assert after(tried(True, 1.0, failed), tried(False, -1.0, fine)).call_advantages[1] == (-1.0,)
    assert after(tried(True, 1.0, fine), tried(False, -1.0, failed)).call_advantages[1] == (-0.75,)


@pytest.mark.parametrize("status", ["error", "blocked"])
def test_a_call_that_never_ran_takes_no_part(status: str) -> None:
    query = "legoland windsor opening year"
    refused, fine = ask(query, status=status), ask(query)
    found = after(tried(True, 1.0, fine), tried(False, -1.0, refused, fine))
    assert found.call_advantages[1] == (-1.0, -0.75)
    assert found.failing_calls == 1


def test_code_that_failed_after_its_crop_counts_as_run() -> None:
    crop = look((10.0, 10.0, 50.0, 50.0), tool="python")
    found = after(tried(True, 1.0, crop), tried(False, -1.0, replace(crop, status="error")))
    assert found.call_advantages[1] == (-0.75,)


def test_unscored_trajectories_take_no_part() -> None:
    unscored = tried(
        True, 1.0, SEARCH, reward=Reward(total=None, accuracy=None, format=None, tool=None, why="x")
    )
    lost = replace(tried(True, 1.0, SEARCH), advantage=None)
    found = after(tried(True, 1.0, SEARCH), unscored, lost, tried(False, -1.0, SEARCH))
    assert found.call_advantages == ((1.0,), (None,), (None,), (-0.75,))


def test_cropping_code_and_the_zoom_tool_are_witnesses_of_each_other() -> None:
    box = (10.0, 10.0, 50.0, 50.0)
    code, zoom = look(box, tool="python"), look(box)
    for witness, failing in ((code, zoom), (zoom, code)):
        assert after(tried(True, 1.0, witness), tried(False, -1.0, failing)).call_advantages[1] == (-0.75,)
    # Code without a crop is not a look.
    bare = Call(tool="python", arguments='{"code": "1"}', status="ok")
    assert after(tried(True, 1.0, bare), tried(False, -1.0, bare)).matches == ()


def test_a_call_with_several_crops_matches_the_same_crops_in_any_order() -> None:
    a, b, c = (0.0, 0.0, 10.0, 10.0), (20.0, 20.0, 40.0, 40.0), (60.0, 0.0, 90.0, 20.0)
    witness = tried(True, 1.0, look(a, b))
    nearest = {
        name: after(witness, tried(False, -1.0, call)).matches[0].nearest
        for name, call in {
            "same": look(b, a), "one of two": look(a), "one more": look(a, b, c), "other": look(c, c),
        }.items()
    }  # fmt: skip
    assert nearest == pytest.approx({"same": 1.0, "one of two": 2 / 3, "one more": 4 / 5, "other": 0.0})


def test_crops_of_returned_pictures_match_only_if_the_pictures_do() -> None:
    box = (0.0, 0.0, 10.0, 10.0)
    shown, other = look(box, image=1), (PICTURES[0], Picture(data=b"another", origin="call:0"))
    failing = tried(False, -1.0, shown)
    assert after(tried(True, 1.0, shown), failing).matches[0].nearest == 1.0
    assert after(tried(True, 1.0, shown, images=other), failing).matches[0].nearest == 0.0


def test_groups_merge_through_a_call_between_them() -> None:
    """Neighbours overlap by 0.75 or more; the first and last do not, but still join one group."""
    chain = [look((x, 0.0, x + 100.0, 100.0)) for x in (0.0, 14.0, 28.0)]
    question = [tried(True, 1.0, call) for call in chain]
    (match,) = after(*question, tried(False, -1.0, chain[0])).matches
    assert match.support == 1.0
    assert match.similarity == pytest.approx((1 + 86 / 114 + 72 / 128) / 3)


def test_a_call_with_unreadable_arguments_matches_nothing() -> None:
    fine = ask("windsor")
    for text in ("", "{", "[1]", '{"query": 3}', '{"query": "  "}', "{}"):
        broken = replace(fine, arguments=text)
        assert after(tried(True, 1.0, fine), tried(False, -1.0, broken)).matches == ()
    lone = replace(fine, arguments='{"query": "\\ud800 windsor"}')
    assert after(tried(True, 1.0, fine), tried(False, -1.0, lone)).matches[0].nearest > 0.5


def test_tool_types_missing_from_the_recipe_get_no_credit() -> None:
    only = Credit(beta=0.25, tools={"zoom": PAPER.tools["zoom"]})
    found = after(tried(True, 1.0, SEARCH), tried(False, -1.0, SEARCH), recipe=only)
    assert (found.call_advantages[1], found.matches, found.failing_calls) == ((-1.0,), (), 0)


def test_an_unknown_tool_type_gets_a_suggestion() -> None:
    with pytest.raises(ValidationError, match="there is no tool type `zom`; did you mean `zoom`"):
        Credit(beta=0.25, tools={"zom": Gate(similarity=0.5, confidence=0.5)})


def test_a_tool_without_a_type_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vtune.advantage.recipe.TOOLS", {"turn_tool": None})
    with pytest.raises(
        ValidationError, match=r"no tool type `turn_tool` \(the tool has none: `credit` of its"
    ):
        Credit(beta=0.25, tools={"turn_tool": Gate(similarity=0.5, confidence=0.5)})


def test_an_unknown_tool_type_is_listed_with_all_other_problems(tmp_path: Path) -> None:
    file = tmp_path / "credit.yaml"
    file.write_text("bta: 0.25\ntools:\n  zom: {similarity: 0.5, confidence: 0.5}\n  zoom: {similarity: 2}\n")
    with pytest.raises(RecipeError) as refused:
        load_recipe(file, Credit)
    listed = refused.value.what.splitlines()
    assert listed[0] == f"5 problem(s) in {file}"
    (line,) = (line for line in listed if "zom" in line)
    assert line.startswith("  credit.yaml:3: `tools.zom`: there is no tool type `zom`; did you mean `zoom`?")
    file.write_text("beta: 0.25\ntools:\n  zom: {similarity: 0.5, confidence: 0.5}\n")
    with pytest.raises(RecipeError, match=r"1 problem\(s\)"):
        load_recipe(file, Credit)


def test_no_trajectories_give_an_empty_transfer() -> None:
    assert transfer_credit([], PAPER) == Transfer((), (), (), 0)


def spans(*calls: tuple[tuple[int, int], float]) -> Trajectory:
    made = tried(False, -1.0, *(replace(SEARCH, span=span) for span, _ in calls))
    mask = (False, False, True, True, True, False, False, True, True, True)
    return replace(made, loss_mask=mask, call_advantages=tuple(value for _, value in calls))


def test_call_tokens_get_the_calls_advantage_and_others_the_trajectorys() -> None:
    assert token_advantages(spans(((2, 5), -0.25))) == (-0.25,) * 3 + (-1.0,) * 3
    assert token_advantages(replace(spans(((2, 5), -0.25)), call_advantages=())) == (-1.0,) * 6


def test_a_turn_with_two_calls_gets_the_lower_of_their_advantages() -> None:
    assert token_advantages(spans(((2, 5), -0.25), ((2, 5), -0.75))) == (-0.75,) * 3 + (-1.0,) * 3
    assert token_advantages(spans(((2, 5), -0.25), ((2, 5), -1.0))) == (-1.0,) * 6


@settings(max_examples=30)
@given(seed=seeds)
def test_without_credit_every_token_gets_its_trajectorys_advantage(seed: int) -> None:
    rng = random.Random(seed)
    for trajectory in random_question(rng, 0):
        if trajectory.advantage is None:
            continue
        mask = tuple(rng.random() < 0.7 for _ in range(20))
        drawn = replace(trajectory, loss_mask=mask)
        assert token_advantages(drawn) == (trajectory.advantage,) * int(np.sum(mask))
