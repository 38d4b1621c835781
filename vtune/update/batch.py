"""What one update learns from: conversations with a weight on every token that the policy wrote."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from vtune.models.batch import Row
from vtune.models.chat import Chat
from vtune.models.packed import Packed, pack
from vtune.models.pictures import PictureReader, Pixels
from vtune.models.policy import Policy
from vtune.models.tree import LEAST_SHARED, common, token_keys
from vtune.schema.message import IMAGE, Message


@dataclass(frozen=True, slots=True)
class Item:
    """One conversation. The last three lists have one entry per token where `loss_mask` is true."""

    token_ids: Sequence[int]
    """The conversation with placeholders expanded, shape (T,)."""
    images: Sequence[bytes]
    """Its pictures, in order; they stay encoded until a forward pass needs them."""
    loss_mask: Sequence[bool]
    """Shape (T,): the tokens that count."""
    advantages: Sequence[float] = ()
    """One per counted token, in reward units; empty in supervised training."""
    old_logprobs: Sequence[float] = ()
    """For each counted token, under the weights that sampled it, in nats; empty in supervised training."""
    off_policy: Sequence[bool] = ()
    """For each counted token, whether it is off-policy: the weights have changed since it was sampled; empty
    in supervised training."""

    @property
    def counted(self) -> int:
        """Number of tokens that count."""
        return sum(self.loss_mask)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Items laid out for one forward pass; N counted tokens, item by item."""

    packed: Packed
    predicting: torch.Tensor
    """int64, (N,): the position in the row of the token before each counted token."""
    targets: torch.Tensor
    """int64, (N,): ids of the counted tokens."""
    advantages: torch.Tensor
    """float32, (N,); empty in supervised training."""
    old_logprobs: torch.Tensor
    """float32, (N,); empty in supervised training."""
    off_policy: torch.Tensor
    """bool, (N,); empty in supervised training."""
    sequence: torch.Tensor
    """int64, (N,): index of the item, from 0."""


def micro_batches(items: Sequence[Item], tokens: int, *, image_id: int) -> list[list[Item]]:
    """Split into as few micro-batches of about `tokens` tokens as possible, all of similar size.

    Items with a shared prefix stay together, and the shared part counts once. An item with more than `tokens`
    tokens gets its own micro-batch.
    """
    alike = begun_alike(items, image_id=image_id)
    sizes, shared = [size for _, size, _ in alike], [length for *_, length in alike]
    # Bisect for the smallest limit that needs no more micro-batches than `tokens` does.
    count = len(_filled(sizes, shared, tokens))
    low, high = 1, tokens
    while low < high:
        middle = (low + high) // 2
        if len(_filled(sizes, shared, middle)) > count:
            low = middle + 1
        else:
            high = middle
    return [[item for item, *_ in alike[start:end]] for start, end in _filled(sizes, shared, high)]


def begun_alike(items: Sequence[Item], *, image_id: int) -> list[tuple[Item, int, int]]:
    """Items ordered so that those with a shared prefix are neighbours.

    Returns:
        Each item with its number of tokens, and how many of them it shares with the one before it.
    """
    numbers: dict[bytes, int] = {}
    keyed = []
    for item in items:
        shown = [numbers.setdefault(data, len(numbers)) for data in item.images]
        keyed.append((token_keys(item.token_ids, shown, image_id), item))
    keyed.sort(key=lambda pair: pair[0])
    found = []
    for number, (keys, item) in enumerate(keyed):
        length = common(keyed[number - 1][0], keys) if number else 0
        found.append((item, len(keys), length if length >= LEAST_SHARED else 0))
    return found


def _filled(sizes: Sequence[int], shared: Sequence[int], limit: int) -> list[tuple[int, int]]:
    """First and last+1 item of each micro-batch, filled greedily in order."""
    spans: list[tuple[int, int]] = []
    start, used = 0, 0
    for number, (size, common_part) in enumerate(zip(sizes, shared, strict=True)):
        if number > start and used + size - common_part > limit:
            spans.append((start, number))
            start, used = number, 0
        used += size - (common_part if number > start else 0)
    return [*spans, (start, len(sizes))] if sizes else []


Read = Callable[[bytes], Pixels]
"""An encoded picture -> its pixels; the same object for the same bytes."""


def reading(items: Sequence[Item], reader: PictureReader) -> Read:
    """Start reading the pictures of items in threads; the returned function waits for one of them."""
    # A group shares its picture: identical bytes are read once.
    distinct = dict.fromkeys(data for item in items for data in item.images)
    coming = {data: reader.begin(data) for data in distinct}
    return lambda data: coming[data].result()


def micro_batch(items: Sequence[Item], policy: Policy, read: Read | None = None) -> MicroBatch:
    """Lay items out for one forward pass. A conversation's first token cannot count: nothing predicts it.

    Args:
        items: Conversations.
        policy: The policy, for its tokenizer and picture reader.
        read: `reading` of the items, if it has already been started.
    """
    counts = [np.flatnonzero(np.array(item.loss_mask[1:], dtype=bool)) for item in items]
    ends = accumulate((len(item.token_ids) for item in items), initial=0)
    before = np.concatenate([end + one for end, one in zip(ends, counts, strict=False)])
    ids = (np.array(item.token_ids, dtype=np.int64) for item in items)
    targets = np.concatenate([row[1 + one] for row, one in zip(ids, counts, strict=True)])
    sequence = np.repeat(np.arange(len(items)), [item.counted for item in items])
    advantages = _flat([item.advantages for item in items])
    old_logprobs = _flat([item.old_logprobs for item in items])
    off_policy = _flat([item.off_policy for item in items], np.bool_)
    # Copies to the GPU come last: each waits for the work that was queued before it.
    device = policy.device
    read = read or reading(items, policy.pictures)
    packed = pack(
        [Row(item.token_ids, [read(data) for data in item.images]) for item in items],
        image_id=policy.chat.image_id,
        merge=policy.merge,
        device=device,
        positions_of=policy.family.positions,
    )
    return MicroBatch(
        packed=packed,
        predicting=torch.cat(packed.places)[torch.from_numpy(before).to(device)],
        targets=torch.from_numpy(targets).to(device),
        advantages=torch.from_numpy(advantages).to(device),
        old_logprobs=torch.from_numpy(old_logprobs).to(device),
        off_policy=torch.from_numpy(off_policy).to(device),
        sequence=torch.from_numpy(sequence).to(device),
    )


def _flat(values: Sequence[Sequence[float]], dtype: type[np.generic] = np.float32) -> NDArray[Any]:
    # numpy takes a third of torch's time for lists.
    return np.array(list(chain.from_iterable(values)), dtype=dtype)


def dummy_item(chat: Chat, reader: PictureReader) -> Item:
    """The content of a dummy batch: a conversation about a small black picture in which no token counts.

    It passes through the whole model and teaches nothing; used for a share without items or pictures.
    """
    out = io.BytesIO()
    Image.new("RGB", (8, 8)).save(out, "PNG")
    ids = chat.prompt([Message("user", IMAGE)], [reader.read(out.getvalue())])
    return Item(ids, [out.getvalue()], [False] * len(ids))
