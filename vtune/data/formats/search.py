"""Questions that need a web search: SenseNova-MARS (JSON lines and its meta file), MMSearch-R1 / FVQA.

Image search results are stored in columns and kept in `extra_info`, where a replayed search reads them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vtune.data.formats import specimens
from vtune.data.formats.building import Found, Options, build_sample, each, judged, others
from vtune.data.formats.reward_rows import is_judged
from vtune.data.formats.source import Place, files, read_json, read_rows
from vtune.data.formats.table import FORMATS, Format, Glance
from vtune.data.formats.values import conversation, first, needed, pictures, struct_of, text_of
from vtune.errors import DataError
from vtune.files.json_text import parse_json
from vtune.schema.fields import Row, mistyped, wrong
from vtune.schema.sample import Sample
from vtune.tools import image_search, text_search, zoom
from vtune.verifiers import choice, exact
from vtune.verifiers import judge as judging

MARS_TOOLS = (zoom.NAME, text_search.NAME, image_search.NAME)
MMSEARCH_TOOLS = (text_search.NAME, image_search.NAME)
TITLES = "image_search_title_list"
"""Column with the titles that an image search found."""
_BY_RULE = "em_score_mcq"
"""The reward for multiple-choice questions; all other rewards ask a model."""


def read_mars(path: Path, options: Options) -> Iterator[Found]:
    """Samples of SenseNova-MARS, one entry per row.

    Args:
        path: JSON lines, a folder of them, or the meta file {name: {root, annotation, reward_fn, …}}; its
            paths are relative to `--images` if given, else to its own folder.
        options: Options of the import.

    Raises:
        DataError: If there is no file, or the meta file is invalid.
    """
    for file, name in files(path, (".jsonl",)):
        if file.suffix == ".json":
            yield from _meta(file, options)
        else:
            # The test sets are folders, each with a `data.jsonl`.
            stem = name.split("/")[-1]
            source = file.resolve().parent.name if stem == "data" else stem
            yield from _mars_file(file, source, options, None)


def read_mmsearch(path: Path, options: Options) -> Iterator[Found]:
    """Samples of MMSearch-R1's files (FVQA), one entry per row."""
    return each(read_rows(path), lambda row, place: mmsearch_sample(row, place, options))


def mars_sample(row: Row, place: Place, options: Options, *, source: str, rule: bool | None) -> Sample:
    """The sample of a row of JSON lines.

    Args:
        row: As on disk.
        place: Where the row is.
        options: Options of the import.
        source: `data_source`: the data set's name in the meta file.
        rule: Whether its reward is the multiple-choice one; None if no meta file says.

    Raises:
        DataError: Names the column and the fix.
    """
    shown = pictures("image", first(row, "image", "images"), options.base(place.file))
    turns = conversation(needed(row, "prompt"), len(shown))
    judge = struct_of(row, "reward_model")
    stored = others(row, "prompt", "image", "images", "reward_model")
    if stored.get(TITLES) is None:
        # The column is optional; without it, the search tool would report an error instead of no results.
        stored[TITLES] = []
    question = next((turn["content"] for turn in reversed(turns) if turn["role"] == "user"), "")
    found = judged(
        question, needed(judge, "ground_truth"), options, column="reward_model.ground_truth", model=True
    )
    if options.verifier is None and rule is not None:
        found["verifier"] = choice.NAME if rule else judging.NAME
        found["choices"] = found["choices"] if rule else ()
    return build_sample(
        place,
        source=source,
        turns=turns,
        images=shown,
        ability="search",
        answer=found["ground_truth"],
        tools=MARS_TOOLS,
        extra=stored | {"reward_model": others(judge, "ground_truth")},
        **found,
    )


