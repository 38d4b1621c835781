"""A custom environment: a maze, drawn after every move, that rewards reaching the goal."""

import io
import json
from collections.abc import Sequence

from PIL import Image

from vtune.environments import ENVIRONMENTS
from vtune.environments.environment import Act, EnvironmentPart, Episode, Start, Trial, Turn
from vtune.errors import DataError
from vtune.schema.message import Message
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Outcome
from vtune.tools.observation import IMAGE_MARK
from vtune.tools.tool import Mistake, shown

CELL = 28
COLOURS = {"#": (0, 0, 0), ".": (255, 255, 255), "S": (255, 255, 255), "G": (255, 0, 0), "you": (0, 0, 255)}
MOVES = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}


class Maze(Episode):
    """One walk from `S` to `G`."""

    def __init__(self, rows: Sequence[str]) -> None:
        self.cells = {(x, y): cell for y, row in enumerate(rows) for x, cell in enumerate(row)}
        self.place = next(place for place, cell in self.cells.items() if cell == "S")
        self.moves = 0
        rules = f"You are the blue square. Write one of {', '.join(MOVES)} between <move> and </move>."
        self.opening = shown(f"\n{IMAGE_MARK}\n{rules}", [self.drawn()])

    async def observe(self, turn: Turn) -> Sequence[Act] | None:
        """Go one step; the goal ends the walk."""
        named = [move for move in MOVES if f"<move>{move}</move>" in turn.text]
        if len(named) != 1:
            raise Mistake(f"write one of {', '.join(MOVES)} between <move> and </move>")
        dx, dy = MOVES[named[0]]
        place = (self.place[0] + dx, self.place[1] + dy)
        if self.cells.get(place, "#") == "#":
            raise Mistake("there is a wall")
        self.place = place
        self.moves += 1
        if self.cells[place] == "G":
            return None
        seen = shown(f"You went {named[0]}.\n{IMAGE_MARK}", [self.drawn()])
        return [Act(seen, arguments=json.dumps({"move": named[0]}))]

    async def outcome(self) -> Outcome:
        """1 at the goal, else 0."""
        there = self.cells[self.place] == "G"
        return Outcome(float(there), f"{'at' if there else 'not at'} the goal after {self.moves} moves")

    def drawn(self) -> bytes:
        """The maze as PNG."""
        width, height = (max(place[axis] for place in self.cells) + 1 for axis in (0, 1))
        picture, out = Image.new("RGB", (width, height)), io.BytesIO()
        for place, cell in self.cells.items():
            picture.putpixel(place, COLOURS["you" if place == self.place else cell])
        picture.resize((width * CELL, height * CELL), Image.Resampling.NEAREST).save(out, "PNG")
        return out.getvalue()


async def open_maze(start: Start) -> Maze:
    """The maze of a row: its ground truth has the rows, with `/` between them and `#` for walls."""
    sample = start.sample
    return Maze(sample.ground_truth.split("/"))


def check_maze(sample: Sample) -> None:
    """Check that a row has a maze."""
    if sample.ground_truth.count("S") != 1 or not set(sample.ground_truth) <= {"/", *"#.SG"}:
        where = f"sample {sample.id!r}"
        raise DataError(f"{sample.ground_truth!r:.60} is not a maze", where=where, fix="write S../#.G")


SMALL = Sample(
    id="maze/1",
    source="maze",
    prompt=(Message("user", "Go to the red square."),),
    ground_truth="S../#.G",
    verifier="environment_reward",
    environment="maze",
)
WAY = tuple(f"<move>{move}</move>" for move in ("right", "right", "down"))

ENVIRONMENTS.add(
    "maze",
    EnvironmentPart(
        "A maze that is walked by words.",
        open=open_maze,
        judges=True,
        check_sample=check_maze,
        trial=Trial(SMALL, WAY),
    ),
)
