"""The answer in a reply, field by field, as MEGA-Bench's evaluator parses it.

Source: TIGER-AI-Lab/MEGA-Bench ee324ab, `megabench/metrics/parsing` (`json_parse.py`, `answer_str_parse.py`,
`common/parsers.py`, `common/utils.py`). Upstream's expressions that can take exponential time are scans here
that give the same; it gives up looking for JSON after 0.1 s, and this need not. Nothing is run.
"""

import ast
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

LONGEST, DEEPEST = 100_000, 100
"""Characters of a Python literal and depth of its brackets, ours: what is longer or deeper is refused."""
LONGEST_ART = 10_000
"""Characters from which a drawing loses the white space at its end before fences are looked for."""
JSON, ANSWER, DRAWING, VERBATIM = "json", "answer_string", "ascii_answer_string", "verbatim_answer_string"
PARSERS = (JSON, ANSWER, DRAWING, VERBATIM)
"""`response_parse_function` of a task; `dummy` hands the reply to judges and `constrained_generation`."""

_OPENED = re.compile(r"[(\[{]")
_SIGNS = re.compile(rf"[-+~\s]{{{DEEPEST},}}")
_LINE = re.compile(r"^(?:\*\*Answer:|Answer:)\s*(.+)", re.MULTILINE)
_MARKED = re.compile(r"\*Answer:([^*]*)\*|\bAnswer:(.*)", re.DOTALL)
_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
_SINGLE = re.compile(r"(?<!\w)'|'(?!\w)")
_SPACE = re.compile(r"\s+")
_ONE_LINE = re.compile(r"[a-zA-Z0-9_-]|\([a-zA-Z0-9_-]+\)\Z")
_LANGUAGE = re.compile(r"\w*")
_QUOTES = (('\\"', "__DOUBLE_QUOTE__"), ("\\'", "__SINGLE_QUOTE__"))


def fields_of(reply: str, parser: str, truths: dict[str, Any]) -> dict[str, Any]:
    """Field -> what the reply says of it; a field that it does not name is absent.

    Args:
        reply: The answer.
        parser: One of `PARSERS`; all but `json` are for answers of one field.
        truths: Field -> truth. Where no JSON is found, each field gets the whole reply.
    """
    if parser == JSON:
        found = json_in(reply)
        if isinstance(found, dict) and found:
            return {key: unquoted(value) for key, value in found.items()}
        return dict.fromkeys(truths, reply)
    (name,) = single_fields(truths)
    if parser == ANSWER:
        return {name: answer_string(reply, one_line="\n" not in str(truths[name]))}
    return {name: drawing(reply, keep_space=parser == VERBATIM)}


def single_fields(truths: dict[str, Any]) -> list[str]:
    """The fields that are answered; those that begin with ## are notes."""
    return [name for name in truths if not name.startswith("##")]


