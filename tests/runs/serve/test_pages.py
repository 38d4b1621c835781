"""The requests on the page of `vtune serve`, sent to services in separate processes."""

import json
import shlex
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.pages import blocks
from tests.served import serving
from vtune.runs.data.indexing import index_passages

PAGE = "cli/serve.md"


def shown(path: str) -> tuple[dict[str, Any], Any]:
    """The body of the request to a path on the page, and the response in the block after it."""
    found = blocks(PAGE)
    (number,) = (number for number, block in enumerate(found) if f"{path} -H" in block)
    (line,) = (words for words in _commands(found[number]) if words[0] == "curl")
    return json.loads(line[line.index("-d") + 1]), json.loads(found[number + 1])


def _commands(block: str) -> list[list[str]]:
    """The command lines of a block; a quoted word may contain line breaks."""
    lines, words = block.splitlines(), []
    while lines:
        text = lines.pop(0)
        while True:
            try:
                words.append(shlex.split(text, comments=True))
                break
            except ValueError:
                text += "\n" + lines.pop(0)
    return words


def answered(url: str, body: dict[str, Any]) -> Any:
    data, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, kind), timeout=60) as reply:
        return json.load(reply)


def test_the_reward_service_answers_as_on_its_page() -> None:
    body, wanted = shown("/score")
    with serving("rewards", "--recipe", "codev-tiny", "--workers", "1") as service:
        assert answered(f"{service.url}/score", body) == wanted


def test_the_search_service_answers_as_on_its_page(tmp_path: Path) -> None:
    body, wanted = shown("/search")
    (passage,) = wanted["results"]
    rows = [
        {"title": passage["title"], "text": passage["text"]},
        {"title": "Jersey", "text": "Its capital is Saint Helier."},
    ]
    corpus = tmp_path / f"{passage['id'].partition('/')[0]}.jsonl"  # the file whose first row it is
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    index_passages(corpus, tmp_path / "index")
    with serving("search", str(tmp_path / "index")) as service:
        found = answered(f"{service.url}/search", body)
    assert found == wanted


def test_a_block_without_an_answer_is_noticed() -> None:
    with pytest.raises(ValueError, match="not enough values"):
        shown("/nothing")
