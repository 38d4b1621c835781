"""One process's share of an update: micro-batches in step with the others, pictures read ahead."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from vtune.models.pictures import PictureReader
from vtune.models.policy import Policy
from vtune.update.batch import Item, Read, micro_batches, reading
from vtune.update.ranks import Ranks


def in_step(
    items: Sequence[Item],
    policy: Policy,
    ranks: Ranks,
    *,
    tokens: int,
    dummy: Item,
    chunks_of: Callable[[int], int],
) -> Iterator[tuple[Sequence[Item], Read, int]]:
    """The micro-batches of this process; all processes get equally many.

    Processes can reduce in step only if every backward pass reaches every parameter: a micro-batch without
    items or pictures gets the dummy item.

    Args:
        items: The share of this process.
        policy: The policy, for its tokenizer and picture reader.
        ranks: This process and the others; all call it together.
        tokens: Approximate number of tokens in a micro-batch.
        dummy: See `dummy_item`.
        chunks_of: Number of counted tokens -> number of chunks for their logits.

    Returns:
        Items, a reader of their pictures, and the number of chunks that the fullest process needs.
    """
    micros = micro_batches(items, tokens, image_id=policy.chat.image_id)
    gathered = ranks.gather([chunks_of(sum(item.counted for item in micro)) for micro in micros])
    count = max(map(len, gathered))
    chunks = [max(one[number] for one in gathered if number < len(one)) for number in range(count)]
    micros += [[] for _ in range(count - len(micros))]
    whole = [micro if any(item.images for item in micro) else [*micro, dummy] for micro in micros]
    for (micro, read), most in zip(read_ahead(whole, policy.pictures), chunks, strict=True):
        yield micro, read, most


def read_ahead(
    micros: Iterable[Sequence[Item]], reader: PictureReader
) -> Iterator[tuple[Sequence[Item], Read]]:
    """Micro-batches in order; threads read the pictures of the next one while one is computed."""
    begun: list[tuple[Sequence[Item], Read]] = []
    for micro in micros:
        begun.append((micro, reading(micro, reader)))
        if len(begun) > 1:
            yield begun.pop(0)
    yield from begun
