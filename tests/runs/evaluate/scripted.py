"""Evaluations of scripted policies on files in the layout of benchmarks."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.runs.commands import Ended, vtune
from vtune.config import find, load_recipe
from vtune.models.chat import Chat
from vtune.rollout.engine import Completion, Request, Weights
from vtune.runs.evaluate.questions import read_records
from vtune.runs.evaluate.suite import EvalSuite
from vtune.schema.sample import Sample

LOOK = (
    '<think>look</think>\n<tool_call>{"name": "image_zoom_in_tool", '
    '"arguments": {"bbox_2d": [20, 20, 200, 150], "label": "sign", "img_idx": 0}}</tool_call>'
)
"""A turn of agent `zoom` that looks at the target of `make_vstar`, in a picture of 300 x 200."""


class Saying:
    """Answers the questions of a suite in order, whatever is asked."""

    cohorts = 1

    def __init__(self, chat: Chat, replies: list[str]) -> None:
        self._chat = chat
        self._replies = replies

    def join(self, cohort: int) -> None:
        """Nothing to wait for."""

    def leave(self, cohort: int) -> None:
        """Nothing to wait for."""

    async def generate(self, request: Request) -> Completion:
        ids = [*self._chat.words(self._replies[request.key[2]]), self._chat.end_id]
        return Completion(tuple(ids), (0.0,) * len(ids), "end", (0,) * len(ids))

    async def take(self, weights: Weights, version: int) -> None:
        """The words stay the same."""

    async def rest(self) -> None:
        """Nothing to give back."""

    async def aclose(self) -> None:
        """Nothing to end."""


def asked(suite: str, data: Path, *more: str) -> list[Sample]:
    """The questions of a suite on other data."""
    words = [f"data=[{data}]", "published.md5=null", *more]
    return list(read_records(load_recipe(find(suite, "eval_suites"), EvalSuite, words)))


def write_script(path: Path, replies: Mapping[str, Sequence[str]]) -> str:
    """Write a file of replies; return the name of the model."""
    lines = [json.dumps({"id": name, "turns": list(turns)}) + "\n" for name, turns in replies.items()]
    path.write_text("".join(lines))
    return f"scripted:{path}"


def evaluate(suite: str | Path, model: str, data: Path, out: Path, *more: str) -> Ended:
    words = ["--suite", str(suite), "--model", model, "--data", str(data), "--out", str(out)]
    return vtune("eval", *words, "--set", "published.md5=null", *more, "--json")


def evaluated(suite: str | Path, model: str, data: Path, out: Path, *more: str) -> dict[str, Any]:
    """The results of an evaluation that succeeds."""
    ended = evaluate(suite, model, data, out, *more)
    assert ended.code == 0, ended.err
    found: dict[str, Any] = json.loads(ended.out)
    return found
