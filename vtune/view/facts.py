"""Facts: what a list of trajectories shows, filters and sorts by, without their pictures and tokens."""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from vtune.reward.recipe import RIGHT
from vtune.schema.message import IMAGE
from vtune.schema.parquet import scan_columns
from vtune.schema.trajectory_row import needs_look_of
from vtune.tools.calls import found_nothing
from vtune.view.place import Place, step_of

SEARCHED = 32_768
"""Characters of a trajectory that text search covers, from its beginning (ours)."""
SHOWN = 160
"""Characters of the question in a list (ours)."""

TOOL = 40
"""Characters of a tool's name (ours)."""

_NO_WORD = re.compile(r'[\s":,]+')
"""Characters that separate words or parts of a query."""

EMPTY = "empty"
"""Outcome of a search that found nothing."""

FACTS = pa.schema(
    [
        ("key", pa.string()),
        ("row", pa.int32()),
        ("step", pa.int64()),
        ("source", pa.string()),
        ("sample", pa.string()),
        ("group", pa.int64()),
        ("rollout", pa.int32()),
        ("right", pa.bool_()),
        ("faithful", pa.bool_()),
        ("needs_look", pa.bool_()),
        ("reward", pa.float32()),
        ("accuracy", pa.float32()),
        ("format", pa.float32()),
        ("tool", pa.float32()),
        ("consistency", pa.float32()),
        ("iou", pa.float32()),
        ("advantage", pa.float32()),
        ("calls", pa.int32()),
        ("turns", pa.int32()),
        ("pictures", pa.int32()),
        ("tokens", pa.int32()),
        ("stop", pa.string()),
        ("answer", pa.string()),
        ("question", pa.string()),
        ("flags", pa.string()),
        ("statuses", pa.string()),
        ("outcomes", pa.string()),
        ("text", pa.string()),
    ]
)
"""`key` is the file's stem and the row. `flags` and `statuses`: words, each once, with a space on either
side; `outcomes`: `TOOL:STATUS` of every call, in order, and `TOOL:empty` after a search that found nothing.
`text` is in lower case. `faithful` is null if no look is needed. Unknown values are null, as everywhere."""

_TRAJECTORY = (
    *("sample_id", "data_source", "group", "rollout", "messages.list.element.role"),
    *("messages.list.element.content", "images.list.element.origin", "calls.list.element.status"),
    "calls.list.element.tool",
    *("calls.list.element.flags", "calls.list.element.error", "calls.list.element.output", "loss_mask"),
    *("answer", "stop_reason", "reward", "tool_scores", "advantage"),
)
_LATE = ("needs_look", "outcome")
_SAMPLE = ("data_source", "prompt", "extra_info", "reward_model")


def facts_of(place: Place, file: Path, *, shown_from: float) -> Iterator[pa.RecordBatch]:
    """The facts of a file, some rows at a time.

    Args:
        place: The place that the file belongs to.
        file: File of trajectories or samples.
        shown_from: The score from which a call counts as having shown a target.

    Raises:
        DataError: If the file cannot be read.
    """
    row = 0
    columns = (_SAMPLE, ()) if place.kind == "samples" else (_TRAJECTORY, _LATE)
    for batch in scan_columns(file, *columns):
        facts = []
        for values in batch.to_pylist():
            known = _of_sample(values) if place.kind == "samples" else _of_trajectory(values, shown_from)
            facts.append({"key": f"{file.stem}/{row}", "row": row, "step": step_of(file), **known})
            row += 1
        yield pa.RecordBatch.from_pylist(facts, schema=FACTS)


def faithful(scores: Sequence[float | None], shown_from: float) -> bool | None:
    """Whether a call showed a target, judging by the scores of calls; None if unknown.

    What `vtune faithfulness` measures is stricter: see CodeV, algorithm 1.
    """
    if any(score is not None and score >= shown_from for score in scores):
        return True
    return None if any(score is None for score in scores) else False