def mmsearch_sample(row: Row, place: Place, options: Options) -> Sample:
    """The sample of a row; `candidate_answers`, a JSON list, also count as right.

    Raises:
        DataError: Names the column and the fix.
    """
    source = text_of("data_source", needed(row, "data_source"))
    shown = pictures("images", first(row, "images", "image"), options.base(place.file))
    turns = conversation(needed(row, "prompt"), len(shown))
    judge = struct_of(row, "reward_model")
    truths = [needed(judge, "ground_truth"), *_candidates(judge.get("candidate_answers"))]
    # MMSearch-R1's reward compares with every candidate, so a single reference is compared the same way.
    said = options.verifier or exact.NAME
    found = judged(
        "",
        truths,
        Options(images=options.images, verifier=said),
        column="reward_model.ground_truth",
        choices=(),
    )
    if said == exact.NAME:
        found["verifier_parm"] |= {exact.MATCH: exact.SQUAD}  # as in its own reward
    info = struct_of(row, "extra_info")
    identity = first(info, "id") or first(row, "data_id")
    return build_sample(
        place,
        source=source,
        turns=turns,
        images=shown,
        ability=str(row.get("ability") or "search"),
        identity=None if identity is None else text_of("id", identity),
        answer=text_of("reward_model.ground_truth", truths[0]),
        tools=MMSEARCH_TOOLS,
        extra=others(info, "id")
        | others(row, "data_source", "images", "image", "prompt", "ability", "reward_model", "extra_info")
        | {"reward_model": others(judge, "ground_truth", "candidate_answers")},
        **found,
    )


def _meta(file: Path, options: Options) -> Iterator[Found]:
    content = read_json(file)
    entries = content.items() if isinstance(content, dict) else ()
    if not entries or not all(isinstance(e, dict) and "annotation" in e for _, e in entries):
        raise DataError(
            "not a meta file of SenseNova-MARS",
            where=str(file),
            fix="give its JSON lines, or {name: {root, annotation, …}}",
        )
    base = options.base(file)
    for name, entry in entries:
        annotation = base / str(entry["annotation"])
        inner = Options(images=base / str(entry.get("root") or ""), verifier=options.verifier)
        try:
            # Test sets are not trained on, so their scoring is listed under the unused rewards.
            rule = _by_rule(entry.get("reward_fn") or entry.get("unused_reward_fn"))
        except DataError as unknown:
            yield Place(file, None, name), unknown
            continue
        if not annotation.is_file():
            error = DataError(f"no annotation file at {annotation}", fix="give its base folder with --images")
            yield Place(file, None, name), error
            continue
        yield from _mars_file(annotation, name, inner, rule)


def _by_rule(rewards: Any) -> bool | None:
    """Whether the rewards, a list or one name, include the multiple-choice one; None if there are none."""
    names = [rewards] if isinstance(rewards, str) else rewards or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise mistyped("reward_fn", rewards, "a list of names")
    return _BY_RULE in names if names else None


def _mars_file(file: Path, source: str, options: Options, rule: bool | None) -> Iterator[Found]:
    return each(
        read_rows(file), lambda row, place: mars_sample(row, place, options, source=source, rule=rule)
    )


def _candidates(value: Any) -> list[Any]:
    if isinstance(value, str):
        try:
            value = parse_json(value)
        except ValueError as error:
            raise wrong(
                "reward_model.candidate_answers", f"not a JSON list: {error}", "correct or drop the row"
            ) from None
    if value is not None and not isinstance(value, list):
        raise mistyped("reward_model.candidate_answers", value, "a list of texts")
    return [item for item in value or [] if item not in (None, "")]


def _looks_like_mars(glance: Glance) -> bool:
    """Rows like verl's but without its source, or the meta file."""
    row = glance.row
    here = {"image", TITLES} & row.keys() and not (row.get("data_source") or "env_name" in row)
    return bool(is_judged(glance) and here) or '"annotation"' in glance.head


FORMATS.add(
    "mars",
    Format(
        read_mars,
        "JSON lines or meta file of SenseNova-MARS",
        aliases=("sensenova-mars",),
        offers_tools=True,
        looks=_looks_like_mars,
        broad=True,  # any JSON may contain an `annotation`
        specimen=specimens.mars,
    ),
)
FORMATS.add(
    "mmsearch",
    Format(
        read_mmsearch,
        "Parquet of MMSearch-R1 (FVQA)",
        aliases=("fvqa",),
        offers_tools=True,
        looks=lambda glance: is_judged(glance) and "candidate_answers" in (glance.judge or ()),
        specimen=specimens.mmsearch,
    ),
)
