"""CharXiv from VLMEvalKit's TSV files: reasoning and descriptive questions about charts in papers.

The files contain the full prompt of each question and the query with which a model grades its answers; both
are used as published.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from vtune.data.tsv import TsvRow, scan_tsv
from vtune.errors import DataError
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.sample import Sample
from vtune.verifiers import exact, math
from vtune.verifiers.latex import is_number

PLACE = "{PREDICTION}"
"""Marks in a grading query where the answer goes."""

REASONING: Mapping[int, str] = MappingProxyType(
    {1: "text in chart", 2: "text in general", 3: "number in chart", 4: "number in general"}
)
"""`inst_category` -> the kind of answer that the question expects."""

DESCRIPTIVE: Mapping[int, str] = MappingProxyType(
    dict.fromkeys(range(1, 8), "information extraction")
    | dict.fromkeys((8, 9, 13, 14, 15), "enumeration")
    | dict.fromkeys((11, 16, 18), "pattern recognition")
    | dict.fromkeys((10, 12, 19), "counting")
    | {17: "compositionality"}
)
"""`qid`, the number of a question's template -> what the question asks for."""

_TRUTH = re.compile(r"Ground Truth(?: 1)?: *(.*\S)")


def scan_charxiv_reasoning(path: Path) -> Iterator[Sample | DataError]:
    """CharXiv_reasoning_val.tsv: one question per chart."""
    return _scan(path, "inst_category", REASONING, "charxiv-reasoning")


def scan_charxiv_descriptive(path: Path) -> Iterator[Sample | DataError]:
    """CharXiv_descriptive_val.tsv: four questions per chart, of 19 templates."""
    return _scan(path, "qid", DESCRIPTIVE, "charxiv-descriptive")


def _scan(path: Path, column: str, kinds: Mapping[int, str], source: str) -> Iterator[Sample | DataError]:
    """One entry per row: the sample, or what is wrong with it.

    Raises:
        DataError: As `scan_tsv` does.
    """
    read: Callable[[TsvRow], Sample] = lambda row: _sample(row, column, kinds, source)  # noqa: E731
    for row in scan_tsv(path, ("question", "grading_query", column)):
        try:
            yield row if isinstance(row, DataError) else read(row)
        except DataError as error:
            yield error


def _sample(row: TsvRow, column: str, kinds: Mapping[int, str], source: str) -> Sample:
    number = row.values[column].strip().removesuffix(".0")
    if not number.isdecimal() or int(number) not in kinds:
        raise DataError(
            f"`{column}` is {number!r}",
            where=row.place,
            fix=f"known: {', '.join(map(str, sorted(kinds)))}; download it again",
        )
    query, question = row.values["grading_query"], row.values["question"]
    if query.count(PLACE) != 1:
        raise DataError(
            f"`grading_query` does not hold {PLACE} once", where=row.place, fix="download it again"
        )
    truth = row.values.get("answer", "").strip() or _truth(query)
    if not truth or not question.strip():
        raise DataError("there is no question, or no answer to it", where=row.place, fix="download it again")
    kind = kinds[int(number)]
    return Sample(
        id=f"{source}/{row.values['index']}",
        source=source,
        prompt=(Message("user", f"{IMAGE}\n{question}", (0,)),),
        images=(Picture(data=row.picture),),
        ability="chart",
        ground_truth=truth,
        answer=truth,
        verifier=math.NAME if is_number(truth) else exact.NAME,
        extra={
            "category": kind,
            "facets": {"category": kind, column: number},
            "grading_query": query,
            "query": question,
        },
    )


def _truth(query: str) -> str:
    """The ground truth in a grading query: the last match, as those of the query's examples come first."""
    found = _TRUTH.findall(query)
    return str(found[-1]) if found else ""
