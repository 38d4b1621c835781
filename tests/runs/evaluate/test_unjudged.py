"""Advice for replies that remain without a grade."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.judge.server import JsonHandler
from tests.judge.test_client import PROMPT
from tests.listening import listening
from tests.reward.build import sample
from vtune.errors import RunFailed
from vtune.protocols.protocol import Ask, Grade, Judging, Rule, said
from vtune.runs.evaluate.judged import Grader, Reply, check_judged, grade_replies
from vtune.runs.evaluate.unjudged import UNJUDGED, enough
from vtune.schema.sample import Sample


def test_the_advised_share_is_the_smallest_that_suffices() -> None:
    for total in range(1, 301):
        for left in range(1, total + 1):
            found = enough(left, total)
            assert left <= float(f"{found:g}") * total
            assert left / total <= found + 1e-9 < left / total + 0.02
            assert found <= 1
    assert (enough(9, 100), enough(29, 100), enough(1, 3)) == (0.09, 0.3, 0.34)


def test_a_grader_that_replied_only_in_thoughts_is_reported_with_a_fix(tmp_path: Path) -> None:
    class Handler(JsonHandler):
        def post(self) -> None:
            self.body()
            self.reply({"choices": [{"message": {"content": None, "reasoning_content": "so"}}]})

    def judge(text: str, sample: Sample) -> Judging:
        right = yield Ask(prompt=PROMPT, read=lambda _: None, wanted="TRUE or FALSE")
        return said(text, right=right)

    def by_rule(text: str, sample: Sample) -> Grade:
        return said(text, right=False)

    rule = Rule(ask=None, grade=by_rule, scorer=None, judge=judge)
    replies = [Reply(key=("q/1", 0), text="7", sample=sample())]
    with listening(Handler) as port:
        grader = Grader(base_url=f"http://127.0.0.1:{port}/v1", model="m", api_key_env=None)
        graded = asyncio.run(grade_replies(replies, rule, grader, tmp_path))
    with pytest.raises(RunFailed) as error:
        check_judged(graded, 0.0, tmp_path)
    remedy = "came as thoughts (`reasoning_content`); serve it without a reasoning parser"
    assert remedy in error.value.where
    assert remedy in json.loads((tmp_path / UNJUDGED).read_text())["why"]
    assert "what the present `grader` has said of the other replies is kept" in error.value.fix