def literal(text: Any) -> Any:
    """`ast.literal_eval` of a text within bounds.

    Raises:
        ValueError: If it is no text, has no value, or is longer or deeper than the bounds.
        TypeError: If it holds what cannot be hashed in a set or as a key.
    """
    if not isinstance(text, str):
        raise ValueError("no text")
    if len(text) > LONGEST or _depth(text) > DEEPEST or _SIGNS.search(text):
        raise ValueError("too long or too deep")
    try:
        with warnings.catch_warnings(action="ignore"):  # Python remarks on odd escapes
            return ast.literal_eval(text)
    except (SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _depth(text: str) -> int:
    """Brackets that are open at once, those in strings included."""
    deepest = depth = 0
    if len(_OPENED.findall(text)) <= DEEPEST:
        return 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        deepest = max(deepest, depth)
    return deepest


def unquoted(value: Any) -> Any:
    """A text without the quotes of Python around it; else the value (`evaluate_as_string`)."""
    try:
        found = literal(value)
    except (ValueError, TypeError):
        return value
    return found if isinstance(found, str) else value


def json_in(text: str) -> Any:
    """The last object or list in a text; {} or [] where there is none (`parse_json`)."""
    line = _LINE.search(text)
    content = line[1].strip() if line else text.strip()
    fenced = _fenced(content, "```json")
    content = content if fenced is None else fenced.strip()
    found = [value for candidate in _candidates(content) for value in _readings(candidate)]
    if found:
        return found[-1]
    return [] if content.startswith("[") else {}


def _candidates(text: str) -> Iterator[str]:
    """Stretches in brackets: {…} with its braces balanced, and […] to the last ] that leaves them so."""
    closing: dict[int, int] = {}
    opened: list[int] = []
    for at, char in enumerate(text):
        if char == "{":
            opened.append(at)
        elif char == "}" and opened:
            closing[opened.pop()] = at
    at = barren = 0
    while at < len(text):
        end = None
        if text[at] == "{":
            end = closing.get(at)
        elif text[at] == "[" and at >= barren:
            end, barren = _last_bracket(text, at, closing)
        if end is None:
            at += 1
        else:
            yield text[at : end + 1]
            at = end + 1


def _last_bracket(text: str, at: int, closing: dict[int, int]) -> tuple[int | None, int]:
    """(the last ] before a brace that is not balanced, the place of that brace)."""
    end = None
    while at < len(text) and text[at] != "}":
        if text[at] == "{":
            if at not in closing:
                break
            at = closing[at]
        elif text[at] == "]":
            end = at
        at += 1
    return end, at


def _readings(candidate: str) -> Iterator[Any]:
    """What a stretch is as JSON, and as Python's form of a value."""
    for quote, name in _QUOTES:
        candidate = candidate.replace(quote, name)
    for string in _STRING.findall(candidate):
        content = string[1:-1].replace("__DOUBLE_QUOTE__", '"').replace("__SINGLE_QUOTE__", "'")
        inner = list(_loaded(content))
        if inner and isinstance(inner[0], dict | list):
            candidate = candidate.replace(string, json.dumps(inner[0]))
    for quote, name in _QUOTES:
        candidate = candidate.replace(name, quote)
    found = list(_loaded(candidate))
    yield from found or _loaded(_SINGLE.sub('"', candidate))
    escaped = candidate
    for quote, _ in _QUOTES:
        escaped = escaped.replace(quote, "\\" + quote)
    for form in (candidate, escaped):
        try:
            yield literal(form)
            return
        except (ValueError, TypeError):
            continue


def _loaded(text: str) -> Iterator[Any]:
    try:
        yield json.loads(text)
    except (ValueError, RecursionError):
        return


def answer_string(reply: str, *, one_line: bool) -> str:
    """The answer as text behind the last "Answer:" (`AnswerStrParse`).

    Args:
        reply: The answer.
        one_line: Whether the truth has one line: then what follows a first paragraph is no part of it.
    """
    content = _behind_mark(reply, drawn=False)
    fenced = _fenced(content, "```", language=True)
    if fenced is not None:
        content = fenced.strip()
    elif one_line:
        content = _first_paragraph(content)
    return _as_value(content)


def drawing(reply: str, *, keep_space: bool) -> str:
    """The same of drawings, whose indents count (`AsciiAnswerStrParse`, `VerbatimAnswerStrParse`).

    Args:
        reply: The answer.
        keep_space: Whether white space at the end of its last line counts, too.
    """
    content = _behind_mark(reply, drawn=True)
    content = _without_blank_lines(content)
    content = _cut_lines(content) if keep_space else content.rstrip()
    leading = content[: len(content) - len(content.lstrip())]
    content = content[leading.rfind("\n") + 1 :]
    return _as_value(drawn_in(content, keep_space=keep_space))


def drawn_in(text: str, *, keep_space: bool) -> str:
    """The content of the first fence with its indents, or the text (`extract_code_block_content`)."""
    if not text.strip() or len(text) > LONGEST_ART:
        text = text.rstrip()
    fenced = _fenced(text, "```", language=True)
    if fenced is None:
        return text
    leading = fenced[: len(fenced) - len(fenced.lstrip())]
    fenced = fenced[leading.rfind("\n") + 1 :]
    return _cut_lines(fenced) if keep_space else fenced.rstrip()


def _behind_mark(text: str, *, drawn: bool) -> str:
    """What stands behind the last "Answer:", in stars up to the next star; all where there is none."""
    text = text.replace("answer:", "Answer:")
    last = text.rfind("Answer:")
    if last >= 0:
        text = text[:last].replace("Answer:", "") + text[last:]
    marked = _MARKED.search(text)
    if marked:
        text = (marked[1] if drawn else (marked[1] or "").lstrip()) or marked[2] or ""
    return text if drawn else text.strip()


def _fenced(text: str, fence: str, *, language: bool = False) -> str | None:
    """What stands between a fence and the next, without the name of a language; None without both."""
    start = text.find(fence)
    if start < 0:
        return None
    start += len(fence)
    named = _LANGUAGE.match(text, start) if language else None
    start = named.end() if named else start
    end = text.find("```", start)
    return text[start:end] if end >= 0 else None


def _first_paragraph(text: str) -> str:
    """The first paragraph, where it begins as a word or is one in brackets (`drop_additional_text`)."""
    first = text.split("\n\n")[0].strip()
    return first if _ONE_LINE.match(first) and not _goes_on(text.splitlines()) else text


def _goes_on(lines: Sequence[str]) -> bool:
    """Whether the first line that holds something is followed by no blank one."""
    number = next((number for number, line in enumerate(lines) if line.strip()), None)
    if number is None:
        return False
    return not (number + 1 < len(lines) and not lines[number + 1].strip())


def _without_blank_lines(text: str) -> str:
    """A text with several blank lines in a row made one, and those at its end none."""
    kept, done = [], 0
    for run in _SPACE.finditer(text):
        line = run.start() if run.start() == 0 else text.find("\n", run.start(), run.end()) + 1
        if run.start() and not line:
            continue
        ends = run.end() == len(text)
        if text.count("\n", line, run.end()) < (1 if ends else 2):
            continue
        kept.append(text[done:line])
        done = run.end() if ends else text.rfind("\n", line, run.end())
    return "".join([*kept, text[done:]])


def _cut_lines(text: str) -> str:
    """A text without the blank lines at its end; white space on its last line stays."""
    end = text.find("\n", len(text.rstrip()))
    return text if end < 0 else text[:end]


def _as_value(content: str) -> str:
    """What begins as an object or a list in Python's form of its value, else without quotes."""
    if not content.startswith(("{", "[")):
        return str(unquoted(content))
    found = json_in(content)
    if (found == {} and "{}" not in content) or (found == [] and "[]" not in content):
        return content
    return str(found)
