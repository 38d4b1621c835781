"""Values as datasets publish them, read leniently: pictures, texts, conversations, options."""

import base64
import binascii
import contextlib
import datetime
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from string import ascii_uppercase
from typing import Any
from urllib.request import url2pathname

from vtune.data.folders import within
from vtune.errors import DataError
from vtune.files.json_text import parse_json
from vtune.files.reading import read_bytes
from vtune.schema.fields import Row, mistyped, wrong
from vtune.schema.heads import NoHead, read_head
from vtune.schema.message import IMAGE, Picture
from vtune.schema.pixels import REMEDY, Refused, examine, size_of

_OPTION = re.compile(r"^[ \t]*(?:\(([A-Z])\)|([A-Z])[.):])[ \t]*(\S.*?)[ \t]*$", re.MULTILINE)
"""`(A) rubber`, `A. rubber`, `A) rubber` or `A: rubber`, on a line of its own."""
PICTURED = ("image", "image_url")
"""Types of turn parts that are pictures."""
_PATH = 4096
"""Longest text that is looked up as a path on disk; a picture in base64 is longer."""
_NAME = 255
"""Longest file name; base64 that is no longer than this must begin like a picture to count as one."""
_ENDINGS = (".jpg", ".JPG", ".jpeg", ".JPEG", ".png", ".PNG", ".webp", ".WEBP")
"""File endings to try for pictures that are named only by their ids."""


def first(row: Mapping[str, Any], *names: str) -> Any:
    """The value of the first column that exists and is not null; None if there is none."""
    return next((row[name] for name in names if row.get(name) is not None), None)


def needed(row: Mapping[str, Any], *names: str, of: str = "") -> Any:
    """The same, but required.

    Args:
        row: Column -> value, or the members of a struct.
        names: One of these must be there.
        of: The column that they are members of; empty if they are columns.

    Raises:
        DataError: Names the columns that were looked for and those that exist.
    """
    value = first(row, *names)
    if value is None:
        held = ", ".join(key for key in row if row[key] is not None)
        what = f"no value for {names[0]}" if len(names) == 1 else f"none of {', '.join(names)}"
        if of:
            raise wrong(f"{of}.{names[0]}", f"`{of}` has {what}", f"it has {held or 'no values'}")
        raise wrong(names[0], f"the row has {what}", f"it has {held or 'no values'}")
    return value


