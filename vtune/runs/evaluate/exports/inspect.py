"""Inspect's log: one `.eval` file, which `inspect view` shows and `read_eval_log` reads.

It is a zip with one JSON document per rollout, so that only one is in memory at a time; `inspect log convert`
turns it into `.json`. Inspect itself need not be installed.

Source: inspect_ai 0.3.285, `inspect_ai/log/_log.py` and `log/_recorders/eval.py` (format version 2).
"""

import base64
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from vtune.files.json_text import parse_json
from vtune.runs.evaluate.exports.rows import (
    Pictures,
    Row,
    compact,
    ended,
    kind_of,
    model_of,
    task_of,
)
from vtune.runs.evaluate.finished import Finished
from vtune.schema.message import IMAGE, Message
from vtune.schema.trajectory import Call, StopReason, Trajectory
from vtune.view.turns import calls_by_turn

VERSION = 2
_STOPPED: dict[StopReason, str] = {"answer": "stop", "length": "max_tokens", "context": "model_length"}
"""Why a conversation ended, in inspect's terms; `unknown` for other reasons."""
_LARGE = 100_000
"""Maximum number of characters of an open answer or a reason in the summary line; ours."""


def export(finished: Finished, out: Path) -> dict[str, Any]:
    """Write the log; every rollout is an epoch of its question, and a failed one has an `error`.

    Tool calls have inspect's form (`tool_calls`, and a turn of the role `tool` with what the policy was
    shown) if it is recorded which turn made them; all of them are in `metadata.calls`. Pictures are in the
    messages, as data URLs.
    """
    pictures = Pictures(finished, out)
    numbers = {name: number for number, name in enumerate(finished.samples)}
    name = (
        f"{ended(finished).strftime('%Y-%m-%dT%H-%M-%S')}_{task_of(finished, {})}_{model_of(finished)}.eval"
    )
    summaries: list[dict[str, Any]] = []
    failed = 0
    with zipfile.ZipFile(out / name, "w", zipfile.ZIP_DEFLATED) as log:
        log.writestr("_journal/start.json", compact({"version": VERSION, **_asked(finished)}))
        for trajectory in finished.trajectories():
            question = finished.samples[trajectory.sample_id]
            asked = finished.questions[question.id]
            row = Row(numbers[question.id], question, trajectory, asked, trajectory.reply)
            sample = _sample(finished, row, pictures)
            failed += "error" in sample
            log.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", compact(sample))
            summaries.append(_summary(sample))
        log.writestr("summaries.json", compact(summaries))
        header = {"version": VERSION, "status": "success", **_asked(finished)}
        header |= {"results": _results(finished, len(summaries), failed), "stats": _stats(finished)}
        log.writestr("header.json", compact(header))
    return {"files": [name], "rows": len(summaries), "left_out": 0, "pictures": 0}


def _asked(finished: Finished) -> dict[str, Any]:
    """The parts `eval` and `plan`: what was evaluated, and how."""
    results, suite = finished.results, finished.suite
    task, model = task_of(finished, {}), str(results["model"])
    return {
        "eval": {
            "eval_id": f"{task}-{ended(finished).timestamp():.0f}",
            "run_id": f"{task}-{ended(finished).timestamp():.0f}",
            "created": ended(finished).isoformat(),
            "task": task,
            "task_id": task,
            "dataset": {
                "name": task,
                "location": ", ".join(suite.data),
                "samples": len(finished.samples),
                "shuffled": suite.choices is not None and isinstance(suite.choices.order, int),
            },
            "model": model,
            "model_generate_config": {
                "temperature": suite.rollout.temperature,
                "max_tokens": suite.rollout.max_new_tokens,
            },
            "config": {"epochs": suite.rollouts, "limit": results.get("limit")},
            "packages": {"vtune": str(results["environment"].get("packages", {}).get("vtune", ""))},
            "metadata": {"protocol": suite.protocol, "agent": suite.agent, "suite": results["suite"]},
            "scorers": [{"name": suite.protocol, "metrics": [{"name": suite.scorer}]}],
        },
        "plan": {"name": "plan", "steps": [{"solver": suite.agent or "agent", "params": {}}]},
    }


def _stats(finished: Finished) -> dict[str, Any]:
    return {"completed_at": ended(finished).isoformat()}


def _results(finished: Finished, count: int, failed: int) -> dict[str, Any]:
    score = finished.results["score"]
    numbers = {key: value for key, value in score.items() if isinstance(value, int | float)}
    metrics = {key: {"name": key, "value": value} for key, value in numbers.items()}
    suite = finished.suite
    return {
        "total_samples": count,
        "completed_samples": count - failed,
        "scores": [{"name": suite.protocol, "scorer": suite.protocol, "metrics": metrics}],
    }


