import asyncio
import copy
import gc
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
import torch

import vtune.models.decoding
import vtune.rollout.transformers
from tests.models.rows import SHOWN, ragged, stock
from tests.models.test_batch import batched
from tests.update.build import logprobs_of
from vtune.errors import RunFailed
from vtune.models.batch import Row
from vtune.models.decoder import Decoder
from vtune.models.policy import Policy
from vtune.rollout.engine import Completion, Request, Sampling
from vtune.rollout.transformers import TransformersEngine, entropy_of
from vtune.update.batch import Item


def requests(rows: Sequence[Row], *, key: int = 0, **sampling: Any) -> list[Request]:
    values: dict[str, Any] = {"temperature": 1.0, "max_new_tokens": 8}
    return [
        Request(
            token_ids=tuple(row.token_ids),
            pixels=tuple(row.pixels),
            sampling=Sampling(**(values | sampling)),
            key=(key, number),
        )
        for number, row in enumerate(rows)
    ]


def draw(policy: Policy, asked: Sequence[Request], *, apart: bool = False) -> list[Completion]:
    async def story() -> list[Completion]:
        engine = TransformersEngine(policy, max_batch=64, apart=apart)
        for _ in asked:
            engine.join(0)
        return await asyncio.gather(*(engine.generate(request) for request in asked))

    return asyncio.run(story())


@contextmanager
def forwards(policy: Policy) -> Iterator[list[tuple[int, int]]]:
    """Record rows and tokens of each pass through the language model's layers during the block."""
    shapes: list[tuple[int, int]] = []

    def note(module: object, args: tuple[torch.Tensor]) -> None:
        shapes.append((args[0].shape[0], args[0].shape[1]))

    def step(decoder: Decoder, tokens: torch.Tensor, *given: Any) -> torch.Tensor:
        shapes.append((len(tokens), 1))
        return plain(decoder, tokens, *given)

    hook = policy.model.model.language_model.layers[0].register_forward_pre_hook(note)
    plain, Decoder.step = Decoder.step, step  # type: ignore[method-assign]
    try:
        yield shapes
    finally:
        hook.remove()
        Decoder.step = plain  # type: ignore[method-assign]


@pytest.mark.parametrize("least", [0, math.inf])
@torch.no_grad()
def test_greedy_decoding_matches_transformers_generate(
    each_policy: Policy, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vtune.models.decoding, "LEAST", least)
    chat, rows = each_policy.chat, ragged(each_policy)
    batch = batched(each_policy, rows, "left")
    width = each_policy.model.lm_head.weight.shape[0]
    out = each_policy.model.generate(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        mm_token_type_ids=(batch.input_ids == chat.image_id).int(),
        **stock(each_policy, rows),
        do_sample=False,
        max_new_tokens=24,
        suppress_tokens=[*chat.banned_ids, *range(len(chat.tokenizer), width)],
        eos_token_id=chat.end_id,
        pad_token_id=chat.pad_id,
    )[:, batch.input_ids.shape[1] :]
    ours = draw(each_policy, requests(rows, temperature=0.0, max_new_tokens=24))
    assert [len(completion.token_ids) for completion in ours] == [24] * 3
    assert [list(completion.token_ids) for completion in ours] == out.tolist()


def test_generated_tokens_have_the_log_probabilities_of_training(each_policy: Policy) -> None:
    """With several turns and pictures, and rows of different lengths that end at different times."""
    rows = ragged(each_policy)
    asked = [
        replace(request, sampling=replace(request.sampling, max_new_tokens=5 + 7 * number))
        for number, request in enumerate(requests(rows))
    ]
    drawn = draw(each_policy, asked)
    assert [len(completion.token_ids) for completion in drawn] == [5, 12, 19]
    items = [
        Item(
            [*row.token_ids, *one.token_ids],
            images,
            [False] * len(row.token_ids) + [True] * len(one.token_ids),
        )
        for row, images, one in zip(rows, SHOWN, drawn, strict=True)
    ]
    trained = torch.cat(logprobs_of(each_policy, items))
    rolled = torch.tensor([value for one in drawn for value in one.logprobs])
    torch.testing.assert_close(rolled, trained, rtol=0, atol=1e-4)
    for one in drawn:
        assert len(one.entropies) == len(one.token_ids)
        assert all(0 <= value <= math.log(len(each_policy.chat.tokenizer)) for value in one.entropies)


def test_a_tokens_entropy_is_that_of_its_sampling_distribution() -> None:
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [9.0, -torch.inf, 0.0, -torch.inf]])
    found = entropy_of(torch.log_softmax(logits, -1), torch.softmax(logits, -1)).tolist()
    assert found == pytest.approx(
        [math.log(4), torch.distributions.Bernoulli(logits=torch.tensor(9.0)).entropy().item()], abs=1e-6
    )


