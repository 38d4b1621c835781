"""One item of a request to the reward service, read strictly: a sample, and what a policy did with it.

The request comes from another program, and anything that it leaves out or puts in the wrong place would be
scored as if the policy had not done it. So every key must be one that is read, calls must state what they
returned, and turns that ask for tools must come with their calls.
"""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import pyarrow as pa

from vtune.errors import DataError, nearest
from vtune.reward.body import check_structure
from vtune.reward.wire import read_of
from vtune.schema.fields import Row
from vtune.schema.message import Message
from vtune.schema.sample import Sample
from vtune.schema.sample_row import SAMPLE_COLUMNS, sample_from_row
from vtune.schema.trajectory import Trajectory
from vtune.schema.trajectory_row import TRAJECTORY_COLUMNS, trajectory_from_row
from vtune.tools.calls import ANSWER_OPEN, CLOSE, OPEN

LONGEST_TEXT = 4 * 2**20
"""Limit on the characters that a policy wrote in one trajectory; ours: a million tokens."""

IDENTITY = ("id", "index", "split")
"""Keys of `extra_info` that make up a sample's id."""

_JUDGED = (*SAMPLE_COLUMNS.field("reward_model").type.names, "style")
"""Members of `reward_model`; the last one is verl's."""
_SEEN = tuple(SAMPLE_COLUMNS.field("evidence").type.value_type.names)
_MEANT: Mapping[str, str] = {
    **{name: f"extra_info.{name}" for name in IDENTITY},
    **{name: f"reward_model.{name}" for name in _JUDGED},
    **{name: name for name in SAMPLE_COLUMNS.names},
}
"""A key of a sample -> where it belongs."""

_ELSEWHERE = {
    "messages.tool_calls": "write each call into `content` as the policy did, and send it as one of `calls`",
    "messages.reasoning_content": "write the thoughts into `content`, in `<think>`, as the policy did",
}
"""Keys of turns in chat templates -> where we expect their contents."""

_CALL = re.compile(rf"{OPEN}|<code>")
_FLAT = re.compile(rf"{CLOSE}\s*(?:<\|im_end\|>\s*)?(?:<\|im_start\|>)?(?:user|tool)\s*{ANSWER_OPEN}")
"""In a flattened conversation, where a turn of the policy ends and a tool's answer begins."""


def read_item(item: Any) -> tuple[Sample, Trajectory]:
    """The sample and the trajectory of an item; `{"sample": row, "reply": text}` is one with a single turn.

    Raises:
        DataError: Names the column and the remedy.
    """
    if not isinstance(item, dict) or not isinstance(item.get("sample"), dict):
        raise DataError("an item needs a `sample`", fix='{"sample": {…}, "reply": "…"} or "trajectory": {…}')
    if unknown := sorted(set(item) - {"sample", "trajectory", "reply"}):
        raise DataError(f"unknown key `{unknown[0][:60]}` in an item", fix="known: sample, trajectory, reply")
    sample = _sample(item["sample"])
    _check_text(sample.ground_truth, "ground truth")
    row, reply = item.get("trajectory"), item.get("reply")
    if isinstance(reply, str) and row is None:
        _check_text(reply, "reply")
        messages = (Message("assistant", reply),)
        _check_one_turn(messages)
        return sample, Trajectory(sample_id=sample.id, source=sample.source, messages=messages)
    if reply is not None and row is None:
        raise DataError(
            f"`reply` is {type(reply).__name__}, not a text",
            fix='send the text: of a list of messages `completion[-1]["content"]`',
        )
    if not isinstance(row, dict) or reply is not None:
        raise DataError("an item has either a `reply` or a `trajectory`", fix="send the text of the reply")
    trajectory = _trajectory(row, sample)
    if trajectory.sample_id != sample.id:
        raise DataError(
            f"the trajectory answers {trajectory.sample_id!r}, the sample is {sample.id!r}",
            fix="send each trajectory with the sample that it answers",
        )
    _check_text(trajectory.reply, "reply")
    return sample, trajectory


def _check_text(text: str, name: str) -> None:
    if len(text) > LONGEST_TEXT:
        raise DataError(f"the {name} has {len(text)} characters", fix=f"send {LONGEST_TEXT} at most")


def _check_keys(sample: Row) -> None:
    """Check that a sample has no unknown columns: a misspelt one would otherwise be silently ignored.

    Null columns count as absent: table readers fill rows up with them.

    Raises:
        DataError: Names the first unknown one, and what was meant.
    """
    judge, evidence = sample.get("reward_model"), sample.get("evidence")
    _check_known(sample, _MEANT, "")
    if isinstance(judge, dict):
        _check_known(judge, {name: f"reward_model.{name}" for name in _JUDGED}, "reward_model.")
    for item in evidence if isinstance(evidence, list) else ():
        if isinstance(item, dict):
            _check_known(item, {name: f"evidence.{name}" for name in _SEEN}, "evidence.")


def _check_known(given: Row, known: Mapping[str, str], place: str) -> None:
    own = {name for name, spelt in known.items() if spelt == f"{place}{name}"}
    for key in given:
        if given[key] is not None and key not in own:
            near = get_close_matches(key[:60], known, n=1)
            meant = f"did you mean `{known[near[0]]}`?" if near else f"known: {', '.join(sorted(own))}."
            raise DataError(
                f"unknown key `{place}{key[:60]}`",
                where="the sample of a request",
                fix=f"{meant} Your own values go into `extra_info`",
            )


