import asyncio
import io
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
import torch
from PIL import Image
from pydantic import ValidationError

from tests.reward.build import recipe as reward_recipe
from tests.rollout.build import (
    ANSWER,
    CROP,
    LOOK,
    PHOTO,
    SAMPLE,
    SEEN,
    FakeSandbox,
    Recording,
    job,
    recipe,
    roll_out,
)
from tests.rollout.scripted import ScriptedEngine
from vtune.models.policy import Policy
from vtune.reward.score import Scorer
from vtune.rollout.agent import Agent, black
from vtune.sandbox import Execution
from vtune.schema.message import Message, Picture
from vtune.schema.trajectory import Crop, Trajectory
from vtune.tools.recoverable_session import ATTEMPTS

INFRA = FakeSandbox(Execution(status="infra", error="the fork server died"))
TWO_TURNS = (LOOK, ANSWER)


def spans(policy: Policy, trajectory: Trajectory) -> list[tuple[bool, str]]:
    """Runs of tokens with the same loss mask, as text; placeholders are written as their number."""
    chat = policy.chat
    found = []
    marked = zip(trajectory.token_ids, trajectory.loss_mask, strict=True)
    for sampled, run in groupby(marked, key=lambda pair: pair[1]):
        text = chat.tokenizer.decode([token for token, _ in run])
        count = text.count("<|image_pad|>")
        found.append(
            (sampled, text.replace("<|image_pad|>" * count, f"<|image_pad|>x{count}") if count else text)
        )
    return found


def test_the_loss_mask_covers_exactly_what_the_policy_wrote(
    policy: Policy, golden: Callable[[str, str], None]
) -> None:
    (trajectory,) = roll_out(policy, TWO_TURNS)
    runs = spans(policy, trajectory)
    golden("loss_mask.txt", "".join(f"--- {'sampled' if mask else 'given'}\n{text}\n" for mask, text in runs))
    assert [text for sampled, text in runs if sampled] == [LOOK, f"{ANSWER}<|im_end|>"]
    assert (
        trajectory.loss_mask.count(True) == len(policy.chat.words(LOOK)) + len(policy.chat.words(ANSWER)) + 1
    )
    assert [value is not None for value in trajectory.logprobs] == list(trajectory.loss_mask)


def test_generated_tokens_are_fed_back_unchanged(policy: Policy) -> None:
    """Every prompt is a prefix of the conversation, which contains the generated tokens unchanged."""
    engine = Recording(ScriptedEngine(policy.chat, TWO_TURNS))
    (trajectory,) = roll_out(policy, (), engine=engine)
    chat, pictures = policy.chat, policy.pictures
    (first, drawn), (second, last) = engine.asked
    assert list(first.token_ids) == chat.prompt(SAMPLE.prompt, [pictures.read(PHOTO)])
    glue = chat.observation(
        "<sandbox_output>\n<image>\n</sandbox_output>", [pictures.read(CROP)], ended=False
    )
    assert list(second.token_ids) == [*first.token_ids, *drawn.token_ids, *glue]
    assert list(trajectory.token_ids) == [*second.token_ids, *last.token_ids]
    assert [len(request.pixels) for request, _ in engine.asked] == [1, 2]
    assert [request.key for request, _ in engine.asked] == [(0, 1, 3, 0, 0), (0, 1, 3, 0, 1)]


def test_a_trajectory_records_its_policy_and_what_its_calls_showed(policy: Policy) -> None:
    (trajectory,) = roll_out(policy, TWO_TURNS)
    assert (trajectory.sample_id, trajectory.source, trajectory.group, trajectory.policy_version) == (
        "signs/1",
        "signs",
        3,
        2,
    )
    assert trajectory.images == (
        Picture(data=PHOTO, seen=(56, 56)),
        Picture(data=CROP, origin="call:0", seen=(84, 56)),
    )
    assert trajectory.messages == (
        *SAMPLE.prompt,
        Message("assistant", LOOK),
        Message("user", "<sandbox_output>\n<image>\n</sandbox_output>", (1,)),
        Message("assistant", ANSWER),
    )
    (call,) = trajectory.calls
    assert call.crops == (Crop(image=0, bbox=(8.0, 8.0, 48.0, 38.0), shown=1),)
    assert (call.tool, call.status, call.images, call.output) == ("python", "ok", (1,), "look.png")
    assert 'image.crop((8,8,48,38)).save("look.png")' in json.loads(call.arguments)["code"]
    start, end = call.span
    assert policy.chat.tokenizer.decode(list(trajectory.token_ids[start:end])) == LOOK
    assert (trajectory.answer, trajectory.stop_reason) == ("7", "answer")


