"""Warnings of an import about samples that it keeps: they can be read, but look odd."""

import re
from collections.abc import Iterator, Mapping

from vtune.data.formats.building import Options
from vtune.data.harness import UNSHOWN
from vtune.data.offer import unserved_call
from vtune.schema.sample import Sample
from vtune.verifiers import detection, grounding, math

_FOUR_NUMBERS = re.compile(r"\s*\[\s*-?[0-9.]+(?:\s*,\s*-?[0-9.]+){3}\s*\]\s*")


def doubts(sample: Sample, options: Options) -> Iterator[str]:
    """What the user should check, with the fix: the end of "3 rows with …".

    Args:
        sample: As written.
        options: Options of the import; what the caller states is not doubted.
    """
    if options.tools is None and (unoffered := _unoffered(sample)):
        yield (
            f"`tools_kwargs` of {', '.join(unoffered)}, which the row does not offer: name with "
            "--tools what the model may call (none for no tool); this also removes system turns"
        )
    if options.tools is None and (unserved := unserved_call(sample)):
        yield (
            f"a prompt that mentions {unserved.call}, a call that no tool handles: "
            + (
                "name with --tools what the model may call (none for no tool); this also removes these words"
                if unserved.removable
                else "remove these words from the rows"
            )
        )
    if UNSHOWN in sample.extra:
        yield "a picture that is left out, as neither question nor options refer to it: write `<image 1>`"
    numbers = sample.verifier == math.NAME and _FOUR_NUMBERS.fullmatch(sample.ground_truth)
    if options.verifier is None and numbers:
        yield (
            f"four numbers as the answer, each of which verifier `{math.NAME}` compares exactly: if "
            f"they are a box, import with --verifier {grounding.NAME} or {detection.NAME}"
        )


def _unoffered(sample: Sample) -> list[str]:
    """The tools that verl would give an agent for the row, except those that the sample offers."""
    asked = sample.extra.get("tools_kwargs")
    # In Parquet the struct has the tools of all rows, with nulls for those that a row lacks.
    names = [name for name, value in asked.items() if value is not None] if isinstance(asked, Mapping) else []
    return [name for name in names if name not in sample.tools]