def struct_of(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A struct of a row; an empty one if it is null.

    Raises:
        DataError: If it is something else.
    """
    value = row.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise mistyped(name, value, "a struct")
    return value


def has_objects(row: Mapping[str, Any]) -> bool:
    """Whether names or boxes are stored apart from the turns, in ms-swift's `objects`, {ref, bbox}."""
    held = row.get("objects")
    # In Parquet it is a struct of nulls if other rows have some.
    return any(held.values()) if isinstance(held, Mapping) else bool(held)


def text_of(column: str, value: Any) -> str:
    """A text; a number becomes text as a person would write it.

    Raises:
        DataError: If it is neither.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise mistyped(column, value, "a text or a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise mistyped(column, None, "a text or a number")
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def pictures(column: str, value: Any, base: Path) -> tuple[Picture, ...]:
    """Encoded pictures, each checked to open, from whatever a column holds.

    Args:
        column: Its name, for errors.
        value: Bytes, {bytes, path}, a path, base64, a data or file URI; a list of these; or such a list as
            JSON text, as in text tables.
        base: The folder that paths are relative to.

    Returns:
        Pictures with their bytes, and with their path if the row gave one.

    Raises:
        DataError: If one is missing or does not open.
    """
    found = encoded_pictures(column, value, base)
    for picture in found:
        seen_to_open(column, picture)
    return found


def encoded_pictures(column: str, value: Any, base: Path) -> tuple[Picture, ...]:
    """The same without opening them: a benchmark's pictures are opened only when they are shown.

    Raises:
        DataError: If one is missing.
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        with contextlib.suppress(ValueError):  # otherwise it is a path
            value = parse_json(value)
    items = [] if value is None else value if isinstance(value, list) else [value]
    return tuple(_picture(column, item, base) for item in items)


def pictures_asked(column: str, beside: Any, turns: Any, base: Path) -> tuple[Picture, ...]:
    """The pictures of a question, from a column or from the parts of its turns.

    Args:
        column: Name of the column, for errors.
        beside: The column's value (see `pictures`).
        turns: The question's turns (see `conversation`).
        base: The folder that paths are relative to.

    Raises:
        DataError: If both hold pictures, but different numbers of them, or if one is missing or does not
            open.
    """
    inside = pictures_within(turns)
    if inside and isinstance(beside, list) and len(beside) == len(inside):
        return pictures(column, beside, base)  # duplicates: verl copies the column's pictures into the turns
    if inside and beside:
        raise wrong(column, "pictures are given both in the turns and beside them", "keep one of the two")
    return pictures(column, inside or beside, base)


def pictures_within(turns: Any) -> list[Any]:
    """The pictures in the parts of turns, in order; empty for turns that are text."""
    listed = _parsed_turns(turns) if isinstance(turns, str) else turns
    turns = listed if isinstance(listed, list) else ()  # `conversation` rejects anything else
    contents = [turn.get("content") for turn in turns if isinstance(turn, Mapping)]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return [held for part in parts if isinstance(part, Mapping) for held in pictures_of_part(part)]


def pictures_of_part(part: Mapping[str, Any]) -> list[Any]:
    """The picture in a part {type: image} or {type: image_url}; empty if the part is only a mark."""
    if part.get("type") not in PICTURED:
        return []
    held = first(part, "image", "image_url", "path", "url")
    held = held.get("url") if part["type"] == "image_url" and isinstance(held, Mapping) else held
    return [] if held is None else [held]


def picture_size(picture: Picture) -> tuple[int, int]:
    """Width and height in pixels of a picture that holds its bytes.

    Raises:
        DataError: If it is not a picture, or breaks a limit of `vtune.schema.pixels`.
    """
    return size_of(picture.data or b"")


def seen_to_open(column: str, picture: Picture) -> None:
    """Check that a picture, whose bytes are loaded, can be opened.

    Raises:
        DataError: If it cannot.
    """
    try:
        examine(picture.data or b"")
    except Refused as refused:
        name = picture.path or f"{len(picture.data or b'')} bytes"
        raise wrong(column, f"a picture cannot be opened ({name}): {refused}", REMEDY) from None


def marked(text: str, count: int) -> str:
    """A question with one `<image>` per picture; if it has no marks, they are put first."""
    return text if IMAGE in text or not count else f"{IMAGE}\n" * count + text


def conversation(value: Any, count: int) -> list[Row]:
    """Turns as rows of `prompt`.

    Args:
        value: A list of {role, content}, the same as JSON text, or the user's turn as plain text; content may
            be text or parts ({type: text, text} and {type: image}).
        count: Number of the sample's pictures; if no turn has a mark, they go before the first user turn.

    Raises:
        DataError: If it is not one of these.
    """
    if isinstance(value, str):
        value = _parsed_turns(value)
    if not isinstance(value, list) or not value:
        raise mistyped("prompt", value, "a list of turns {role, content}")
    turns = [_turn(item) for item in value]
    if not any(IMAGE in turn["content"] for turn in turns):
        user = next((turn for turn in turns if turn["role"] == "user"), turns[-1])
        user["content"] = marked(user["content"], count)
    return turns


def listed_options(text: str) -> tuple[str, ...]:
    """The options listed in a question, one per line, lettered from A without gaps; else empty."""
    found = [(match[1] or match[2], match[3]) for match in _OPTION.finditer(text)]
    letters = "".join(letter for letter, _ in found)
    in_order = len(found) > 1 and letters == ascii_uppercase[: len(letters)]
    return tuple(option for _, option in found) if in_order else ()


def json_object(column: str, value: Any) -> dict[str, Any]:
    """A JSON object, given as such or, as in Parquet, as text."""
    if isinstance(value, str):
        try:
            value = parse_json(value)
        except ValueError as error:
            raise wrong(column, f"not JSON: {error}", "write a JSON object") from None
    if not (value is None or isinstance(value, Mapping)):
        raise mistyped(column, value, "a JSON object")
    return dict(value or {})


def plain(value: Any, shown: Sequence[Picture] = ()) -> Any:
    """A value that JSON can represent: dates and decimals as text, NaN as null, bytes as base64.

    Bytes equal to one of the sample's own pictures become {"image": number}, so that they are not stored
    twice.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item, shown) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, shown) for item in value]
    if isinstance(value, bytes):
        same = next((index for index, picture in enumerate(shown) if picture.data == value), None)
        return {"base64": base64.b64encode(value).decode()} if same is None else {"image": same}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta | Decimal):
        return str(value)
    return value


def _picture(column: str, item: Any, base: Path) -> Picture:
    path = None
    if isinstance(item, Mapping):
        path = item.get("path") or None
        data = item.get("bytes")
        if not data and path is None and isinstance(item.get("image"), str | bytes):
            # verl's loader accepts a path only in this form.
            return _picture(column, item["image"], base)
        if not data and path is None:
            raise wrong(column, "a picture has neither bytes nor a path", "drop the row, or give one of them")
        if isinstance(data, str) and data:
            data = _decoded(data, base)  # JSON holds bytes as base64
            if data is None:
                raise mistyped(f"{column}.bytes", item["bytes"], "an encoded image, or base64 of one")
        if data and not isinstance(data, bytes):
            raise mistyped(f"{column}.bytes", data, "an encoded image")
        if path is not None and not isinstance(path, str):
            raise mistyped(f"{column}.path", path, "a path")
        path = None if path is None else _path(path)
        content = data or _loaded(column, str(path), base, empty=data == b"")
    elif isinstance(item, bytes):
        content = item
    elif isinstance(item, str):
        item = _path(item)
        decoded = _decoded(item, base)
        content = decoded if decoded is not None else _loaded(column, item, base)
        path = item if decoded is None else None
    else:
        raise mistyped(column, item, "a picture: bytes, a path or base64")
    return Picture(content, None if path is None else str(path))


def _path(text: str) -> str:
    """The path that a file URI refers to; any other text unchanged."""
    if not text.startswith("file:/"):
        return text
    return url2pathname(text.removeprefix("file:").removeprefix("//localhost").removeprefix("//"))


def _decoded(text: str, base: Path) -> bytes | None:
    """The bytes of a data URI or of base64; None for a path."""
    uri = text.startswith("data:")
    if uri:
        text = text.partition(",")[2]
    elif 0 < len(text) < _PATH and (Path(text).suffix or _is_there(base / text)):
        return None
    try:
        content = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return None
    # `img0` is valid base64 too, but its three bytes are not a picture.
    return None if 0 < len(text) <= _NAME and not uri and not _is_picture(content) else content


def _is_picture(content: bytes) -> bool:
    try:
        read_head(content)
    except NoHead:
        return False
    return True


def _is_there(path: Path) -> bool:
    """Whether a path exists. Folders count as well: reading one gives a clear error."""
    try:
        return path.exists()
    except (OSError, ValueError):
        # No file system accepts such a name: it is base64.
        return False


def _loaded(column: str, name: str, base: Path, *, empty: bool = False) -> bytes:
    if name.lower().startswith(("http://", "https://")):
        raise wrong(
            column,
            f"the picture is a URL ({name[:200]}), and URLs are not fetched",
            "download it, and name the file",
        )
    try:
        path = within(base, name)
    except DataError as error:
        raise wrong(column, error.what, error.fix) from None
    try:
        return read_bytes(_ended(column, path))
    except OSError as error:
        lacks = "its bytes are empty, and there is no picture" if empty else "no picture"
        raise wrong(
            column,
            f"{lacks} at {str(path)[:200]}: {error.strerror}",
            "put it there; `vtune data import` also takes the folder of the pictures with --images",
        ) from None


def _ended(column: str, path: Path) -> Path:
    """The path of a picture that is given by its id alone, as in InfoSeek, with its actual ending.

    Raises:
        DataError: If several pictures have that id.
    """
    if path.exists():
        return path
    named = [path.with_name(path.name + ending) for ending in _ENDINGS]
    found = [one for one in named if one.exists()]
    # On a case-insensitive file system, x.jpg and x.JPG are the same file.
    if any(not one.samefile(found[0]) for one in found):
        raise wrong(
            column,
            f"{path.name} may be {' or '.join(one.name for one in found)}",
            "add the ending of the file that you mean",
        )
    return found[0] if found else path


def _parsed_turns(text: str) -> Any:
    if text.lstrip().startswith("["):
        try:
            return parse_json(text)
        except ValueError:
            pass  # a question may begin with a bracket
    return [{"role": "user", "content": text}]


def _turn(item: Any) -> Row:
    if not isinstance(item, Mapping):
        raise mistyped("prompt", item, "a turn {role, content}")
    content = item.get("content")
    if isinstance(content, list):
        content = "".join(_part(part) for part in content)
    if not isinstance(content, str):
        raise mistyped("prompt.content", content, "a text")
    return {"role": item.get("role"), "content": content}


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and part.get("type") in PICTURED:
        return IMAGE
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return str(part["text"])
    raise mistyped("prompt.content", part, "a text or a part {type, text}")
