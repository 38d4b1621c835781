"""The cost of a turn that comes from another process of a tensor-parallel group.

`python -m tests.bench.bench_tensor_parallel`: CPU milliseconds per turn, both ends together, for groups of
rollouts with a picture of 3 MP in every turn. Nothing is generated.
"""

import asyncio
import os
import tempfile
import time
from pathlib import Path

from PIL import Image

from vtune.rollout.submission import Answer
from vtune.rollout.tensor_parallel import Turn, TurnClient, TurnServer

PROMPTS, GROUP, TURNS = 4, 8, 4
SIZE = (2000, 1500)


async def draw(turn: Turn, images: list[Image.Image]) -> Answer:
    return Answer([1], [1], [-0.5], "length", None, [("vtune-1", 1)])


async def spent(address: Path) -> float:
    """CPU seconds for all turns."""
    pictures = [(SIZE, os.urandom(3 * SIZE[0] * SIZE[1])) for _ in range(PROMPTS)]
    server, client = TurnServer(address, draw), TurnClient(address)
    await server.open()
    await client.open()
    began = time.process_time()
    for turn in range(TURNS):
        await asyncio.gather(
            *(
                client.ask(Turn(f"{turn}-{prompt}-{rollout}", [1], (pictures[prompt],), (str(prompt),), {}))
                for prompt in range(PROMPTS)
                for rollout in range(GROUP)
            )
        )
    taken = time.process_time() - began
    await client.close()
    await server.close()
    return taken


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        taken = asyncio.run(spent(Path(folder) / "turns"))
    print(f"{1000 * taken / (PROMPTS * GROUP * TURNS):.1f} ms a turn")


if __name__ == "__main__":
    main()
