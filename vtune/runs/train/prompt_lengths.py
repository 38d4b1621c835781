"""Whether prompts leave room for a reply, as far as that can be known before weights are loaded."""

from pathlib import Path

from vtune.errors import DataError
from vtune.models.chat import Chat
from vtune.models.pictures import PictureReader
from vtune.models.policy import load_reader
from vtune.rollout.prompts import ask
from vtune.runs.train.draw import prompts_of
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.sandbox import image_names
from vtune.schema.pixels import size_of
from vtune.schema.sample import Sample
from vtune.schema.store import sample_store
from vtune.update.ranks import Ranks

ALONE = Ranks(rank=0, world=1, local=0)
"""Whose prompts are those of all ranks, in their order."""

MEASURED = 32
"""Prompts, or traces, measured before the start: enough for a limit that is wrong for most of them; ours."""


def check_prompt_lengths(recipe: RLRecipe) -> None:
    """Check that the prompts which are asked first leave room for a reply; others are checked in their turn.

    Of a first step that is larger than what is measured, a few long ones may be more than their share: it is
    refused where they would certainly end the run, or where most are too long. What tools and environments
    add to a prompt is known when they are opened, and is not counted.

    Raises:
        DataError: If more do not than may be unscored, or the tokenizer cannot be loaded.
    """
    chat, reader = load_reader(recipe.model, recipe.images)
    store = sample_store([Path(name) for name in recipe.data])
    step = recipe.prompts_per_step
    count = min(step, MEASURED)
    limit = recipe.rollout.max_tokens
    long = []
    for number in range(count):
        ((sample, images),) = prompts_of(store, recipe, range(number, number + 1), ALONE)
        length = _length(recipe, sample, images, chat, reader)
        if length >= limit:
            long.append((length, sample.id))
    most = recipe.reward.max_unscored
    if len(long) > min(most * step, max(most, 0.5) * count):
        length, worst = max(long)
        raise DataError(
            f"{len(long)} of the first {count} prompts leave no room for a reply within {limit} tokens "
            "(rollout.max_tokens)",
            where=f"sample {worst!r}, whose prompt has {length} tokens",
            fix="raise rollout.max_tokens, lower images.max_pixels, or drop them; or leave them unscored, "
            "with a higher reward.max_unscored",
        )


def _length(
    recipe: RLRecipe, sample: Sample, images: tuple[bytes, ...], chat: Chat, reader: PictureReader
) -> int:
    """Tokens of a prompt; 0 where a picture cannot be decoded, which its own turn reports."""
    try:
        pixels = [reader.read(data) for data in images]
    except DataError:
        return 0
    sizes = [size_of(data) for data in images]
    try:
        return len(
            chat.prompt(ask(recipe.rollout.prompt, sample, image_names(images), sizes, draw=0), pixels)
        )
    except DataError as error:
        raise DataError(error.what, where=f"sample {sample.id!r}", fix=error.fix) from None