def _of_trajectory(values: Mapping[str, Any], shown_from: float) -> dict[str, Any]:
    messages = values["messages"] or []
    calls = values["calls"] or []
    # Damaged rows are listed too; reading a row in full reports what is wrong.
    reward = {name: _finite(value) for name, value in (values["reward"] or {}).items()}
    scores = [_finite(score) for score in values["tool_scores"] or []]
    accuracy = reward.get("accuracy")
    needs_look = needs_look_of(dict(values))
    judged = needs_look is not False and len(scores) == len(calls) and bool(reward)
    users = [message["content"] or "" for message in messages if message["role"] == "user"]
    question = users[0] if users else ""
    searched = [message["content"] or "" for message in messages if message["role"] != "system"]
    searched += [call[key] or "" for call in calls for key in ("error", "output")]
    searched += [reward.get("why") or ""]
    return {
        "source": values["data_source"],
        "sample": values["sample_id"],
        "group": values["group"],
        "rollout": values["rollout"],
        "right": None if accuracy is None else accuracy >= RIGHT,
        "faithful": faithful(scores, shown_from) if judged else None,
        "needs_look": needs_look,
        "reward": reward.get("total"),
        **{name: reward.get(name) for name in ("accuracy", "format", "tool", "consistency")},
        "iou": _finite(dict(reward.get("parts") or ()).get("iou")),
        "advantage": _finite(values["advantage"]),
        # A failure on our side may not be a call: if an endpoint did not reply, it only holds the reason.
        "calls": sum(call["status"] != "infra" for call in calls),
        "turns": sum(message["role"] == "assistant" for message in messages),
        "pictures": len(values["images"] or []),
        "tokens": sum(values["loss_mask"]) if values["loss_mask"] else None,
        "stop": values["stop_reason"],
        "answer": _short(values["answer"]),
        "question": _short(question.replace(IMAGE, "")),
        "flags": _words(flag for call in calls for flag in call["flags"] or []),
        "statuses": _words(call["status"] for call in calls),
        "outcomes": _spaced([word for call in calls for word in _outcomes(call)]),
        "text": _searched(searched),
    }


def _of_sample(values: Mapping[str, Any]) -> dict[str, Any]:
    prompt = [message["content"] or "" for message in values["prompt"] or [] if message["role"] == "user"]
    judged = values["reward_model"] or {}
    question = prompt[-1] if prompt else ""
    return {
        "source": values["data_source"],
        "sample": (values["extra_info"] or {}).get("id"),
        "pictures": question.count(IMAGE),
        "answer": _short(judged.get("ground_truth")),
        "question": _short(question.replace(IMAGE, "")),
        "flags": "",
        "statuses": "",
        "outcomes": "",
        "text": _searched([*prompt, str(judged.get("ground_truth") or "")]),
    }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _short(text: Any) -> str | None:
    return None if text is None else " ".join(str(text)[: 8 * SHOWN].split())[:SHOWN]


def _words(words: Iterator[str]) -> str:
    return _spaced(dict.fromkeys(words))


def _outcomes(call: Mapping[str, Any]) -> Iterator[str]:
    yield f"{_word(call['tool'])}:{call['status']}"
    if found_nothing(call["tool"] or "", call["output"] or ""):
        yield f"{_word(call['tool'])}:{EMPTY}"


def _spaced(words: Collection[str]) -> str:
    return f" {' '.join(words)} " if words else ""


def _word(name: str | None) -> str:
    """The name of a tool as one word in a query: models may call non-existent tools by any text."""
    return _NO_WORD.sub("_", name or "")[:TOOL] or "_"


def _searched(texts: Sequence[str]) -> str:
    room, found = SEARCHED, []
    for text in texts:
        found.append(text[:room])
        room -= len(found[-1])
        if room <= 0:
            break
    return "\n".join(found).lower()
