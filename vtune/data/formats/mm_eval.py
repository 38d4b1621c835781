"""An mm-eval folder: rows as in their source, with `metadata.json` to explain the columns."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from vtune.data.formats import specimens_search
from vtune.data.formats.building import Found, Options, each
from vtune.data.formats.questions import question_sample
from vtune.data.formats.source import Place, Raw, files, read_json, read_rows
from vtune.data.formats.table import FORMATS, Format
from vtune.data.formats.values import needed, plain, text_of
from vtune.errors import DataError
from vtune.schema.fields import Row, wrong
from vtune.schema.message import IMAGE
from vtune.schema.sample import Sample
from vtune.schema.source_names import named_by

FILE = "metadata.json"
MAPPING, TEMPLATE = "mapping_from_source", "prompt_template"
_NEEDED, _OPTIONAL = ("question", "answer"), ("media", "id", "options", "extra")
_JINJA = ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The contents of the file."""

    question: str
    answer: str
    media: tuple[str, ...]
    id: str | None
    options: str | None
    extra: tuple[str, ...]
    """Additional columns to keep."""
    template: jinja2.Template | None
    """Builds the user's turn from a row's columns, `question` and `options`; None: the question unchanged."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The metadata of a folder.

        Raises:
            DataError: If it is missing or invalid.
        """
        file = folder / FILE
        if not file.is_file():
            raise DataError(f"no {FILE} in {folder}", fix="give the folder of an mm-eval benchmark")
        content = read_json(file)
        found = content.get(MAPPING) if isinstance(content, dict) else None
        if not isinstance(found, dict):
            raise DataError(f"it has no `{MAPPING}`", where=str(file), fix='write {"question": column, …}')
        known = (*_NEEDED, *_OPTIONAL)
        if unknown := sorted(set(found) - set(known)):
            what = f"`{MAPPING}` has `{unknown[0]}`"
            raise DataError(what, where=str(file), fix=f"it maps {', '.join(known)}")
        if missing := [name for name in _NEEDED if not found.get(name)]:
            raise DataError(f"`{MAPPING}` has no `{missing[0]}`", where=str(file), fix="name its column")
        columns = {name: _columns(name, found.get(name), file) for name in known}
        return cls(
            question=columns["question"][0],
            answer=columns["answer"][0],
            media=columns["media"],
            id=next(iter(columns["id"]), None),
            options=next(iter(columns["options"]), None),
            extra=columns["extra"],
            template=_template(content.get(TEMPLATE), file),
        )


def read_mm_eval(path: Path, options: Options) -> Iterator[Found]:
    """Samples of a folder with `metadata.json`: one entry per row of its Parquet, JSON lines and JSON."""
    says = Metadata.read(path)
    source = named_by(path.resolve().name)
    return each(_rows(path), partial(_convert, says=says, options=options, source=source))


def _convert(row: Row, place: Place, *, says: Metadata, options: Options, source: str) -> Sample:
    shown = [item for name in says.media for item in _items(row.get(name))]
    asked = _asked(row, says, len(shown))
    kept = {name: row[name] for name in says.extra if name in row}
    own = {"question": asked, "answer": needed(row, says.answer), "media": shown or None}
    listed = {} if says.options is None else {"options": row.get(says.options)}
    number = {} if says.id is None else {"id": needed(row, says.id)}
    return question_sample(
        kept | own | listed | number,
        place,
        options,
        source=source,
        question=("question",),
        answer=("answer",),
        images=("media",),
        choices=("options",),
        identity=("id",),
    )


def _asked(row: Row, says: Metadata, count: int) -> str:
    """The user's turn, with its pictures first if the text has no marks."""
    question = text_of(says.question, needed(row, says.question))
    if says.template is None:
        return question
    # The prompt template must not see the answer.
    columns = {key: value for key, value in row.items() if key != says.answer}
    given: dict[str, Any] = {"question": question}
    if says.options is not None:
        given["options"] = row.get(says.options)
    try:
        text = says.template.render(plain(columns) | given)
    except (jinja2.TemplateError, TypeError, ValueError) as error:
        fix = f"correct `{TEMPLATE}`, or set it to null to ask the question as it stands"
        raise wrong(TEMPLATE, f"the prompt cannot be made: {error}", fix) from None
    return text if IMAGE in text else f"{IMAGE}\n" * count + text


def _rows(folder: Path) -> Iterator[Raw]:
    for file, _ in files(folder):
        if file.name != FILE:
            yield from read_rows(file)


def _items(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _columns(name: str, value: Any, file: Path) -> tuple[str, ...]:
    names = [] if value is None else value if isinstance(value, list) else [value]
    one = name not in ("media", "extra")
    if not all(isinstance(column, str) and column for column in names) or (one and len(names) > 1):
        wanted = "the name of a column" if one else "a column, or a list of them"
        raise DataError(f"`{MAPPING}.{name}` is {value!r:.60}", where=str(file), fix=f"write {wanted}")
    return tuple(names)


def _template(text: Any, file: Path) -> jinja2.Template | None:
    if text is None or text == "":
        return None
    try:
        return _JINJA.from_string(text)
    except (jinja2.TemplateError, TypeError, AttributeError) as error:
        raise DataError(
            f"`{TEMPLATE}` is not a template: {error}", where=str(file), fix="see Jinja"
        ) from None


FORMATS.add(
    "mm_eval",
    Format(
        read_mm_eval,
        "folder of mm-eval, with its metadata.json",
        aliases=("mm-eval",),
        specimen=specimens_search.mm_eval,
    ),
)
