"""`vtune data validate`: check every row of files."""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from vtune.environments import ENVIRONMENTS, check_environment
from vtune.errors import DataError, RecipeError, nearest
from vtune.files.terminal import brief
from vtune.files.writing import write_atomically
from vtune.registry import Parts
from vtune.report.progress import Rows
from vtune.report.samples import Problem, describe_problem, first_problems
from vtune.runs.data.pictures_ahead import Opening, opening
from vtune.schema.message import IMAGE, Picture
from vtune.schema.parquet import (
    columns,
    count_rows,
    scan_samples,
    scan_trajectories,
)
from vtune.schema.sample import Sample, check_unanswered
from vtune.schema.source_names import check_source
from vtune.schema.trajectory import Trajectory
from vtune.tools import TOOLS
from vtune.uses import used
from vtune.verifiers import VERIFIERS
from vtune.verifiers.perfect import check_full_marks

PROBLEMS = ".problems.txt"
"""Appended to an output's name: lists all rows that were left out, one per line."""

_IN_FOLDER = re.compile(r"(.+), row (\d+)(?:, .*)?", re.DOTALL)
"""The place of a row whose file is in a folder that was given."""

Scan = Callable[[Path], Iterator[Sample | DataError]]
"""Reads a file: one entry per row, the sample or what is wrong with it."""


def validate(
    paths: Sequence[Path],
    scan: Scan = scan_samples,
    *,
    samples_only: bool = False,
    brought: bool = False,
    see: Callable[[Sample], None] | None = None,
) -> dict[str, Any]:
    """Check every row of every file without a model.

    A row of samples is good if it is a valid sample, its id is unique across all files, its prompt does not
    end with a reply, its `data_source` is not a name reserved by metrics, its verifier exists and gives full
    marks to the ground truth as a reply, its pictures exist and can be opened, and its evidence lies inside
    them and not within the first pixel, as fractions would. A row of traces is good if it can be learnt from.
    Only the first problem of a bad row is listed.

    Args:
        paths: Files of samples or of traces.
        scan: Reads a file of samples.
        samples_only: No file may hold traces.
        brought: A row that names a part which no file provides is an error, not a problem of that row.
        see: Called with every good sample.

    Returns:
        `rows`; `by_source`, the good rows; `turned`, the number with a picture that EXIF rotates; and
        `problems`, each with `file`, `row` (from 0; None if the file itself is the problem), `what` and
        `fix`.
    """
    rows = turned = 0
    by_source: Counter[str] = Counter()
    problems: list[Problem] = []
    places: dict[str, str] = {}
    total = _total(paths) if scan is scan_samples else None
    with Rows("check", total=total, brief=True) as progress:
        for path in paths:
            before = rows
            try:
                traces = scan is scan_samples and not samples_only and "messages" in columns(path)
                entries = scan_trajectories(path) if traces else scan(path)
                for row, (entry, pictures) in enumerate(opening(entries, images_of, path.parent)):
                    rows += 1
                    progress.advance()
                    try:
                        _check(entry, pictures, f"{path}, row {row}", places, brought=brought)
                    except DataError as error:
                        problems.append(problem_of(path, row, error))
                    else:
                        assert not isinstance(entry, DataError)
                        by_source[entry.source] += 1
                        if see is not None and isinstance(entry, Sample):
                            see(entry)
                        turned += any(one.turned for one in pictures.facts())
                if rows == before and scan is scan_samples:
                    raise DataError("the file has no rows", fix="make or download it again")
            except DataError as error:
                problems.append(problem_of(path, None, error))
    return {"rows": rows, "by_source": dict(by_source), "turned": turned, "problems": problems}


def _check(
    entry: Sample | Trajectory | DataError,
    pictures: Opening,
    place: str,
    places: dict[str, str],
    *,
    brought: bool,
) -> None:
    """Check one row, see `validate`.

    Raises:
        DataError: If it is not good.
        RecipeError: With `brought`, if it names a part that no file provides.
    """
    if isinstance(entry, DataError):
        raise entry
    if brought and isinstance(entry, Sample):
        check_brought(entry, place)
    if isinstance(entry, Trajectory):
        check_learnable(entry, pictures, place)
    else:
        check_sample(entry, pictures, place, places)


def _total(paths: Sequence[Path]) -> int | None:
    """Number of rows in all files; None if one cannot be read, which is reported later."""
    try:
        return sum(map(count_rows, paths))
    except DataError:
        return None


def images_of(entry: Sample | Trajectory | DataError) -> Sequence[Picture]:
    """The pictures of a row; empty if it cannot be read."""
    return () if isinstance(entry, DataError) else entry.images


def write_problems(path: Path, problems: Sequence[Problem]) -> None:
    """Write problems, one per line."""
    write_atomically(path, "".join(f"{describe_problem(p)}\n" for p in problems), option="--problems")


def list_problems(out: Path, problems: Sequence[Problem]) -> str | None:
    """Write the list of rows left out of a file beside it; return its name, or None if there are none."""
    # X.jsonl may be an export of X.parquet, whose list must not be touched.
    listed = out.with_name((out.stem if out.suffix == ".parquet" else out.name) + PROBLEMS)
    if not problems:
        listed.unlink(missing_ok=True)  # from an earlier run
        return None
    write_problems(listed, problems)
    return str(listed)


