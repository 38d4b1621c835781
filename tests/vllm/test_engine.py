"""One vLLM next to this process that receives several sets of weights in turn."""

import asyncio
import io
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from PIL import Image
from transformers import Qwen2VLImageProcessor, Qwen2VLImageProcessorPil
from vllm.multimodal.hasher import MultiModalHasher
from vllm.v1.engine.async_llm import AsyncLLM

from tests.conftest import load
from tests.models.padded import Batch, collate
from tests.models.rows import picture, ragged
from vtune.errors import RunFailed
from vtune.models.batch import Row, image_features
from vtune.models.packed import pack
from vtune.models.policy import Policy
from vtune.rollout.engine import Completion, Request, Sampling
from vtune.rollout.vllm import Setup, VllmEngine
from vtune.runs.agent.engines import vllm_on
from vtune.runs.train.export import run_export
from vtune.schema.message import Message
from vtune.update.forward import PolicyForward

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]
TOKENS = 24


@pytest.fixture(scope="module")
def run() -> Iterator[Run[Any]]:
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(scope="module")
def trained(tiny: Path) -> Policy:
    """The training weights."""
    return load(tiny)


@pytest.fixture(scope="module")
def setup(tiny: Path) -> Setup:
    return Setup(
        model=str(tiny),
        dtype="float32",
        max_tokens=512,
        max_batch=64,
        gpu_memory=0.4,
        threads=1,
        device=torch.device("cpu"),
    )


