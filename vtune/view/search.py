"""Text search over a column of texts, in one pass over its bytes."""

from bisect import bisect_right

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def holds(column: pa.ChunkedArray, wanted: str) -> pa.Array:
    """Whether each text contains another; both must be in the same case.

    Python's byte search takes a third of the time of Arrow's `match_substring`, and hundreds of megabytes of
    text are searched whenever someone types (`tests/bench/bench_view.py`).
    """
    masks = [_holds(chunk, wanted.encode()) for chunk in column.chunks]
    return pa.array(np.concatenate(masks) if masks else np.zeros(0, np.bool_))


def _holds(texts: pa.StringArray, wanted: bytes) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(texts), np.bool_)
    _, offsets, data = texts.buffers()
    if not wanted or data is None:
        return found if wanted else ~found
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    content = data.slice(int(ends[0]), int(ends[-1] - ends[0])).to_pybytes()
    bounds = (ends - ends[0]).tolist()
    row, at = 0, content.find(wanted)
    while at >= 0:
        row = bisect_right(bounds, at, lo=row) - 1
        inside = at + len(wanted) <= bounds[row + 1]  # otherwise it spans two texts
        found[row] |= inside
        at = content.find(wanted, bounds[row + 1] if inside else at + 1)
    return found