def test_a_turn_may_exceed_the_chunk_of_allocated_positions(
    each_policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [
        replace(request, sampling=replace(request.sampling, max_new_tokens=3 + 9 * number))
        for number, request in enumerate(requests(ragged(each_policy)))
    ]
    plain = draw(each_policy, asked)
    monkeypatch.setattr(vtune.models.decoding, "ROOM", 3)
    monkeypatch.setattr(vtune.rollout.transformers, "AHEAD", 2)
    for one, other in zip(plain, draw(each_policy, asked), strict=True):
        assert one.token_ids == other.token_ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_samples_do_not_depend_on_the_order_of_requests(policy: Policy) -> None:
    asked = requests(ragged(policy))

    async def arrive(order: Sequence[int]) -> dict[int, Completion]:
        engine = TransformersEngine(policy, max_batch=2)
        for _ in order:
            engine.join(0)
        async with asyncio.TaskGroup() as group:
            tasks = {number: group.create_task(engine.generate(asked[number])) for number in order}
        return {number: task.result() for number, task in tasks.items()}

    found = [asyncio.run(arrive(order)) for order in permutations(range(3))]
    assert all(one == found[0] for one in found)


def test_cpu_threads_are_reduced_only_during_generation(policy: Policy) -> None:
    before, seen = torch.get_num_threads(), []
    step = Decoder.step

    def noted(*given: Any) -> torch.Tensor:
        seen.append(torch.get_num_threads())
        return step(*given)

    async def story(threads: int | None) -> None:
        engine = TransformersEngine(policy, max_batch=8, threads=threads)
        engine.join(0)
        await engine.generate(requests(ragged(policy))[0])

    torch.set_num_threads(3)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Decoder, "step", noted)
            for threads, expected in ((2, 2), (None, 3)):
                seen.clear()
                asyncio.run(story(threads))
                assert set(seen) == {expected}
                assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_a_batch_waits_for_every_running_trajectory(policy: Policy) -> None:
    first, second, _ = requests(ragged(policy))

    async def story() -> list[tuple[int, int]]:
        engine = TransformersEngine(policy, max_batch=8)
        for _ in range(3):
            engine.join(0)
        with forwards(policy) as shapes:
            waiting = [asyncio.create_task(engine.generate(request)) for request in (first, second)]
            await asyncio.sleep(0)
            assert shapes == []
            engine.leave(0)
            await asyncio.gather(*waiting)
        return shapes

    assert asyncio.run(story())[1] == (2, 1)


def test_a_batch_does_not_wait_for_the_tools_of_the_other_cohort(policy: Policy) -> None:
    first, second, _ = requests(ragged(policy))

    async def story() -> None:
        engine = TransformersEngine(policy, max_batch=8)
        engine.join(0)
        engine.join(1)
        # The trajectory of cohort 1 is busy with a tool and requests its turn only afterwards.
        await asyncio.wait_for(engine.generate(first), 60)
        await asyncio.wait_for(engine.generate(replace(second, cohort=1)), 60)

    asyncio.run(story())


def test_equal_keys_give_equal_samples_and_other_keys_different_ones(policy: Policy) -> None:
    rows = ragged(policy)
    first, again, other = (draw(policy, requests(rows, key=key)) for key in (0, 0, 1))
    assert first == again
    assert all(a.token_ids != b.token_ids for a, b in zip(first, other, strict=True))


def test_with_apart_a_turn_does_not_depend_on_its_batch(policy: Policy) -> None:
    asked = requests(ragged(policy), max_new_tokens=24)
    together = [completion.token_ids for completion in draw(policy, asked, apart=True)]
    alone = [draw(policy, [request], apart=True)[0].token_ids for request in asked]
    assert together == alone
    assert together != [completion.token_ids for completion in draw(policy, asked)]
    others = [replace(request, key=(*request.key, 1)) for request in asked]
    assert together != [completion.token_ids for completion in draw(policy, others, apart=True)]


def test_samples_follow_the_distribution(policy: Policy) -> None:
    row = ragged(policy)[1]
    asked = requests([row] * 2000, max_new_tokens=1, temperature=1.0)
    drawn = draw(policy, asked)
    greedy = draw(policy, requests([row], max_new_tokens=1, temperature=0.0))[0]
    share = sum(one.token_ids == greedy.token_ids for one in drawn) / len(drawn)
    likely = torch.tensor(greedy.logprobs[0]).exp().item()
    assert share == pytest.approx(likely, abs=5 * (likely * (1 - likely) / 2000) ** 0.5)
    # The log-probability is for temperature 1, whatever the sampling temperature.
    hot = draw(policy, requests([row] * 200, max_new_tokens=1, temperature=3.0, key=1))
    known = {one.token_ids: one.logprobs[0] for one in drawn}
    shared = [(known[one.token_ids], one.logprobs[0]) for one in hot if one.token_ids in known]
    assert len(shared) > 10
    assert all(a == pytest.approx(b, abs=1e-5) for a, b in shared)


