"""Is it English? Counting and OCR keep English data only (V-Triune, appendix A)."""

import re
import unicodedata
from functools import cache
from typing import Any

from vtune.curate.filters import FILTERS, FilterPart
from vtune.curate.item import Item, Selected, question
from vtune.schema.sample import Sample

SURE = 0.5
"""Probability from which another language is believed (ours): it is near 1 for whole sentences, and spread
over many languages for a word or two, which then pass."""
_SIGN = re.compile(r"(?<![\u0370-\u03ff])[\u0370-\u03ff](?![\u0370-\u03ff])")
"""A single Greek letter is a symbol (5 Ω, 3 μm, 2π), not Greek text."""


class English(Selected):
    """Drops questions in another language, and questions or answers in another script."""


def foreign(spec: English, item: Item) -> str | None:
    """The reason to drop what is not English."""
    text = question(item.record)
    written = f"{text}\n{item.record.ground_truth}" if isinstance(item.record, Sample) else text
    # NFKC turns letters of formulas (an italic x) into plain letters.
    for letter in _SIGN.sub("", unicodedata.normalize("NFKC", written)):
        if letter.isalpha() and not letter.isascii() and "LATIN" not in unicodedata.name(letter, ""):
            return f"the letter {letter!r} is not of the Latin script"
    language, probability = _identifier().classify(text)
    if language != "en" and probability >= SURE:
        return f"the question is in the language {language!r} (probability {probability:.2f})"
    return None


@cache
def _identifier() -> Any:
    """The py3langid model, loaded once per process."""
    from py3langid.langid import MODEL_DIR, MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_DIR / MODEL_FILE, norm_probs=True)


FILTERS.add(
    "english", FilterPart(English, foreign, looks_at=("samples", "traces"), drops={"ground_truth": "да"})
)