PROMPT = 36
"""Tokens of the sample's prompt; a look takes about 50, and so does its result."""

STOPS: dict[str, tuple[str, dict[str, Any]]] = {
    "an answer": ("answer", {"script": [ANSWER]}),
    "an answer on the last turn": ("answer", {"script": TWO_TURNS, "max_turns": 2}),
    "words without code": ("answer", {"script": ["I do not know."]}),
    "a stop text without code": ("answer", {"script": ["</code>"]}),
    "a turn without end": ("length", {"script": [ANSWER], "max_new_tokens": 5}),
    "a second turn without end": ("length", {"script": (LOOK, ANSWER * 9), "max_new_tokens": 90}),
    "looks for ever": ("turns", {"script": [LOOK], "max_turns": 2}),
    "a prompt that is too long": ("error", {"script": [ANSWER], "max_tokens": 5}),
    "no room for the turn": ("context", {"script": [LOOK], "max_tokens": PROMPT + 10}),
    "no room for the picture": ("context", {"script": [LOOK], "max_tokens": PROMPT + 60}),
    "a sandbox that fails": ("error", {"script": [LOOK], "sandbox": INFRA}),
    "a sandbox that does not start": ("error", {"script": [LOOK], "sandbox": FakeSandbox(None)}),
}


@pytest.mark.parametrize("name", STOPS)
def test_the_stop_reason_says_why_a_trajectory_ended(policy: Policy, name: str) -> None:
    reason, options = STOPS[name]
    rest = dict(options)
    engine = Recording(ScriptedEngine(policy.chat, rest.pop("script")))
    (trajectory,) = roll_out(policy, (), engine=engine, **rest)
    assert trajectory.stop_reason == reason
    assert engine.running == 0
    assert len(trajectory.token_ids) == len(trajectory.loss_mask) == len(trajectory.logprobs)
    if reason == "context" and trajectory.loss_mask.count(True):
        assert len(trajectory.token_ids) <= rest["max_tokens"]


@pytest.mark.parametrize("sandbox", [INFRA, FakeSandbox(None)], ids=["failed", "not started"])
def test_a_failure_of_the_sandbox_leaves_the_trajectory_unscored(
    policy: Policy, sandbox: FakeSandbox
) -> None:
    (trajectory,) = roll_out(policy, [LOOK], sandbox=sandbox)
    assert [call.status for call in trajectory.calls] == ["infra"]

    async def score() -> list[Trajectory]:
        async with Scorer(reward_recipe()) as scorer:
            return await scorer.score([SAMPLE], [trajectory])

    (scored,) = asyncio.run(score())
    assert scored.reward is not None
    assert (scored.reward.total, scored.reward.accuracy, scored.tool_scores) == (None, None, (None,))


def test_one_failed_sandbox_ends_one_trajectory_and_closes_its_session(policy: Policy) -> None:
    sandbox = FakeSandbox(INFRA.execution)
    script = [LOOK, ANSWER]
    first, second = roll_out(policy, script, sandbox=sandbox, jobs=[job(), job(rollout=1)])
    assert sorted([first.stop_reason, second.stop_reason]) == ["answer", "error"]
    # The failed session was recreated in vain.
    assert [session.closed for session in sandbox.sessions] == [True] * (1 + ATTEMPTS)


def hairline(width: int = 200_000) -> bytes:
    """A PNG of a few hundred bytes, one pixel high."""
    out = io.BytesIO()
    Image.new("L", (width, 1)).save(out, "PNG")
    return out.getvalue()


