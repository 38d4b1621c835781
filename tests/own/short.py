"""A custom filter: drop long questions."""

from vtune.curate.filters import FILTERS, FilterPart
from vtune.curate.item import Item, Selected, question
from vtune.schema.message import IMAGE, Message


class Short(Selected):
    """Drops questions of more than `words` words."""

    words: int


def long(settings: Short, item: Item) -> str | None:
    """The reason to drop a question that is too long."""
    count = len(question(item.record).split())
    return f"{count} words" if count > settings.words else None


FILTERS.add(
    "short",
    FilterPart(
        Short,
        long,
        keeps={"prompt": (Message("user", f"{IMAGE}Which?"),)},
        drops={"prompt": (Message("user", f"{IMAGE}Which of them is it?"),)},
        example={"words": 3},
    ),
)
