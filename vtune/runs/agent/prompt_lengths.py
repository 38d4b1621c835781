"""Whether prompts leave room for a reply, as far as that is known before weights are loaded."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Protocol

from vtune.errors import DataError
from vtune.models.chat import Chat
from vtune.models.pictures import PictureReader, PixelBudget
from vtune.models.policy import load_reader
from vtune.reward.recipe import RewardRecipe
from vtune.rollout.prompts import Style, ask
from vtune.rollout.recipe import Rollout
from vtune.sandbox import image_names
from vtune.schema.pixels import size_of
from vtune.schema.sample import Sample

MEASURED = 32
"""Prompts, or traces, measured before the start: enough to catch a limit too low for most of them; ours."""


class Asking(Protocol):
    """The sections of a recipe or suite that determine a prompt's length and its limit."""

    @property
    def images(self) -> PixelBudget:
        """How large pictures are shown."""

    @property
    def rollout(self) -> Rollout:
        """Style of the prompts, and the token limit."""

    @property
    def reward(self) -> RewardRecipe:
        """How many samples may stay unscored."""


def check_prompt_lengths(
    recipe: Asking, model: str, prompts: Iterable[tuple[Sample, Sequence[bytes]]], *, total: int, further: str
) -> None:
    """Check that the first prompts leave room for a reply; the others are checked when their turn comes.

    Only a sample of the prompts is measured, so a few long ones may be over-represented: it is an error only
    if they would certainly end the run, or if most are too long. What tools and environments add to a prompt
    is known only when they are opened, and is not counted.

    Args:
        recipe: The recipe of the run, or the suite.
        model: Folder or hub name; its tokenizer counts.
        prompts: With their pictures, in the order in which they are asked.
        total: Number of prompts that the unscored share refers to: those of a step, or of an evaluation.
        further: What else helps, besides a higher limit and smaller pictures.

    Raises:
        DataError: If more prompts leave no room than may be unscored, or the tokenizer cannot be loaded.
    """
    chat, reader = load_reader(model, recipe.images)
    count = min(total, MEASURED)
    limit = recipe.rollout.max_tokens
    long = []
    for sample, images in islice(prompts, count):
        length = _length(recipe.rollout.prompt, sample, images, chat, reader)
        if length >= limit:
            long.append((length, sample.id))
    most = recipe.reward.max_unscored
    if len(long) > min(most * total, max(most, 0.5) * count):
        length, worst = max(long)
        raise DataError(
            f"{len(long)} of the first {count} prompts leave no room for a reply within {limit} tokens "
            "(rollout.max_tokens)",
            where=f"sample {worst!r}, whose prompt has {length} tokens",
            fix=f"raise rollout.max_tokens, lower images.max_pixels, or {further}",
        )


def _length(style: Style, sample: Sample, images: Sequence[bytes], chat: Chat, reader: PictureReader) -> int:
    """Tokens of a prompt; 0 if a picture cannot be decoded, which its own turn will report."""
    try:
        pixels = [reader.read(data) for data in images]
    except DataError:
        return 0
    sizes = [size_of(data) for data in images]
    try:
        return len(chat.prompt(ask(style, sample, image_names(images), sizes, draw=0), pixels))
    except DataError as error:
        raise DataError(error.what, where=f"sample {sample.id!r}", fix=error.fix) from None
