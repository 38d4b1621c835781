"""`vtune data make passages`: a Wikipedia dump as a corpus for `vtune data index`."""

import json
from pathlib import Path

from vtune.data.wikipedia import passages, read_articles
from vtune.errors import DataError
from vtune.files.writing import atomic_file, check_file_output
from vtune.report.progress import Rows
from vtune.tools.observation import encodable


def make_passages(source: Path, out: Path, *, words: int) -> dict[str, object]:
    """Write passages of articles as JSON lines: `id` (the article's id and a number), `title`, `text`.

    Args:
        source: As in `vtune.data.wikipedia.read_articles`.
        out: File to write; it appears only when complete.
        words: Words per passage.

    Returns:
        `passages` (the file), `articles`, `empty` (articles without a word, left out), `unclosed` (articles
        with markup that is never closed: the rest of its paragraph is left out) and `rows`.

    Raises:
        DataError: If the source cannot be read or has no articles.
        RecipeError: If the file cannot be written.
    """
    check_file_output(out, inputs=[source])
    articles = empty = unclosed = rows = 0
    with (
        atomic_file(out) as partial,
        partial.open("w", encoding="utf-8") as file,
        Rows("articles") as progress,
    ):
        for article in read_articles(source):
            before = rows
            for number, text in enumerate(passages(article, words)):
                row = {
                    "id": f"{encodable(article.id)}/{number}",
                    "title": encodable(article.title),
                    "text": encodable(text),
                }
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                rows += 1
            articles += 1
            empty += rows == before
            unclosed += article.unclosed
            progress.advance()
        if not rows:
            raise DataError(f"no article has a word in {source}", fix="give a dump of articles")
    return {
        "passages": str(out),
        "articles": articles,
        "empty": empty,
        "unclosed": unclosed,
        "rows": rows,
    }
