"""The answer in a reply, field by field, as MEGA-Bench's evaluator parses it.

Source: TIGER-AI-Lab/MEGA-Bench ee324ab, `megabench/metrics/parsing` (`json_parse.py`, `answer_str_parse.py`,
`common/parsers.py`, `common/utils.py`). Upstream's regular expressions that can take exponential time are
replaced by scans with the same result; upstream stops looking for JSON after 0.1 s, which is not needed here.
Nothing is executed.
"""

import ast
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

LONGEST, DEEPEST = 100_000, 100
"""Limits on a Python literal's characters and bracket depth; ours: beyond them it is refused."""
LONGEST_ART = 10_000
"""Length in characters from which a drawing loses trailing whitespace before fences are looked for."""
JSON, ANSWER, DRAWING, VERBATIM = "json", "answer_string", "ascii_answer_string", "verbatim_answer_string"
PARSERS = (JSON, ANSWER, DRAWING, VERBATIM)
"""`response_parse_function` of a task; `dummy` passes the reply to judges and `constrained_generation`."""

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
    """Field -> the reply's value for it; a field that the reply does not name is absent.

    Args:
        reply: The answer.
        parser: One of `PARSERS`; all but `json` are for answers with one field.
        truths: Field -> truth. If no JSON is found, each field gets the whole reply.
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
    """The fields to be answered; those that begin with ## are notes."""
    return [name for name in truths if not name.startswith("##")]


def literal(text: Any) -> Any:
    """`ast.literal_eval` of a text within limits.

    Raises:
        ValueError: If it is not text, has no value, or exceeds the limits.
        TypeError: If it contains something unhashable in a set or as a key.
    """
    if not isinstance(text, str):
        raise ValueError("no text")
    if len(text) > LONGEST or _depth(text) > DEEPEST or _SIGNS.search(text):
        raise ValueError("too long or too deep")
    try:
        with warnings.catch_warnings(action="ignore"):  # Python warns about odd escapes
            return ast.literal_eval(text)
    except (SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _depth(text: str) -> int:
    """Maximum number of open brackets, including those in strings."""
    deepest = depth = 0
    if len(_OPENED.findall(text)) <= DEEPEST:
        return 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        deepest = max(deepest, depth)
    return deepest


def unquoted(value: Any) -> Any:
    """A text without Python's quotes around it; any other value unchanged (`evaluate_as_string`)."""
    try:
        found = literal(value)
    except (ValueError, TypeError):
        return value
    return found if isinstance(found, str) else value


def json_in(text: str) -> Any:
    """The last object or list in a text; {} or [] if there is none (`parse_json`)."""
    line = _LINE.search(text)
    content = line[1].strip() if line else text.strip()
    fenced = _fenced(content, "```json")
    content = content if fenced is None else fenced.strip()
    found = [value for candidate in _candidates(content) for value in _readings(candidate)]
    if found:
        return found[-1]
    return [] if content.startswith("[") else {}


def _candidates(text: str) -> Iterator[str]:
    """Substrings in brackets: {…} with balanced braces, and […] up to the last ] that keeps them balanced."""
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
    """(the last ] before an unbalanced brace, the position of that brace)."""
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
    """The values of a substring as JSON and as a Python literal."""
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
    """The answer as text after the last "Answer:" (`AnswerStrParse`).

    Args:
        reply: The answer.
        one_line: Whether the truth has one line: then text after the first paragraph is not part of it.
    """
    content = _behind_mark(reply, drawn=False)
    fenced = _fenced(content, "```", language=True)
    if fenced is not None:
        content = fenced.strip()
    elif one_line:
        content = _first_paragraph(content)
    return _as_value(content)


def drawing(reply: str, *, keep_space: bool) -> str:
    """The same for drawings, in which indentation counts (`AsciiAnswerStrParse`, `VerbatimAnswerStrParse`).

    Args:
        reply: The answer.
        keep_space: Whether whitespace at the end of its last line counts, too.
    """
    content = _behind_mark(reply, drawn=True)
    content = _without_blank_lines(content)
    content = _cut_lines(content) if keep_space else content.rstrip()
    leading = content[: len(content) - len(content.lstrip())]
    content = content[leading.rfind("\n") + 1 :]
    return _as_value(drawn_in(content, keep_space=keep_space))


def drawn_in(text: str, *, keep_space: bool) -> str:
    """The content of the first fence with its indentation, or the text (`extract_code_block_content`)."""
    if not text.strip() or len(text) > LONGEST_ART:
        text = text.rstrip()
    fenced = _fenced(text, "```", language=True)
    if fenced is None:
        return text
    leading = fenced[: len(fenced) - len(fenced.lstrip())]
    fenced = fenced[leading.rfind("\n") + 1 :]
    return _cut_lines(fenced) if keep_space else fenced.rstrip()


def _behind_mark(text: str, *, drawn: bool) -> str:
    """The text after the last "Answer:" (in asterisks, up to the next one); all of it without a mark."""
    text = text.replace("answer:", "Answer:")
    last = text.rfind("Answer:")
    if last >= 0:
        text = text[:last].replace("Answer:", "") + text[last:]
    marked = _MARKED.search(text)
    if marked:
        text = (marked[1] if drawn else (marked[1] or "").lstrip()) or marked[2] or ""
    return text if drawn else text.strip()


def _fenced(text: str, fence: str, *, language: bool = False) -> str | None:
    """The text between a fence and the next, without the name of a language; None if either is missing."""
    start = text.find(fence)
    if start < 0:
        return None
    start += len(fence)
    named = _LANGUAGE.match(text, start) if language else None
    start = named.end() if named else start
    end = text.find("```", start)
    return text[start:end] if end >= 0 else None


def _first_paragraph(text: str) -> str:
    """The first paragraph, if it begins with a word or is one in brackets (`drop_additional_text`)."""
    first = text.split("\n\n")[0].strip()
    return first if _ONE_LINE.match(first) and not _goes_on(text.splitlines()) else text


def _goes_on(lines: Sequence[str]) -> bool:
    """Whether the first non-blank line is not followed by a blank one."""
    number = next((number for number, line in enumerate(lines) if line.strip()), None)
    if number is None:
        return False
    return not (number + 1 < len(lines) and not lines[number + 1].strip())


def _without_blank_lines(text: str) -> str:
    """A text with consecutive blank lines collapsed to one, and trailing ones removed."""
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
    """A text without trailing blank lines; whitespace at the end of its last line stays."""
    end = text.find("\n", len(text.rstrip()))
    return text if end < 0 else text[:end]


def _as_value(content: str) -> str:
    """What begins like an object or a list, as Python prints its value; otherwise the text without quotes."""
    if not content.startswith(("{", "[")):
        return str(unquoted(content))
    found = json_in(content)
    if (found == {} and "{}" not in content) or (found == [] and "[]" not in content):
        return content
    return str(found)