def test_a_vllm_that_fails_to_start_says_what_to_change(
    setup: Setup, trained: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E.g. if its cache is too small for a conversation; its own process prints why."""

    def failed(*_: object) -> None:
        raise RuntimeError("Engine core initialization failed. See root cause above.")

    monkeypatch.setattr(AsyncLLM, "from_engine_args", failed)

    async def start() -> VllmEngine:
        return VllmEngine(trained, setup, tmp_path)

    with pytest.raises(RunFailed, match="the vLLM of this process did not start: RuntimeError: ") as caught:
        asyncio.run(start())
    assert "rollout.gpu_memory (now 0.4;" in (caught.value.fix or "")

    def late(*_: object) -> None:
        raise TimeoutError("Timed out waiting for engine core processes to start")

    monkeypatch.setattr(AsyncLLM, "from_engine_args", late)
    with pytest.raises(RunFailed, match="was not ready in time: Timed out") as caught:
        asyncio.run(start())
    assert "VLLM_ENGINE_READY_TIMEOUT_S" in (caught.value.fix or "")


@pytest.fixture(scope="module")
def engine(
    setup: Setup, trained: Policy, run: Run[Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VllmEngine]:
    async def start() -> VllmEngine:
        return VllmEngine(trained, setup, tmp_path_factory.mktemp("weights"))

    found = run(start())
    yield found
    run(found.aclose())


@pytest.fixture
def weights(trained: Policy) -> Iterator[dict[str, torch.nn.Parameter]]:
    """Weights that a test may change; they are restored afterwards."""
    found = dict(trained.model.named_parameters())
    before = {name: parameter.detach().clone() for name, parameter in found.items()}
    with torch.no_grad():
        yield found
        for name, parameter in found.items():
            parameter.copy_(before[name])


def requests(policy: Policy, *, stop: tuple[str, ...] = ()) -> list[Request]:
    """Groups of four: one with two turns and three pictures, two with one, one with very thin pictures."""
    thin = [picture(2, 300), picture(300, 3, seed=1)]
    pixels = [policy.pictures.read(data) for data in thin]
    threads = Row(policy.chat.prompt([Message("user", "<image><image>Which?")], pixels), pixels)
    sampling = Sampling(temperature=1.0, max_new_tokens=TOKENS, stop=stop)
    return [
        Request(token_ids=row.token_ids, pixels=row.pixels, sampling=sampling, key=(0, 0, group, rollout, 0))
        for group, row in enumerate([*ragged(policy), threads])
        for rollout in range(4)
    ]


def draw(
    run: Run[Any], engine: VllmEngine, policy: Policy, version: int, asked: Sequence[Request]
) -> list[Completion]:
    async def all_of_them() -> list[Completion]:
        await engine.take(policy.model.named_parameters, version)
        return list(await asyncio.gather(*(engine.generate(request) for request in asked)))

    found: list[Completion] = run(all_of_them())
    return found


def test_a_groups_picture_is_processed_once_and_identified_by_name(
    run: Run[Any], engine: VllmEngine, trained: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = engine._llm.renderer.get_mm_processor()
    processed: list[int] = []
    hashed: list[Any] = []
    process, name_of = processor._call_hf_processor, MultiModalHasher.hash_kwargs

    def noted(hf_data: Any, hf_kwargs: Any) -> Any:
        processed.append(len(hf_data.get("images") or ()))
        return process(hf_data, hf_kwargs)

    def named(*algorithm: Any, **given: Any) -> str:
        hashed.append(given)
        return str(name_of(*algorithm, **given))

    monkeypatch.setattr(processor, "_call_hf_processor", noted)
    monkeypatch.setattr(MultiModalHasher, "hash_kwargs", named)
    asked = requests(trained)
    run(engine._llm.reset_mm_cache())  # other tests use the same pictures
    assert len(draw(run, engine, trained, 7, asked)) == len(asked)
    distinct = {pixels.name for request in asked for pixels in request.pixels}
    assert sum(processed) == len(distinct) < sum(len(request.pixels) for request in asked)
    # Passed with its name; otherwise vLLM would hash every pixel in every turn.
    assert [given for given in hashed if not isinstance(given.get("image"), str | None)] == []


def largest_difference(policy: Policy, asked: Sequence[Request], found: Sequence[Completion]) -> float:
    """The largest difference between the engine's log-probabilities and the training forward's."""
    return max(max(differences_of(policy, *pair)) for pair in zip(asked, found, strict=True))


@torch.no_grad()
def differences_of(policy: Policy, request: Request, completion: Completion) -> list[float]:
    """Per token, the difference between the engine's log-probability and the training forward's."""
    row = Row([*request.token_ids, *completion.token_ids], request.pixels)
    chat = policy.chat
    packed = pack([row], image_id=chat.image_id, merge=policy.merge, device=policy.device)
    predicting = packed.places[0][len(request.token_ids) - 1 : -1]
    targets = torch.tensor(completion.token_ids)
    trained = PolicyForward(policy.model, chat)(packed, predicting, targets, 1).logprobs
    found: list[float] = (trained - torch.tensor(completion.logprobs)).abs().tolist()
    return found


def test_a_picture_lost_by_one_side_of_vllm_is_sent_again_on_retry(
    run: Run[Any], engine: VllmEngine, trained: Policy
) -> None:
    """Its engine core returns an error without tokens, which used to be read as a turn cut at its limit."""
    (asked,) = requests(trained)[:1]
    before = draw(run, engine, trained, 3, [asked])
    run(engine._llm.engine_core.reset_mm_cache_async())
    assert draw(run, engine, trained, 3, [asked]) == before
    run(engine._llm.engine_core.reset_mm_cache_async())
    assert run(engine.generate(asked)) == before[0]


@pytest.mark.parametrize(
    ("version", "part"),
    [(1, "nothing"), (2, "language_model.layers"), (3, "embed_tokens"), (4, "visual"), (5, "")],
    ids=["nothing", "layers", "tied embedding", "vision", "all"],
)
def test_log_probabilities_match_the_trainers_whatever_part_changed(
    run: Run[Any],
    engine: VllmEngine,
    trained: Policy,
    weights: dict[str, torch.nn.Parameter],
    version: int,
    part: str,
) -> None:
    """The same prompts each time: whatever vLLM has cached for them is outdated."""
    torch.manual_seed(version)
    changed = [parameter for name, parameter in weights.items() if part in name]
    assert bool(changed) == (part != "nothing")
    for parameter in changed:
        parameter.add_(torch.randn_like(parameter) * 0.03)
    asked = requests(trained)
    found = draw(run, engine, trained, version, asked)
    assert largest_difference(trained, asked, found) < 1e-4
    assert {v for completion in found for v in completion.weight_versions} == {version}


def test_weights_may_change_during_turns_with_cached_pictures(
    run: Run[Any], engine: VllmEngine, trained: Policy, weights: dict[str, torch.nn.Parameter]
) -> None:
    """Workers know those without their patches and must recompute them, while other requests arrive."""
    long = [replace(one, sampling=replace(one.sampling, max_new_tokens=200)) for one in requests(trained)]
    before = {name: parameter.clone() for name, parameter in weights.items()}

    def under_way() -> int:
        states = engine._llm.output_processor.request_states.values()
        return sum(not state.is_prefilling for state in states)

    async def interrupted() -> list[Completion]:
        await engine.take(trained.model.named_parameters, 8)
        await asyncio.gather(*(engine.generate(request) for request in requests(trained)))
        drawing = [asyncio.create_task(engine.generate(request)) for request in long]
        async with asyncio.timeout(60):
            while under_way() < len(long):
                await asyncio.sleep(0.001)
        for parameter in weights.values():
            parameter.add_(torch.randn_like(parameter) * 0.03)
        taking = asyncio.create_task(engine.take(trained.model.named_parameters, 9))
        late = [engine.generate(replace(request, key=(0, 0, 9, n, 0))) for n, request in enumerate(long)]
        await taking
        return list(await asyncio.gather(*drawing, *late))

    drawn: list[Completion] = run(interrupted())
    both = [one for one in drawn if len(set(one.weight_versions)) > 1]
    assert both
    differences = {}
    for version in (9, 8):
        if version == 8:
            for name, parameter in weights.items():
                parameter.copy_(before[name])
        of_it = [differences_of(trained, *pair) for pair in zip([*long, *long], drawn, strict=True)]
        differences[version] = [
            d for one, found in zip(drawn, of_it, strict=True)
            for v, d in zip(one.weight_versions, found, strict=True) if v == version
        ]  # fmt: skip
    assert min(len(of_it) for of_it in differences.values()) > 0
    assert max(max(of_it) for of_it in differences.values()) < 1e-4


@pytest.mark.parametrize("by", ["bans", "words allowed"])
def test_banned_tokens_are_never_sampled_and_have_no_probability(
    run: Run[Any],
    engine: VllmEngine,
    trained: Policy,
    weights: dict[str, torch.nn.Parameter],
    monkeypatch: pytest.MonkeyPatch,
    by: str,
) -> None:
    """Placeholders and padding columns are made as likely as all words together."""
    asked = requests(trained)
    embedding = trained.model.lm_head.weight
    if by == "words allowed":  # as if there were more columns than can be banned
        words = sorted({*range(len(embedding))} - {*engine._submissions._allowed["logit_bias"]})
        monkeypatch.setattr(engine._submissions, "_allowed", {"allowed_token_ids": words})
    banned = [trained.chat.image_id, len(embedding) - 1]
    batch = batched(trained, asked[4])
    state = hidden(trained, batch)
    embedding[banned] += 8 * state / state.norm() ** 2
    mass = torch.softmax(trained.model.lm_head(hidden(trained, batch)), -1)[banned].sum()
    assert mass > 0.5, "the bans have nothing to do"
    found = draw(run, engine, trained, 10, asked)
    assert not set(banned) & {token for completion in found for token in completion.token_ids}
    assert largest_difference(trained, asked, found) < 1e-4


def batched(policy: Policy, request: Request) -> Batch:
    chat, row = policy.chat, Row(request.token_ids, request.pixels)
    return collate([row], pad_id=chat.pad_id, image_id=chat.image_id, merge=policy.merge, side="right")


def hidden(policy: Policy, batch: Batch) -> torch.Tensor:
    found: torch.Tensor = policy.model.model(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        position_ids=batch.position_ids,
        mm_encoder_outputs=image_features(policy.model, batch.pictures),
    ).last_hidden_state[0, -1]
    return found


def test_single_tokens_are_not_decoded_to_text(
    run: Run[Any], engine: VllmEngine, trained: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.v1.engine import logprobs

    def made(*given: object) -> list[str]:
        pytest.fail("a token was decoded beside its log-probability")

    monkeypatch.setattr(logprobs, "convert_ids_list_to_tokens", made)
    for stop in ((), ("never written",)):
        found = draw(run, engine, trained, 15, requests(trained, stop=stop))
        assert largest_difference(trained, requests(trained), found) < 1e-4


def test_samples_are_reproducible_and_rollouts_of_a_group_differ(
    run: Run[Any], engine: VllmEngine, trained: Policy
) -> None:
    asked = requests(trained)
    first = draw(run, engine, trained, 20, asked)
    again = draw(run, engine, trained, 20, asked[::-1])[::-1]
    assert [c.token_ids for c in first] == [c.token_ids for c in again]
    assert len({c.token_ids for c in first}) == len(first)


def test_a_turn_ends_with_its_stop_text_or_its_end_token(
    run: Run[Any], engine: VllmEngine, trained: Policy, weights: dict[str, torch.nn.Parameter]
) -> None:
    """Both are made likely for the test."""
    (code,) = trained.chat.words("</code>")
    asked = requests(trained, stop=("</code>",))
    state = hidden(trained, batched(trained, asked[4]))
    trained.model.lm_head.weight[[code, trained.chat.end_id]] += 6 * state / state.norm() ** 2
    found = draw(run, engine, trained, 30, asked)
    last = {"stop": code, "end": trained.chat.end_id}
    assert {"stop", "end"} <= {completion.finish for completion in found}
    for completion in found:
        if completion.finish == "length":
            assert len(completion.token_ids) == TOKENS
        else:
            assert completion.token_ids[-1] == last[completion.finish]
            assert not set(last.values()) & set(completion.token_ids[:-1])


def test_a_groups_prompt_and_pictures_are_computed_once(
    run: Run[Any], engine: VllmEngine, trained: Policy
) -> None:
    """Three of four rollouts find all blocks of a long prompt except the last in the cache."""
    cached: list[int] = []

    async def all_of_them() -> None:
        await engine.take(trained.model.named_parameters, 40)
        generate = engine._llm.generate

        async def counted(*given: Any, **named: Any) -> Any:
            async for output in generate(*given, **named):
                cached.append(output.num_cached_tokens)
                yield output

        engine._llm.generate = counted  # type: ignore[method-assign]
        try:
            await asyncio.gather(*(engine.generate(request) for request in group))
        finally:
            engine._llm.generate = generate  # type: ignore[method-assign]

    group = requests(trained)[:4]
    blocks = (len(group[0].token_ids) - 1) // 32
    assert blocks > 0
    run(all_of_them())
    assert sorted(cached) == [0, *[32 * blocks] * 3]


def test_an_exported_folder_is_the_same_policy_in_vllm(tiny: Path, tmp_path: Path) -> None:
    found = run_export(tiny, tmp_path / "plain", dtype=None, vllm=vllm_on)
    assert 0 < found["vllm"] < 1e-4


def test_pictures_are_resized_as_without_torchvision(tiny: Path) -> None:
    assert find_spec("torchvision")
    shown = Image.open(io.BytesIO(picture(448, 448)))
    edges = {"shortest_edge": 3136, "longest_edge": 12544}
    made, patches = (
        reader.from_pretrained(tiny)(images=[shown], size=edges, return_tensors="pt")["pixel_values"]
        for reader in (Qwen2VLImageProcessor, Qwen2VLImageProcessorPil)
    )
    assert not torch.equal(made, patches)
    assert torch.equal(load(tiny).pictures.read(picture(448, 448)).patches, patches)
