"""Builds a sample from the parts of a foreign row, with the checks and messages of our own reader."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtune.data.formats.judging import guess_verifier
from vtune.data.formats.regions import box_truth
from vtune.data.formats.source import Place, Raw
from vtune.data.formats.values import json_object, listed_options, plain, text_of
from vtune.errors import DataError
from vtune.schema.fields import Row, mistyped, picture_to_row, wrong
from vtune.schema.message import IMAGE, Picture
from vtune.schema.sample import Sample, check_unanswered
from vtune.schema.sample_row import sample_from_row
from vtune.schema.trajectory import Trajectory
from vtune.tools import ToolName
from vtune.verifiers import VERIFIERS, choice, counting, exact, judge, math, ocr

SEVERAL = (exact.NAME, ocr.NAME, judge.NAME)
"""Verifiers that accept several reference answers per row."""
OF_TEXT = (*SEVERAL, choice.NAME, counting.NAME, math.NAME)
"""Verifiers whose ground truth is one text or number; for others the ground truth may itself be a list."""
RATIOS = ("accuracy_ratio", "format_ratio", "tool_ratio")
"""Columns of a row's weights."""

Found = tuple[Place, Sample | Trajectory | DataError]
"""The result for a row; an error says how to fix it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the caller of an import sets besides the path."""

    images: Path | None = None
    """Folder that picture paths are relative to; None: the folder of the file, or the folder given as the
    path.
    """
    verifier: str | None = None
    """Verifier for rows that name none, even if a column map sets one for every row; None: the one that suits
    the ground truth."""
    tools: tuple[ToolName, ...] | None = None
    """Tools that the model may call, with their prompt (see `vtune.data.offer`); None: as the rows say."""
    columns: Path | None = None
    """Column map, only for `hf`."""
    passed_over: Callable[[str, str], None] = lambda why, what: None
    """Called with (why, what) once for everything that a reader skips by its own rules."""

    def base(self, file: Path) -> Path:
        """The folder that a file's picture paths are relative to; for files read as one, their folder."""
        if self.images is not None:
            return self.images
        return file if file.is_dir() else file.parent


def each(rows: Iterable[Raw], convert: Callable[[Row, Place], Sample | Trajectory]) -> Iterator[Found]:
    """Every row converted; a row that fails yields an error in its place, and reading goes on."""
    for place, row in rows:
        if isinstance(row, DataError):
            yield place, row
            continue
        try:
            found = convert(row, place)
            if isinstance(found, Sample):
                check_unanswered(found)
        except DataError as error:
            yield place, error
        else:
            yield place, found


def build_sample(
    place: Place,
    *,
    source: str,
    turns: Sequence[Row],
    images: Sequence[Picture],
    ground_truth: str,
    verifier: str,
    identity: str | None = None,
    ability: str = "",
    answer: str = "",
    verifier_parm: Mapping[str, Any] | None = None,
    ratios: tuple[float, float, float] = (1.0, 0.0, 0.0),
    tools: Sequence[str] = (),
    evidence: Sequence[Row] = (),
    choices: Sequence[str] = (),
    extra: Mapping[str, Any] | None = None,
) -> Sample:
    """A sample, checked like a row of our own layout.

    Args:
        place: Its row becomes the id if `identity` is None.
        source: `data_source`.
        turns: Rows of `prompt`.
        images: Pictures with their bytes.
        ground_truth: In the form that the verifier reads.
        verifier: Its name.
        identity: The id that the file gives.
        ability: Task family.
        answer: The reference as a person would say it.
        verifier_parm: Options of the verifier.
        ratios: Weights of accuracy, format and tool.
        tools: Tools that the model may call.
        evidence: Rows of `evidence`.
        choices: Options of a multiple-choice question.
        extra: The rest of the row.

    Raises:
        DataError: Names the column and the fix.
    """
    _check_asked(turns)
    _check_pictured(turns, extra or {})
    row = {
        "data_source": source,
        "images": [picture_to_row(picture) for picture in images],
        "prompt": list(turns),
        "ability": ability,
        "reward_model": {
            "answer": answer,
            "ground_truth": ground_truth,
            "verifier": verifier,
            "verifier_parm": plain(verifier_parm or {}),
            **dict(zip(RATIOS, ratios, strict=True)),
        },
        "extra_info": _extra_info(plain(extra or {}, images), identity, source, place),
        "tools": list(tools),
        "evidence": list(evidence),
        "choices": list(choices),
    }
    return sample_from_row(row, place=place.id)


def _extra_info(more: dict[str, Any], identity: str | None, source: str, place: Place) -> dict[str, Any]:
    """The rest of a row with the sample's id; a different `id` in it goes into `more_json`."""
    other = more.pop("id", None)
    if other is not None and str(other) != identity:
        kept = json_object("extra_info.more_json", more.get("more_json"))
        more["more_json"] = json.dumps(kept | {"id": other})
    return more | {"id": identity or own_id(source, place)}


