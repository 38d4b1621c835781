"""A filter of a user's own: drop long questions."""

from vtune.config import Strict
from vtune.curate.item import Item, question
from vtune.curate.own import FILTERS, FilterPart
from vtune.schema.message import IMAGE, Message


class Short(Strict):
    """How long a question may be."""

    words: int


def long(settings: Short, item: Item) -> str | None:
    """Drop questions of more than so many words."""
    count = len(question(item.record).split())
    return f"{count} words" if count > settings.words else None


FILTERS.add(
    "short",
    FilterPart(
        long,
        keeps={"prompt": (Message("user", f"{IMAGE}Which?"),)},
        drops={"prompt": (Message("user", f"{IMAGE}Which of them is it?"),)},
        recipe=Short,
        example={"words": 3},
    ),
)
