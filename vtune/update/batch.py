"""What one update learns from: conversations with a weight on every token that the policy wrote."""

import io
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image

from vtune.models.chat import Chat
from vtune.models.pictures import PictureReader
from vtune.schema.message import IMAGE, Message


@dataclass(frozen=True, slots=True)
class Item:
    """One conversation. The two last lists have one entry a token where `loss_mask` is true."""

    token_ids: Sequence[int]
    """The conversation, placeholders expanded, shape (T,)."""
    images: Sequence[bytes]
    """Its pictures, in order; they stay encoded until a forward needs them."""
    loss_mask: Sequence[bool]
    """Shape (T,): the tokens that count."""
    advantages: Sequence[float] = ()
    """One a counted token, in reward units; empty in supervised training."""
    old_logprobs: Sequence[float] = ()
    """Of each counted token under the weights that drew it, nats; empty in supervised training."""

    @property
    def counted(self) -> int:
        """How many tokens count."""
        return sum(self.loss_mask)


def micro_batches(items: Sequence[Item], size: int) -> list[list[Item]]:
    """Split into batches of at most `size` items of like length, so that little is padding."""
    ordered = sorted(items, key=lambda item: len(item.token_ids))
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


def stand_in(chat: Chat, reader: PictureReader) -> Item:
    """A conversation about a small black picture in which no token counts.

    It goes through the whole model and teaches nothing: for a share without an item or without a picture.
    """
    out = io.BytesIO()
    Image.new("RGB", (8, 8)).save(out, "PNG")
    ids = chat.prompt([Message("user", IMAGE)], [reader.read(out.getvalue())])
    return Item(ids, [out.getvalue()], [False] * len(ids))