def _check_asked(turns: Sequence[Row]) -> None:
    """Check that a user asks something.

    Raises:
        DataError: If there is no user turn, or all user turns hold only pictures.
    """
    users = [turn for turn in turns if turn["role"] == "user"]
    if not users:
        roles = ", ".join(str(turn["role"])[:60] for turn in turns)
        raise wrong(
            "prompt", f"no turn is the user's, only {roles}", "drop the row, or name the roles as chats do"
        )
    if not any(turn["content"].replace(IMAGE, "").strip() for turn in users):
        raise wrong(
            "prompt", "the question is empty", "drop the row, or check which column holds the question"
        )


def _check_pictured(turns: Sequence[Row], extra: Mapping[str, Any]) -> None:
    """Check that no turn shows a video or a sound, which the rest of the row holds.

    Raises:
        DataError: If one does: the policy would be asked about what it cannot see.
    """
    text = "".join(turn["content"] for turn in turns)
    for medium in ("video", "audio"):
        held = next((column for column in (f"{medium}s", medium) if extra.get(column)), None)
        if held is not None and f"<{medium}>" in text:
            raise wrong(
                held, f"the prompt shows a <{medium}>, and samples show only pictures", "drop the row"
            )


def own_id(source: str, place: Place) -> str:
    """The id for a row that has none: its place, made unique by the source."""
    return place.id if place.name == source else f"{source}/{place.id}"


def given_id(value: Any, source: str) -> str | None:
    """The id that a row gives; a bare number, which only counts the rows of a file, is made unique by the
    source.

    Args:
        value: Of the row's `extra_info`; None if it gives none.
        source: `data_source`.
    """
    if value is None:
        return None
    text = text_of("extra_info.id", value)
    return f"{source}/{text}" if text.isdecimal() else text


def judged(
    question: str,
    truth: Any,
    options: Options,
    *,
    column: str,
    choices: tuple[str, ...] | None = None,
    model: bool = False,
) -> dict[str, Any]:
    """Ground truth, verifier, verifier options and choices for a row that names no verifier.

    Args:
        question: The user's turn; options listed in it become the choices.
        truth: As in the file: a text or number, or a list whose first entry is the reference and whose other
            entries are also right; several numbers are one answer, unless the caller names a verifier; boxes,
            if the caller's verifier judges boxes.
        options: Its `verifier` takes precedence, if set.
        column: Column of the truth, for errors.
        choices: The options, if the file lists them separately from the question.
        model: Whether the file expects a model to judge.

    Returns:
        Keyword arguments of `build_sample`.

    Raises:
        DataError: If there is no truth, or several, and the verifier takes only one.
    """
    listed_boxes = not isinstance(truth, str) or truth.lstrip().startswith("[")
    if options.verifier is not None and VERIFIERS[options.verifier].answers_in_boxes and listed_boxes:
        boxes = box_truth(column, truth)
        return {"ground_truth": boxes, "verifier": options.verifier, "verifier_parm": {}, "choices": ()}
    truths = _references(column, truth, options)
    if any(isinstance(item, Mapping) and "range" in item for item in truths):
        raise wrong(
            column,
            "the answer is a range of numbers, which no verifier takes",
            "name the column that holds a single number (InfoSeek: `answer`); verifier math accepts "
            "only that value",
        )
    texts = list(dict.fromkeys(text_of(column, item).strip() for item in truths))
    listed = listed_options(question) if choices is None else choices
    verifier = options.verifier or guess_verifier(texts[0], listed, model=model)
    if len(texts) > 1 and options.verifier is None and verifier not in SEVERAL:
        verifier = judge.NAME if model else exact.NAME  # the other verifiers take a single reference
    if len(texts) > 1 and verifier not in SEVERAL:
        raise DataError(
            f"{len(texts)} reference answers, but verifier `{verifier}` takes one",
            where=f"column `{column}`",
            fix=f"import with --verifier {', '.join(SEVERAL[:-1])} or {SEVERAL[-1]}; "
            "where the map of columns has a verifier_parm, it must hold options of that one",
        )
    return {
        "ground_truth": texts[0],
        "verifier": verifier,
        "verifier_parm": {"aliases": texts[1:]} if len(texts) > 1 else {},
        "choices": listed if verifier == choice.NAME else (),
    }


def _references(column: str, truth: Any, options: Options) -> list[Any]:
    """The reference answers; several numbers without a verifier are one, such as a box, as in text tables.

    Raises:
        DataError: If there is none.
    """
    if not isinstance(truth, list):
        return [truth]
    if not truth:
        raise mistyped(column, None, "the reference answer")
    if options.verifier is None and len(truth) > 1 and all(type(item) in (int, float) for item in truth):
        return [f"[{', '.join(text_of(column, item) for item in truth)}]"]
    return truth


def others(row: Mapping[str, Any], *used: str) -> dict[str, Any]:
    """The remaining columns, without empty ones; they go to `extra_info`."""
    return {key: value for key, value in row.items() if key not in used and value is not None}
