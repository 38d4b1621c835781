"""Text that a model or its code wrote, made safe for a terminal."""

from rich.text import Text


def foreign(text: str) -> Text:
    """The text as it is, never parsed as markup; control characters are replaced by U+FFFD."""
    return Text("".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text))