def check_data(
    paths: Sequence[Path],
    scan: Scan = scan_samples,
    *,
    lister: str = "vtune data validate FILE… --problems OUT",
    again: str = "give other files, or make these again",
    see: Callable[[Sample], None] | None = None,
) -> None:
    """Reject files with bad rows before a run starts.

    Args:
        paths: Files of samples.
        scan: Reads a file.
        lister: The command that lists all problems.
        again: The fix if no row is bad, but the files themselves.
        see: Called with every good sample, so that further checks need not read all pictures again.

    Raises:
        RecipeError: At the first row that names a part which no file provides: one missing file affects all
            such rows.
        DataError: Lists the first problems, each with file, row and fix.
    """
    problems: list[Problem] = validate(paths, scan, samples_only=True, brought=True, see=see)["problems"]
    if not problems:
        return
    lines = [f"  {line}" for line in first_problems(problems)]
    own = "".join(f" --uses {shlex.quote(str(file.path))}" for file in used())
    fix = f"`{lister}{own}` lists all of them"
    if all(problem["row"] is None for problem in problems):
        fix = again
    raise DataError("\n".join([f"{len(problems)} problem(s) in the data", *lines]), fix=fix)


def check_brought(sample: Sample, where: str) -> None:
    """Check that the parts that a row names exist.

    Raises:
        RecipeError: If one does not; says what to do.
    """
    parts: list[tuple[Parts[Any], str]] = [(VERIFIERS, sample.verifier)]
    parts += [(ENVIRONMENTS, sample.environment)] if sample.environment else []
    parts += [(TOOLS, name) for name in sample.tools]
    for table, name in parts:
        if name not in table:
            raise RecipeError(
                f"unknown {table.word} {name!r}: neither vtune nor a file under `uses` adds it",
                where=where,
                fix="list the file that adds it, `uses: [./mine.py]`, in the recipe or suite; "
                + nearest(name, table),
            )


def check_sample(sample: Sample, pictures: Opening, place: str, places: dict[str, str]) -> None:
    """Check that a sample is good by itself (see `validate`) and that its id is new. Main thread only
    (`math`).

    Args:
        sample: The sample.
        pictures: Its pictures.
        place: Where the sample is.
        places: Where each id was first seen; this one is added.

    Raises:
        DataError: Gives the first problem.
    """
    first = places.setdefault(sample.id, place)
    if first != place:
        raise DataError(f"id {sample.id!r} is also in {first}", fix="ids must be unique across files")
    check_unanswered(sample)
    asked = (turn.content.replace(IMAGE, "").strip() for turn in sample.prompt if turn.role == "user")
    if not any(asked) and not sample.environment:
        raise DataError("the question is empty", fix="drop the row, or check which column holds the question")
    check_source(sample.source)
    if unknown := [name for name in sample.tools if name not in TOOLS]:
        raise DataError(
            f"unknown tool {unknown[0]!r}", where=f"sample {sample.id!r}", fix=TOOLS.meant(unknown[0])
        )
    check_environment(sample)
    sizes = [one.size for one in pictures.facts()]
    check_full_marks(sample, sizes[0] if sizes else None)
    for item in sample.evidence:
        width, height = sizes[item.image]
        x0, y0, x1, y1 = item.bbox
        if x1 <= 1 < width and y1 <= 1 < height:
            raise DataError(
                f"evidence {list(item.bbox)} lies in the first pixel of image {item.image}",
                fix="write it in pixels of the stored image; for fractions of its sides, import as "
                "hf with `space: relative_1` in the column map",
            )
        if not (x0 >= 0 and y0 >= 0 and x1 <= width and y1 <= height):
            raise DataError(
                f"evidence {list(item.bbox)} leaves image {item.image}, which is {width}x{height}",
                fix="write xyxy in pixels of the stored image; for other corners or spaces, import "
                "as hf with `corners` and `space` in the column map",
            )


def check_learnable(trace: Trajectory, pictures: Opening, where: str) -> None:
    """Check that a trace can be learnt from, and that its pictures open.

    Raises:
        DataError: If it cannot be learnt from, or a picture does not open.
    """
    from vtune.rollout.transcript import check_trace  # loads torch, which samples do not need

    check_trace(trace, where=where)
    pictures.facts()


def problem_of(path: Path, row: int | None, error: DataError) -> Problem:
    """An error about a row, as listed."""
    if path.is_dir() and error.where.startswith(f"{path}/"):
        inside = _IN_FOLDER.fullmatch(error.where)
        if inside is None:
            return {"file": error.where, "row": None, "what": error.what, "fix": error.fix}
        path, row = Path(inside[1]), int(inside[2])
    # In `where`, the place within the row, e.g. its column, follows the file and the row.
    detail = error.where.removeprefix(str(path)).removeprefix(f", row {row}").removeprefix(", ")
    if row is not None and detail.startswith("sample "):
        detail = ""  # the row identifies it, and other rows may have the same problem
    what = f"{error.what} ({detail})" if detail else error.what
    return {
        "file": str(path),
        "row": row,
        "what": brief(_printable(what)),
        "fix": brief(_printable(error.fix)),
    }


def _printable(text: str) -> str:
    """A text in which lone surrogates, which files and screens cannot represent, are escaped."""
    return text.encode(errors="backslashreplace").decode()
