"""verl's rows, read and written: the layout that most trainers share (verl, DeepEyes, CodeV, EasyR1)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from vtune.data.formats import own, specimens
from vtune.data.formats.building import Found, Options, build_sample, each, given_id, judged, others
from vtune.data.formats.reward_rows import is_verl
from vtune.data.formats.source import Place, read_rows
from vtune.data.formats.table import FORMATS, Format, Writer
from vtune.data.formats.values import conversation, first, needed, pictures_asked, struct_of, text_of
from vtune.data.offer import check_answer_place
from vtune.schema.fields import Row, picture_to_row
from vtune.schema.sample import Sample
from vtune.schema.sample_row import sample_from_row
from vtune.verifiers import VERIFIERS, exact, verifier_of

VERL_COLUMNS = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("images", pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        (
            "extra_info",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("index", pa.int64()),
                    ("split", pa.string()),
                    ("question", pa.string()),
                    ("answer", pa.string()),
                    (own.KEY, pa.string()),
                ]
            ),
        ),
    ]
)
"""The columns that `RLHFDataset` reads."""


def read_verl(path: Path, options: Options) -> Iterator[Found]:
    """Samples of files in verl's layout, one entry per row."""
    return each(read_rows(path), lambda row, place: verl_sample(row, place, options))


def verl_sample(
    row: Row,
    place: Place,
    options: Options,
    *,
    tools: tuple[str, ...] = (),
    ability: str | None = None,
    model: bool | None = None,
    ratios: tuple[float, float, float] = (1.0, 0.0, 0.0),
) -> Sample:
    """The sample of a row.

    Args:
        row: As on disk.
        place: Where the row is.
        options: Options of the import.
        tools: Tools that the model may call.
        ability: Task family; None: the column's.
        model: Whether a model judges; None: as `reward_model.style` says.
        ratios: Weights of accuracy, format and tool.

    Raises:
        DataError: Names the column and the fix.
    """
    source = text_of("data_source", needed(row, "data_source"))
    asked = needed(row, "prompt")
    images = pictures_asked("images", first(row, "images", "image"), asked, options.base(place.file))
    turns = conversation(asked, len(images))
    needed(row, "reward_model")
    judge, info = struct_of(row, "reward_model"), struct_of(row, "extra_info")
    packed = own.unpack(info)
    if packed is not None:
        truth = text_of("reward_model.ground_truth", needed(judge, "ground_truth", of="reward_model"))
        shown = row | {"prompt": turns, "images": [picture_to_row(picture) for picture in images]}
        return sample_from_row(own.restore(shown, packed, truth), place=place.id)
    return build_sample(
        place,
        source=source,
        turns=turns,
        images=images,
        ability=ability or str(row.get("ability") or ""),
        identity=given_id(info.get("id"), source),
        answer=info["answer"] if isinstance(info.get("answer"), str) else "",
        ratios=ratios,
        tools=tools,
        extra=others(info, "id")
        | {"reward_model": others(judge, "ground_truth")}
        | others(row, "data_source", "images", "image", "prompt", "ability", "reward_model", "extra_info"),
        **_judgement(turns, judge, options, model),
    )


def _judgement(
    turns: Sequence[Row], judge: Mapping[str, Any], options: Options, model: bool | None
) -> dict[str, Any]:
    """How a row is judged, as arguments of `build_sample`.

    Raises:
        DataError: If it has no truth, or its prompt asks for the answer in a place that is not read.
    """
    if options.tools is None:  # otherwise these words may be removed
        check_answer_place("\n".join(turn["content"] for turn in turns))
    truth = needed(judge, "ground_truth", of="reward_model")
    asks_model = judge.get("style") == "model" if model is None else model
    said = options.verifier or (None if asks_model else exact.NAME)
    by_search = _is_search_r1(truth) and said == exact.NAME
    found = judged(
        next((turn["content"] for turn in reversed(turns) if turn["role"] == "user"), ""),
        truth["target"] if _is_search_r1(truth) else truth,
        replace(options, verifier=exact.NAME) if by_search else options,
        column="reward_model.ground_truth",
        model=asks_model,
    )
    if by_search:
        found["verifier_parm"] |= {exact.MATCH: exact.SQUAD}
    if _wants_box(turns) and not VERIFIERS[found["verifier"]].reads_outcome:
        found["verifier_parm"] = {**found["verifier_parm"], "answer_in": "boxed"}
    return found


def _is_search_r1(truth: Any) -> bool:
    """Whether a truth is Search-R1's `{target: […]}`, whose reward is SQuAD's exact match with any entry."""
    return isinstance(truth, Mapping) and set(truth) == {"target"}


def _wants_box(turns: Sequence[Row]) -> bool:
    r"""Whether a prompt asks for the answer only in `\boxed{}`, as in verl's own Geometry3K."""
    text = "".join(turn["content"] for turn in turns)
    return "\\boxed" in text and "<answer>" not in text


def verl_row(sample: Sample, index: int) -> Row:
    """A sample as verl reads it.

    Args:
        sample: Its pictures hold their bytes.
        index: Row number.

    Raises:
        DataError: If the sample cannot be stored.
    """
    return {
        "data_source": sample.source,
        "prompt": [{"role": turn.role, "content": turn.content} for turn in sample.prompt],
        "images": [picture_to_row(picture) for picture in sample.images],
        "ability": sample.ability,
        "reward_model": {
            "style": "model" if verifier_of(sample).asks_judge else "rule",
            "ground_truth": sample.ground_truth,
        },
        "extra_info": {
            "id": sample.id,
            "index": index,
            "split": "train",
            "question": sample.question,
            "answer": sample.answer or sample.ground_truth,
            own.KEY: own.pack(sample),
        },
    }


FORMATS.add(
    "verl",
    Format(
        read_verl,
        "Parquet or JSON lines of verl",
        looks=is_verl,
        broad=True,
        specimen=specimens.verl,
        writes=Writer(verl_row, VERL_COLUMNS),
    ),
)
