"""A policy that looks, then answers at random but reproducibly; it logs its requests."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

from tests.rollout.scripted import ScriptedEngine
from vtune.rollout.engine import Completion, Request

LOOK = "<think>I look.<code>print(1)</code>"


class Dice(ScriptedEngine):
    """Answers each rollout with one of the digits of level 1.

    Args:
        policy: The policy whose chat it uses.
        log: Receives `group rollout turn` for every turn.
        seconds: How long a turn takes.
    """

    def __init__(self, policy: Any, log: Path, seconds: float = 0.0, **_: Any) -> None:
        super().__init__(policy.chat, ["never said"])
        self._log = log
        self._seconds = seconds

    async def generate(self, request: Request) -> Completion:
        *_, group, rollout, turn = request.key
        with self._log.open("a") as lines:
            lines.write(f"{group} {rollout} {turn}\n")
        await asyncio.sleep(self._seconds)
        thrown = hashlib.sha256(f"{group} {rollout}".encode()).digest()[0]
        answer = f"<think>So it is.</think><answer>{'12478'[thrown % 5]}</answer>"
        said = LOOK if turn == 0 and request.sampling.stop else answer
        return await ScriptedEngine(self._chat, [said]).generate(request)


def rollouts(log: Path) -> list[tuple[str, str]]:
    """(group, rollout) of every started conversation."""
    if not log.exists():
        return []
    lines = [line.split() for line in log.read_text().splitlines()]
    return [(group, rollout) for group, rollout, turn in lines if turn == "0"]