def cut_short() -> bytes:
    """A picture with a valid header and half of its data."""
    return PHOTO[: len(PHOTO) // 2]


@pytest.mark.parametrize("picture", [b"no picture", cut_short(), hairline()], ids=["none", "damaged", "thin"])
@pytest.mark.parametrize("tools", [("python",), ()])
def test_a_row_with_an_unreadable_picture_loses_only_its_own_rollouts(
    policy: Policy, picture: bytes, tools: tuple[str, ...]
) -> None:
    sandbox = FakeSandbox()
    broken = replace(job(replace(SAMPLE, id="bad/1", tools=tools)), images=(picture,))
    lost, good = roll_out(policy, [ANSWER], sandbox=sandbox, jobs=[broken, job()])
    assert (lost.stop_reason, good.stop_reason) == ("error", "answer")
    (call,) = lost.calls
    assert "sample 'bad/1': a picture cannot be decoded" in call.error
    assert all(session.closed for session in sandbox.sessions)


def test_a_prompt_without_room_for_a_reply_is_unscored_and_says_why(policy: Policy) -> None:
    (free,) = roll_out(policy, [ANSWER])
    prompt = free.loss_mask.index(True)
    (lost,) = roll_out(policy, [ANSWER], max_tokens=prompt)
    (call,) = lost.calls
    assert call.status == "infra"
    assert f"the prompt has {prompt} tokens, and rollout.max_tokens is {prompt}: raise it" in call.error
    assert not any(lost.loss_mask)
    (room,) = roll_out(policy, [ANSWER], max_tokens=prompt + 1)
    assert room.stop_reason == "context"  # its reply is truncated, and scored as such

    async def score() -> list[Trajectory]:
        async with Scorer(reward_recipe()) as scorer:
            return await scorer.score([SAMPLE], [lost])

    (scored,) = asyncio.run(score())
    assert scored.reward is not None
    assert scored.reward.accuracy is scored.reward.total is None
    assert f"the prompt has {prompt} tokens" in scored.reward.why


def test_a_too_thin_picture_returned_by_a_session_is_the_models_error(policy: Policy) -> None:
    sandbox = FakeSandbox(replace(SEEN, images=(hairline(),)))
    (trajectory,) = roll_out(policy, TWO_TURNS, sandbox=sandbox)
    (call,) = trajectory.calls
    assert (call.status, call.images, trajectory.stop_reason) == ("error", (), "answer")
    assert "200000 x 1" in trajectory.messages[2].content


def test_a_sample_without_tools_has_no_sandbox(policy: Policy) -> None:
    sandbox = FakeSandbox(None)
    silent = replace(SAMPLE, tools=())
    (trajectory,) = roll_out(policy, [LOOK], sandbox=sandbox, jobs=[job(silent)])
    assert (trajectory.stop_reason, trajectory.calls) == ("answer", ())


def test_trajectories_are_in_the_order_of_their_jobs(policy: Policy) -> None:
    done: list[None] = []
    sandbox = FakeSandbox()
    agent = Agent(
        ScriptedEngine(policy.chat, [ANSWER]),
        sandbox,
        policy.chat,
        policy.pictures,
        recipe(),  # type: ignore[arg-type]
    )
    jobs = [job(rollout=number) for number in (2, 0, 1)]
    found = asyncio.run(agent.run(jobs, lambda: done.append(None)))
    assert [trajectory.rollout for trajectory in found] == [2, 0, 1]
    assert len(done) == 3
    assert len(set(sandbox.seeds)) == 3


def test_open_sessions_are_limited_by_the_batch(policy: Policy) -> None:
    sandbox = FakeSandbox()
    jobs = [job(rollout=number) for number in range(5)]
    found = roll_out(policy, [LOOK], sandbox=sandbox, jobs=jobs, max_batch=2, max_turns=2)
    assert [trajectory.rollout for trajectory in found] == list(range(5))
    assert sandbox.most_open == 2


def test_other_conversations_fill_the_batch_during_tool_calls(policy: Policy) -> None:
    sandbox = FakeSandbox()
    jobs = [job(rollout=number) for number in range(7)]
    changes = {"max_batch": 2, "max_conversations": 5, "max_turns": 2}
    found = roll_out(policy, [LOOK], sandbox=sandbox, jobs=jobs, **changes)
    assert [trajectory.rollout for trajectory in found] == list(range(7))
    assert sandbox.most_open == 5


def test_conversations_that_never_fill_a_batch_are_refused() -> None:
    assert recipe(max_batch=4).conversations == 4
    assert recipe(max_batch=4, max_conversations=9).conversations == 9
    assert "max_conversations" not in recipe().model_dump()
    with pytest.raises(ValidationError, match="max_conversations 3 do not fill a max_batch of 4"):
        recipe(max_batch=4, max_conversations=3)


def test_a_look_without_room_for_its_picture_is_still_a_call(policy: Policy) -> None:
    pictures = [policy.pictures.read(PHOTO)]
    written = len(policy.chat.prompt(SAMPLE.prompt, pictures)) + len(policy.chat.words(LOOK))
    (trajectory,) = roll_out(policy, [LOOK], max_tokens=written + 20)
    assert trajectory.stop_reason == "context"
    assert len(trajectory.token_ids) == written
    (call,) = trajectory.calls
    assert (call.status, call.images, call.crops, call.unseen) == ("ok", (), (), True)
    assert trajectory.images == (Picture(data=PHOTO, seen=(56, 56)),)
    assert trajectory.loss_mask[-1]
    (answered,) = roll_out(policy, TWO_TURNS)
    assert [call.unseen for call in answered.calls] == [False]


def test_a_picture_forged_by_code_is_its_error_not_ours(policy: Policy) -> None:
    sandbox = FakeSandbox(replace(SEEN, images=(b"\x89PNG no picture",)))
    (trajectory,) = roll_out(policy, TWO_TURNS, sandbox=sandbox)
    (call,) = trajectory.calls
    assert (call.status, call.images, call.crops) == ("error", (), ())
    assert "cannot be decoded" in call.error
    assert trajectory.images == (Picture(data=PHOTO, seen=(56, 56)),)
    assert "cannot be decoded" in trajectory.messages[2].content
    assert trajectory.stop_reason == "answer"


def test_conversations_are_limited_by_the_sandboxs_capacity(policy: Policy) -> None:
    sandbox = FakeSandbox(capacity=1)
    jobs = [job(rollout=number) for number in range(3)]
    found = roll_out(policy, [LOOK], sandbox=sandbox, jobs=jobs, max_batch=3, max_turns=2)
    assert len(found) == 3
    assert sandbox.most_open == 1


def test_a_trajectory_records_the_sandbox_of_its_code(policy: Policy) -> None:
    silent = replace(job().sample, tools=())
    (looked,) = roll_out(policy, TWO_TURNS)
    (answered,) = roll_out(policy, [ANSWER], jobs=[job(silent)])
    assert (looked.sandbox, answered.sandbox) == ("flat", "")


def test_the_same_job_gives_the_same_sandbox_seed(policy: Policy) -> None:
    sandbox = FakeSandbox()
    for _ in range(2):
        roll_out(policy, [ANSWER], sandbox=sandbox)
    assert len(sandbox.seeds) == 2
    assert len(set(sandbox.seeds)) == 1


def test_with_black_call_images_the_policy_sees_no_returned_picture(policy: Policy) -> None:
    engine = Recording(ScriptedEngine(policy.chat, TWO_TURNS))
    (trajectory,) = roll_out(policy, (), engine=engine, observation_transform=black)
    original, shown = trajectory.images
    assert original.data == PHOTO
    found = Image.open(io.BytesIO(shown.data or b""))
    assert (found.size, found.convert("L").getextrema()) == ((40, 30), (0, 0))
    seen = engine.asked[1][0].pixels
    assert torch.equal(seen[0].patches, policy.pictures.read(PHOTO).patches)
    channels = seen[1].patches.unflatten(1, (3, -1))
    assert (channels == channels[:1, :, :1]).all()
    assert trajectory.calls[0].crops == (Crop(image=0, bbox=(8.0, 8.0, 48.0, 38.0), shown=1),)


@pytest.mark.parametrize(
    "printed", ["<image>", "<|image_pad|>", "<|im_end|>", "<im\ue000age>", "<|im\ue000_end|>"]
)
def test_printed_output_cannot_forge_a_picture_or_a_turn(policy: Policy, printed: str) -> None:
    sandbox = FakeSandbox(replace(SEEN, output=printed))
    (trajectory,) = roll_out(policy, TWO_TURNS, sandbox=sandbox)
    (plain,) = roll_out(policy, TWO_TURNS)
    chat = policy.chat
    for token in (chat.image_id, chat.opens_id, chat.end_id):
        assert trajectory.token_ids.count(token) == plain.token_ids.count(token)
    assert trajectory.stop_reason == "answer"


def test_all_rollouts_of_a_group_get_the_same_prompt_from_the_pool(policy: Policy) -> None:
    single = replace(SAMPLE, tools=())
    group = [job(single, rollout=number) for number in range(4)]
    others = [replace(group[0], key=(0, step, 3, 0)) for step in range(2, 10)]
    asked = [t.messages[0].content for t in roll_out(policy, [ANSWER], jobs=[*group, *others], prompt="pool")]
    assert len(set(asked[:4])) == 1
    assert len(set(asked)) > 4


@pytest.mark.parametrize("steps", range(12))
def test_a_cancelled_run_closes_only_its_own_sessions(policy: Policy, steps: int) -> None:
    """At any point, with several runs of one agent in progress, as in a service."""
    sandbox = FakeSandbox()
    agent = Agent(
        ScriptedEngine(policy.chat, [LOOK, ANSWER]),
        sandbox,  # type: ignore[arg-type]
        policy.chat,
        policy.pictures,
        recipe(),
    )

    async def story() -> list[Trajectory]:
        left = asyncio.create_task(agent.run([job(rollout=1)]))
        for _ in range(steps):
            await asyncio.sleep(0)
        stays = asyncio.create_task(agent.run([job(rollout=2)]))
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        found = await stays
        await agent.run([])  # waits for sessions that are still closing
        return found

    (found,) = asyncio.run(story())
    assert found.stop_reason == "answer"
    assert all(session.closed for session in sandbox.sessions)


@pytest.mark.parametrize("steps", range(6))
def test_only_finished_jobs_of_a_cancelled_run_count_as_done(policy: Policy, steps: int) -> None:
    """After Ctrl-C the progress of an evaluation must not jump to the end."""
    counts = {"done": 0, "ended": 0}
    agent = Agent(
        ScriptedEngine(policy.chat, [LOOK, ANSWER]),
        FakeSandbox(),  # type: ignore[arg-type]
        policy.chat,
        policy.pictures,
        recipe(),
    )

    def count(name: str) -> None:
        counts[name] += 1

    async def story() -> None:
        jobs = [job(rollout=number) for number in range(3)]
        run = asyncio.create_task(agent.run(jobs, lambda: count("done"), lambda *_: count("ended")))
        for _ in range(steps):
            await asyncio.sleep(0)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)

    asyncio.run(story())
    assert counts["done"] == counts["ended"]


def test_two_runs_share_capacity_and_the_older_has_priority(policy: Policy) -> None:
    sandbox = FakeSandbox(capacity=3)
    agent = Agent(
        ScriptedEngine(policy.chat, TWO_TURNS),
        sandbox,  # type: ignore[arg-type]
        policy.chat,
        policy.pictures,
        recipe(),
    )
    ended: list[tuple[int, int]] = []

    async def run(step: int, count: int) -> list[Trajectory]:
        jobs = [replace(job(rollout=n), policy_version=step, key=(0, step, 3, n)) for n in range(count)]
        return await agent.run(
            jobs, ended=lambda one, trajectory: ended.append((trajectory.policy_version, one.rollout))
        )

    async def both() -> list[list[Trajectory]]:
        return list(await asyncio.gather(run(0, 7), run(1, 4)))

    first, second = asyncio.run(both())
    assert [len(first), len(second)] == [7, 4]
    assert sandbox.most_open <= 3
    steps = [step for step, _ in ended]
    assert steps.index(1) > 4  # the younger run starts once the older has nothing left to start
    assert steps[-1] == 1