def _sample(row: Row) -> Sample:
    _check_keys(row)
    judge, info = row.get("reward_model"), row.get("extra_info")
    parm = judge.get("verifier_parm") if isinstance(judge, dict) else None
    if isinstance(parm, str):  # JSON within JSON
        try:
            check_structure(parm.encode("utf-8", "surrogatepass"))
        except DataError as error:
            raise DataError(error.what, where="column `reward_model.verifier_parm`", fix=error.fix) from None
    if isinstance(info, dict):
        named = {key: value for key, value in info.items() if key in IDENTITY}
        row = row | {"extra_info": read_of(info) | named}
    images = row.get("images")
    # A path in a request must never be opened here, and no verifier looks at a sample's pictures.
    empty = [{"bytes": b"", "path": None} for _ in images] if isinstance(images, list) else None
    return sample_from_row(row | {"images": empty}, place="request")


def _trajectory(row: Row, sample: Sample) -> Trajectory:
    if row.get("messages") is None:  # an empty list is from a policy that wrote nothing, and is scored
        raise DataError(
            "a trajectory came without `messages`",
            where="column `messages`",
            fix='send the turns, [{"role": "assistant", "content": "…"}, …]',
        )
    _check_columns(row, TRAJECTORY_COLUMNS, "")
    images, calls = row.get("images") or [], row.get("calls")
    if not isinstance(images, list):
        raise DataError("column `images` is not a list", fix="send a list of pictures")
    if isinstance(calls, list):
        _check_given(calls)
        if not row.get("token_ids"):  # scoring reads no tokens, and without them a span has no meaning
            row = row | {"calls": [one | {"span": [0, 0]} if isinstance(one, dict) else one for one in calls]}
    nothing = dict.fromkeys(TRAJECTORY_COLUMNS.names)
    known = {"sample_id": sample.id, "data_source": sample.source, "stop_reason": "answer"}
    done = trajectory_from_row(nothing | known | row | {"images": [_picture(item) for item in images]})
    if calls is None:
        _check_one_turn(done.messages)
        _check_no_calls(sample, done.messages)
    return done


def _check_columns(given: Row, known: pa.Schema | pa.StructType, place: str) -> None:
    """Check that all keys are columns, at every depth; null values count as absent.

    Raises:
        DataError: Names the first key that is not a column, and what was meant.
    """
    for key, value in given.items():
        if value is None:
            continue
        if key not in known.names:
            name = f"{place}{key[:60]}"
            fix = _ELSEWHERE.get(name) or nearest(key[:60], known.names)
            raise DataError(f"unknown key `{name}`", where="the trajectory of a request", fix=fix)
        kind = known.field(key).type
        inner, items = (kind.value_type, value) if pa.types.is_list(kind) else (kind, [value])
        if pa.types.is_struct(inner) and isinstance(items, list):
            for item in items:
                if isinstance(item, dict):
                    _check_columns(item, inner, f"{place}{key}.")


def _check_given(calls: Iterable[Any]) -> None:
    """Check that calls state what they returned: an empty output, or a crop not shown, scores as a miss.

    Raises:
        DataError: Names what is missing.
    """
    for call in calls:
        if not isinstance(call, dict):
            continue  # refused later, as not a call
        if call.get("output") is None:
            raise DataError(
                "a call came without its `output`",
                where="column `calls.output`",
                fix='send the text that it returned, "" if there was none',
            )
        crops = call.get("crops")
        for crop in crops if isinstance(crops, list) else ():
            if isinstance(crop, dict) and "shown" not in crop:
                raise DataError(
                    "a crop came without `shown`",
                    where="column `calls.crops.shown`",
                    fix="send the index in `images` of the picture that shows it; null where none does",
                )


def _check_one_turn(messages: Iterable[Message]) -> None:
    """Check that no turn contains the text of a whole conversation whose calls are missing.

    Raises:
        DataError: With the remedy.
    """
    if any(turn.role == "assistant" and _FLAT.search(turn.content) for turn in messages):
        raise DataError(
            f"a turn of the policy continues after the answer of a tool ({CLOSE} … {ANSWER_OPEN})",
            where="the reply of a request",
            fix="send a `trajectory` with the turns as `messages`, and one entry of `calls` per call, "
            "with its `output`; [] if the policy wrote all of it itself",
        )


def _check_no_calls(sample: Sample, messages: Sequence[Message]) -> None:
    """Check that nothing followed a call in a row without `calls`, which would be scored as no call.

    A call in the policy's last turn got no answer, so it is ignored.

    Raises:
        DataError: With the remedy.
    """
    for turn in messages[:-1]:
        if turn.role == "assistant" and (sample.tools or _CALL.search(turn.content)):
            raise DataError(
                "the conversation continues after a call, but the trajectory has no `calls`"
                if _CALL.search(turn.content)
                else "the sample offers tools, the conversation has several turns, and there are no `calls`",
                where="column `calls`",
                fix="send one for each call, with its `output`; [] where no tool ran",
            )


def _picture(item: Any) -> Row:
    data = item.get("bytes") if isinstance(item, dict) else None
    if not isinstance(data, str):
        raise DataError(
            "a picture came without its bytes", where="column `images`", fix="send `bytes` in base64"
        )
    try:
        decoded = base64.b64decode(data, validate=True)
        return {"bytes": decoded, "path": None, "origin": item.get("origin"), "seen": item.get("seen")}
    except ValueError:  # also for non-ASCII text
        raise DataError("not base64", where="column `images.bytes`", fix="encode the file's bytes") from None
