"""A vision-language model behind a real server as judge: its input, and the scoring of its replies."""

import asyncio
import dataclasses
from pathlib import Path

from tests.looks.build import SCENE
from tests.reward.build import LEVELS, encode, recipe, sample
from tests.reward.sessions import opened
from tests.vllm.serving import Server
from vtune.judge.client import JudgeClient
from vtune.judge.endpoint import BatchedEndpoint
from vtune.judge.prompts import Prompt
from vtune.reward.recut import recut
from vtune.reward.score import Scorer
from vtune.schema.message import Picture

CROP = "image.crop((130, 80, 242, 164)).save('a.png')"
"""Sides are multiples of the patch size, so the server does not resize pictures."""
DRAWN = "a = cv2.imread(image_path)[80:180, 130:240].copy()\na[:] = 0\n"
DRAWN += "cv2.putText(a, 'score: 1', (5, 60), 0, 0.7, (255, 255, 255), 2)\ncv2.imwrite('a.png', a)"


def endpoint(server: Server, model: Path) -> BatchedEndpoint:
    return BatchedEndpoint(
        base_url=f"{server.url}/v1",
        model=str(model),
        temperature=0.0,
        max_tokens=8,
        concurrency=4,
        retries=0,
        timeout_s=60.0,
        api_key_env=None,
    )


def test_a_real_server_accepts_our_crops_and_a_reply_without_a_level_gives_no_score(
    server: Server, schooled: Path
) -> None:
    """The tiny model writes code whatever it is asked: no level, so no score. A call that shows nothing is
    penalised without asking."""
    judge = endpoint(server, schooled)
    asked = sample(images=(Picture(encode(SCENE)),))
    questions = [dataclasses.replace(asked, id=name) for name in ("crop", "drawn")]
    with opened() as sessions:
        jobs = [(question, [code]) for question, code in zip(questions, (CROP, DRAWN), strict=True)]
        crop, drawn = sessions.trajectories(jobs)
    settings = recipe(judge=judge, evidence=LEVELS, max_unscored=1.0)

    async def story() -> tuple[str, list[float | None]]:
        async with JudgeClient(judge) as client:
            said = await client.ask(Prompt("Reply with a score.", "What is it?"), recut(crop, 0, LEVELS))
        async with Scorer(settings) as scorer:
            scored = await scorer.score(questions, [crop, drawn])
        return said, [one.tool_scores[0] for one in scored]

    said, scores = asyncio.run(story())
    assert isinstance(said, str)
    assert scores[0] is None
    assert scores[1] is not None
    assert scores[1] <= LEVELS.miss