def test_banned_tokens_are_never_sampled(policy: Policy) -> None:
    drawn = draw(policy, requests(ragged(policy) * 20, temperature=5.0, max_new_tokens=40))
    tokens = [token for one in drawn for token in one.token_ids]
    assert len(tokens) > 1500
    assert not set(tokens) & set(policy.chat.banned_ids)
    assert max(tokens) < len(policy.chat.tokenizer)
    assert len(set(tokens)) > 300


def test_a_shared_prompt_is_prefilled_once_and_sampled_separately(policy: Policy) -> None:
    rows = ragged(policy)
    with forwards(policy) as shapes:
        drawn = draw(policy, requests([rows[0], rows[2], rows[0], rows[0]]))
    assert shapes[0] == (1, len(rows[0].token_ids) + len(rows[2].token_ids))
    assert set(shapes[1:]) == {(4, 1)}
    assert len({drawn[number].token_ids for number in (0, 2, 3)}) == 3


def test_a_shared_prefill_does_not_change_rows(each_policy: Policy) -> None:
    rows = ragged(each_policy)
    order = [0, 1, 0, 2, 1]
    together = draw(each_policy, requests([rows[number] for number in order], temperature=0.0))
    alone = [draw(each_policy, requests([row], temperature=0.0))[0] for row in rows]
    for number, one in zip(order, together, strict=True):
        assert one.token_ids == alone[number].token_ids
        assert one.logprobs == pytest.approx(alone[number].logprobs, abs=1e-4)


def test_a_stop_text_ends_a_turn_once_it_is_complete(policy: Policy) -> None:
    chat = policy.chat
    for key in range(3):
        (free,) = draw(policy, requests(ragged(policy)[:1], key=key, temperature=3.0, max_new_tokens=40))
        # The stop text spans several generated tokens, like `</code>` with a real tokenizer.
        windows = [chat.decode(free.token_ids[start : start + 3]) for start in range(4, 36)]
        stop = next(text for text in windows if text.isascii() and len(text) >= 4)
        sampling = {"temperature": 3.0, "max_new_tokens": 40, "stop": (stop, "never written")}
        (stopped,) = draw(policy, requests(ragged(policy)[:1], key=key, **sampling))
        assert stopped.finish == "stop"
        assert stopped.token_ids == free.token_ids[: len(stopped.token_ids)]
        assert stop in chat.decode(stopped.token_ids)
        assert stop not in chat.decode(stopped.token_ids[:-1])


def test_an_end_of_turn_token_is_kept_and_the_other_rows_continue(policy: Policy) -> None:
    rows = ragged(policy)
    free = draw(policy, requests(rows, temperature=0.0, max_new_tokens=12))
    # Make one of the generated tokens the end-of-turn token.
    end = free[0].token_ids[3]
    chat = copy.copy(policy.chat)
    chat.end_id = end
    drawn = draw(replace(policy, chat=chat), requests(rows, temperature=0.0, max_new_tokens=12))
    assert drawn[0].finish == "end"
    for before, one in zip(free, drawn, strict=True):
        cut = before.token_ids.index(end) + 1 if end in before.token_ids else 12
        assert one.token_ids == before.token_ids[:cut]
        assert one.finish == ("end" if end in before.token_ids else "length")
        assert one.logprobs == pytest.approx(before.logprobs[:cut], abs=1e-4)
    assert {one.finish for one in drawn} == {"end", "length"}


@pytest.fixture
def broken(policy: Policy) -> Policy:
    """A policy whose logits are NaN."""
    broken = replace(policy, model=copy.deepcopy(policy.model))
    broken.model.model.language_model.norm.weight.data.fill_(torch.nan)
    return broken


def test_a_generation_error_after_its_rows_have_left_is_not_reported(broken: Policy) -> None:
    """A failure elsewhere may end trajectories whose generation is about to start."""
    told: list[str] = []

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, facts: told.append(facts["message"]))
        engine = TransformersEngine(broken, max_batch=64)
        engine.join(0)
        asked = asyncio.create_task(engine.generate(requests(ragged(broken))[0]))
        await asyncio.sleep(0)
        asked.cancel()
        while engine._drawing:
            await asyncio.sleep(0)
        gc.collect()

    asyncio.run(story())
    assert told == []


@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_nan_logits_end_the_run(broken: Policy, temperature: float) -> None:
    with pytest.raises(RunFailed, match="logits are not numbers") as caught:
        draw(broken, requests(ragged(broken), temperature=temperature))
    assert "earlier checkpoint" in caught.value.fix


def test_an_out_of_memory_batch_says_what_to_lower(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has …")

    monkeypatch.setattr(Decoder, "step", full)
    with pytest.raises(RunFailed, match=r"generating turns: .* allocate 3\.00 GiB\n") as caught:
        draw(policy, requests(ragged(policy)))
    assert (caught.value.fix or "").startswith("lower rollout.max_batch (at most 64 turns are")


def test_generation_restores_the_models_mode(policy: Policy) -> None:
    for training in (True, False):
        policy.model.train(training)
        draw(policy, requests(ragged(policy), max_new_tokens=1))
        assert policy.model.training is training
