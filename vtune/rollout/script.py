"""`scripted:FILE`: a policy whose replies are read from a file, by question and turn.

A JSON object per line: `id` of the question; `turns`, what the policy writes in each of its turns, empty for
a rollout that fails; `rollout`, the number of the rollout (if omitted: all that have no line of their own);
`cut`, where the conversation was cut: `turn` if its last turn reached its token limit, `context` if there was
no room for the tool output.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from vtune.errors import DataError, ServiceError, nearest
from vtune.files.json_text import parse_json
from vtune.files.reading import open_input, read_lines
from vtune.models.served import SCRIPTED
from vtune.rollout.engine import Completion, Engine, Finish, Request, Weights

SHAPE = 'write a JSON object per line: {"id": "vstar/0", "turns": ["<answer>A</answer>"]}'

Cut = Literal["turn", "context"]
FULL = 2**40
"""Number of tokens that leaves no room in a conversation, whatever `rollout.max_tokens` is."""

Key = tuple[str, int | None]
"""(question, number of the rollout; None: all others)."""


@dataclass(frozen=True, slots=True)
class Line:
    """The contents of a line."""

    turns: tuple[str, ...]
    cut: Cut | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """The contents of a script file."""

    path: Path
    lines: dict[Key, Line]

    def of(self, question: str, rollout: int) -> Line | None:
        """The line for a rollout; None if the file has none."""
        return self.lines.get((question, rollout), self.lines.get((question, None)))

    def check(self, questions: Collection[str], rollouts: int) -> list[str]:
        """Check that every rollout of a suite has its turns.

        Returns:
            Ids in the file that match no question.

        Raises:
            DataError: If a rollout has no line; one of those ids may be its question's, misspelt.
        """
        missing = [name for name in questions for n in range(rollouts) if self.of(name, n) is None]
        asked = set(questions)
        unknown = list(dict.fromkeys(question for question, _ in self.lines if question not in asked))
        if missing:
            hint = f"; {nearest(missing[0], unknown[:1000])}" if unknown else ""
            raise DataError(
                f"{len(missing)} rollout(s) have no line, the first of question {missing[0]!r}",
                where=str(self.path),
                fix=f"{SHAPE}{hint}",
            )
        return unknown


def read_script(model: str) -> Script:
    """The script that `scripted:FILE` names.

    Raises:
        DataError: If the file cannot be read, or a line is malformed.
    """
    path = Path(model.removeprefix(SCRIPTED))
    found: dict[Key, Line] = {}
    try:
        with open_input(path) as stream:
            for number, line in enumerate(read_lines(stream)):
                if line.strip():
                    key, said = _line(line, f"{path}, row {number}")
                    if key in found:
                        raise DataError(
                            f"question {key[0]!r} has two lines for the same rollout",
                            where=f"{path}, row {number}",
                            fix="number them with `rollout`, from 0",
                        )
                    found[key] = said
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", fix="check the path") from None
    return Script(path, found)


def _line(line: bytes, where: str) -> tuple[Key, Line]:
    try:
        row: Any = parse_json(line)
    except ValueError as error:
        raise DataError(f"not JSON: {error}", where=where, fix=SHAPE) from None
    row = row if isinstance(row, dict) else {}
    question, turns, rollout = row.get("id"), row.get("turns"), row.get("rollout")
    texts = isinstance(turns, list) and all(isinstance(turn, str) for turn in turns)
    number = rollout is None or (isinstance(rollout, int) and not isinstance(rollout, bool) and rollout >= 0)
    if not isinstance(question, str) or not texts or not number:
        raise DataError("not the turns of a question", where=where, fix=SHAPE)
    assert isinstance(turns, list)
    cut = row.get("cut")
    if cut is not None and (cut not in get_args(Cut) or not turns):
        known = " or ".join(get_args(Cut))
        raise DataError(f"`cut` is {cut!r}", where=where, fix=f"write {known}, beside turns, or leave it out")
    return (question, rollout), Line(tuple(turns), cut)


class ScriptEngine(Engine):
    """Takes turns from a script. It has no tokens; a turn is cut after its first stop text."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def generate(self, request: Request) -> Completion:
        """The script's turn for this point of the conversation.

        Raises:
            ServiceError: If there is none.
        """
        *_, rollout, turn = request.key
        line = self._script.of(request.question, rollout) or Line(())
        turns = line.turns
        if turn >= len(turns):
            raise ServiceError(
                f"the script has {len(turns)} turn(s) of question {request.question!r}, but the "
                f"conversation came to turn {turn + 1}",
                where=str(self._script.path),
                fix="write it, or let an earlier turn end the conversation",
            )
        text = turns[turn]
        stops = [text.find(stop) + len(stop) for stop in request.sampling.stop if stop in text]
        text = text[: min(stops)] if stops else text
        cut = line.cut if turn == len(turns) - 1 else None
        finish: Finish = "length" if cut == "turn" else "stop" if stops else "end"
        return Completion((), (), finish, (), text=text, context=FULL if cut == "context" else 0)

    async def take(self, weights: Weights, version: int) -> None:
        """Refuse: a script cannot be trained.

        Raises:
            ServiceError: Always.
        """
        raise ServiceError("weights cannot be given to a script", fix="train a model")

    async def rest(self) -> None:
        """Does nothing: no device is used."""

    async def aclose(self) -> None:
        """Does nothing: nothing was started."""
