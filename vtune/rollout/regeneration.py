"""Regenerates one turn of a stored conversation from the same tokens, with other pictures or no look.

Nothing is tokenized anew: everything before the turn is the record's own token ids. A replacement picture has
the same size as the original, so that it fills the same number of tokens.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vtune.errors import DataError, ServiceError, first_failure
from vtune.judge.pictures import read_bytes
from vtune.models.chat import Chat
from vtune.models.pictures import PictureReader, Pixels
from vtune.rollout.engine import Completion, Engine, Request, Sampling
from vtune.rollout.transcript import Speech
from vtune.schema.message import Message
from vtune.schema.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Regeneration:
    """A turn to be generated again."""

    request: Request
    started: str = ""
    """The beginning of the turn, given in advance."""
    kept: tuple[Message, ...] = ()
    """The turns before it."""


def answer_again(
    trajectory: Trajectory,
    images: Mapping[int, bytes],
    chat: Speech,
    reader: PictureReader,
    *,
    sampling: Sampling,
    key: tuple[int, ...],
) -> Regeneration:
    """The last turn once more, after everything that came before it.

    Args:
        trajectory: One that ends with a turn of the policy.
        images: Index of an image in the trajectory -> its replacement, of the same size.
        chat: The policy's turns as tokens, or `Words`.
        reader: The policy's picture reader.
        sampling: How the turn is sampled.
        key: Seeds the sampling.

    Raises:
        DataError: If the record is from another model, or a picture has a different size.
    """
    kept = trajectory.messages[:-1]
    return _again(trajectory, last_turn(trajectory), kept, images, chat, reader, sampling=sampling, key=key)


def answer_without(
    trajectory: Trajectory,
    opening: str,
    chat: Speech,
    reader: PictureReader,
    *,
    sampling: Sampling,
    key: tuple[int, ...],
) -> Regeneration:
    """An answer in place of the first call: the turn starts with the text that opens an answer.

    Args:
        trajectory: One with a call and token ids.
        opening: E.g. `<answer>`.
        chat: The policy's turns as tokens.
        reader: The policy's picture reader.
        sampling: How the turn is sampled.
        key: Seeds the sampling.

    Raises:
        DataError: If the record has no tokens, or is from another model.
    """
    if not isinstance(chat, Chat) or not trajectory.token_ids:
        raise DataError(
            "a turn can only be started by an engine that shows its tokens",
            where=_where(trajectory),
            fix="leave `withheld` out for a model behind an endpoint",
        )
    start = trajectory.calls[0].span[0]
    turns = _policy_turns(trajectory)
    kept = trajectory.messages[: turns[0]]
    return _again(trajectory, start, kept, {}, chat, reader, sampling=sampling, key=key, opening=opening)


def last_turn(trajectory: Trajectory) -> int:
    """Index of the first token of the policy's last turn."""
    start = len(trajectory.token_ids)
    while start and trajectory.loss_mask[start - 1]:
        start -= 1
    return start


async def draw_again(engine: Engine, again: Regeneration, chat: Speech) -> tuple[str, Completion]:
    """Generate the turn; returns its whole text, including the given beginning."""
    completion = await engine.generate(again.request)
    text = chat.decode(completion.token_ids) if completion.text is None else completion.text
    return again.started + text, completion


def _again(
    trajectory: Trajectory,
    start: int,
    kept: Sequence[Message],
    images: Mapping[int, bytes],
    chat: Speech,
    reader: PictureReader,
    *,
    sampling: Sampling,
    key: tuple[int, ...],
    opening: str = "",
) -> Regeneration:
    shown = [number for message in kept for number in message.images]
    pixels = [_pixels(trajectory, number, images, reader) for number in shown]
    prefix = trajectory.token_ids[:start]
    if isinstance(chat, Chat):
        _check_tokens(trajectory, prefix, pixels, chat)
        prefix += tuple(chat.words(opening)) if opening else ()
    request = Request(
        token_ids=prefix,
        pixels=tuple(pixels),
        sampling=sampling,
        key=key,
        messages=tuple(kept),
        question=trajectory.sample_id,
    )
    return Regeneration(request, opening, tuple(kept))


def _pixels(
    trajectory: Trajectory, number: int, images: Mapping[int, bytes], reader: PictureReader
) -> Pixels:
    """A picture as the policy is shown it, whether replaced or not.

    Raises:
        DataError: If the replacement fills a different number of tokens.
    """
    own = reader.read(read_bytes(trajectory.images[number]))
    if number not in images:
        return own
    other = reader.read(images[number])
    if other.grid != own.grid:
        raise DataError(
            f"a picture of {other.grid} patches instead of one of {own.grid}", where=_where(trajectory)
        )
    return other


def _check_tokens(
    trajectory: Trajectory, prefix: Sequence[int], pixels: Sequence[Pixels], chat: Chat
) -> None:
    """Check that the tokens before the turn are this model's, and match these pictures."""
    if not prefix:
        raise DataError(
            "the record has no token ids: its model was behind an endpoint",
            where=_where(trajectory),
            fix="name that model, as openai:URL#model",
        )
    if chat.decode(trajectory.token_ids[last_turn(trajectory) :]) != trajectory.messages[-1].content:
        raise DataError(
            "its tokens do not decode to its text: another tokenizer wrote them",
            where=_where(trajectory),
            fix="name the model that generated it",
        )
    places = sum(token == chat.image_id for token in prefix)
    filled = sum(one.tokens for one in pixels)
    if places != filled:
        raise DataError(
            f"its pictures fill {filled} tokens, but the record has {places}",
            where=_where(trajectory),
            fix="name the model that generated it, with the `images` that it was generated with",
        )


def _policy_turns(trajectory: Trajectory) -> list[int]:
    """Indices of the policy's messages: as many, from the end, as there are runs of its tokens."""
    runs = sum(
        own and not before
        for before, own in zip((False, *trajectory.loss_mask), trajectory.loss_mask, strict=False)
    )
    written = [n for n, message in enumerate(trajectory.messages) if message.role == "assistant"]
    return written[-runs:]


def _where(trajectory: Trajectory) -> str:
    return f"sample {trajectory.sample_id!r}, rollout {trajectory.rollout}"


async def draw_side_by_side(
    engine: Engine, turns: Sequence[Regeneration], chat: Speech, *, room: int
) -> list[tuple[str, Completion] | ServiceError]:
    """Generate independent turns, at most `room` at a time; returns them in order.

    If an endpoint gives no reply, the error takes the place of the turn.

    Raises:
        RunFailed: If no working backend is left.
    """
    found: dict[int, tuple[str, Completion] | ServiceError] = {}
    left = iter(enumerate(turns))

    async def lane() -> None:
        try:
            for number, again in left:
                try:
                    found[number] = await draw_again(engine, again, chat)
                except ServiceError as error:
                    found[number] = error
        finally:
            engine.leave(0)

    lanes = min(room, len(turns))
    for _ in range(lanes):
        engine.join(0)
    with first_failure():
        async with asyncio.TaskGroup() as tasks:
            for _ in range(lanes):
                tasks.create_task(lane())
    return [found[number] for number in range(len(turns))]