def _sample(finished: Finished, row: Row, pictures: Pictures) -> dict[str, Any]:
    """A rollout as inspect's `EvalSample`."""
    trajectory, sample = row.trajectory, row.sample
    messages = list(_messages(trajectory, pictures))
    first = next((n for n, one in enumerate(messages) if one["role"] == "assistant"), len(messages))
    last = next((one for one in reversed(messages) if one["role"] == "assistant"), None)
    found: dict[str, Any] = {
        "id": sample.id,
        "epoch": trajectory.rollout + 1,
        "input": messages[:first] or row.question,
        "choices": list(sample.choices) or None,
        "target": sample.ground_truth,
        "messages": messages,
        "output": {"model": str(finished.results["model"]), "choices": []},
        "scores": _scores(finished, trajectory),
        "metadata": {
            "source": sample.source,
            **{key: value for key, value in sample.extra.items() if isinstance(value, str | int | float)},
            "stop_reason": trajectory.stop_reason,
            "calls": [_call(call) for call in trajectory.calls],
        },
    }
    if last is not None:
        stop = _STOPPED.get(trajectory.stop_reason, "unknown")
        found["output"]["choices"] = [{"message": last, "stop_reason": stop}]
    if trajectory.stop_reason == "error":
        why = trajectory.reward.why if trajectory.reward is not None else "the rollout failed"
        found["error"] = {"message": why, "traceback": why, "traceback_ansi": why}
    return found


def _summary(sample: dict[str, Any]) -> dict[str, Any]:
    """A rollout's line in the viewer's list, without pictures and turns."""
    asked = sample["input"]
    if not isinstance(asked, str):
        parts = asked[-1]["content"]
        asked = parts if isinstance(parts, str) else "".join(part.get("text", "") for part in parts)
    kept = {key: value for key, value in sample["metadata"].items() if key != "calls"}
    return {
        "id": sample["id"],
        "epoch": sample["epoch"],
        "input": asked[:_LARGE],
        "choices": sample["choices"],
        "target": sample["target"],
        "metadata": kept,
        "scores": sample["scores"],
        "error": sample["error"]["message"] if "error" in sample else None,
        "completed": True,
        "message_count": len(sample["messages"]),
    }


def _scores(finished: Finished, trajectory: Trajectory) -> dict[str, Any] | None:
    reward = trajectory.reward
    if reward is None or reward.accuracy is None:
        return None
    score = {
        "value": reward.accuracy,
        "answer": trajectory.answer,
        "explanation": reward.why,
        "metadata": dict(reward.parts),
    }
    return {finished.suite.protocol: score}


def _call(call: Call) -> dict[str, Any]:
    return {
        "tool": call.tool,
        "arguments": call.arguments,
        "status": call.status,
        "error": call.error,
        "output": call.output,
        "seconds": call.seconds,
    }


def _messages(trajectory: Trajectory, pictures: Pictures) -> Iterator[dict[str, Any]]:
    """The turns, with tool turns in inspect's form."""
    made = calls_by_turn(trajectory, guess=False)
    answered: Sequence[int] = ()
    written = False
    for number, turn in enumerate(trajectory.messages):
        if turn.role == "assistant":
            written, answered = True, made[number]
            calls = [_tool_call(index, trajectory.calls[index]) for index in answered]
            said = {"role": "assistant", "content": turn.content, "source": "generate"}
            yield said | ({"tool_calls": calls} if calls else {})
            continue
        content = _content(turn, trajectory, pictures)
        if turn.role == "user" and answered:
            for place, index in enumerate(answered):
                # The turn answers all of the calls; the first gets its text verbatim.
                yield _tool_turn(index, trajectory.calls[index], content if place == 0 else "")
            answered = ()
        else:
            yield {"role": turn.role, "content": content} | ({} if written else {"source": "input"})


def _tool_call(number: int, call: Call) -> dict[str, Any]:
    try:
        arguments = parse_json(call.arguments)
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        arguments = {"arguments": call.arguments}
    return {"id": f"call-{number}", "function": call.tool, "arguments": arguments, "type": "function"}


def _tool_turn(number: int, call: Call, content: Any) -> dict[str, Any]:
    turn = {"role": "tool", "content": content, "tool_call_id": f"call-{number}", "function": call.tool}
    if call.status == "ok":
        return turn
    kind = {"timeout": "timeout", "limit": "limit", "blocked": "permission"}.get(call.status, "unknown")
    return turn | {"error": {"type": kind, "message": call.error or call.status}}


def _content(turn: Message, trajectory: Trajectory, pictures: Pictures) -> str | list[dict[str, Any]]:
    """The text of a turn, with its pictures at their marks."""
    if not turn.images:
        return turn.content
    parts: list[dict[str, Any]] = []
    texts = turn.content.split(IMAGE)
    for text, index in zip(texts, [*turn.images, None], strict=False):
        if text:
            parts.append({"type": "text", "text": text})
        if index is not None:
            data = pictures.encoded(trajectory.images[index])
            encoded = base64.b64encode(data).decode()
            parts.append({"type": "image", "image": f"data:image/{kind_of(data)};base64,{encoded}"})
    return parts
