"""What a rule-based judge sees in the pictures of the chains: a coloured thing, or only the grey ground."""

import base64
import io
from typing import Any

from PIL import Image


def shows_colour(content: list[dict[str, Any]]) -> bool:
    """Whether the last picture of a message to a judge is mostly coloured, not grey."""
    data = base64.b64decode(content[-1]["image_url"]["url"].partition("base64,")[2])
    whole = Image.open(io.BytesIO(data)).convert("RGB").resize((1, 1), Image.Resampling.BOX)
    levels = whole.tobytes()
    return max(levels) - min(levels) > 30
