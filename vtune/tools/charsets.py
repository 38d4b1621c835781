"""The text of a page in any charset: the declared one first, then whatever its bytes suggest."""

import codecs
import re

HEAD = 4096
"""Number of bytes in which a page's own charset declaration is looked for; ours: browsers use 1024."""

BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))

SYNONYMS = {"windows-874": "cp874", "windows-31j": "cp932", "iso-8859-8-i": "iso8859-8"}
"""Names used on the web that Python does not know."""

SUPERSETS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
"""Declared charset -> the one meant, as browsers decode it (WHATWG, Encoding Standard)."""

KNOWN = frozenset(
    {*SUPERSETS.values(), "utf-8", "utf-16", "utf-16-le", "utf-16-be", "euc_jp", "iso2022_jp", "koi8-r"}
    | {"koi8-u", "cp866", "mac-roman", "mac-cyrillic"}
    | {f"cp{number}" for number in range(1250, 1259)}
    | {f"iso8859-{number}" for number in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)}
)
"""The charsets of that standard; Python has others that no page uses, and some that are very slow."""

_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_NAME = rb"([A-Za-z0-9_.:-]{1,40})"
_SAID = (
    re.compile(rb"\A\s*<\?xml\b[^>]*?\bencoding\s*=\s*[\"']" + _NAME, re.IGNORECASE),
    re.compile(rb"<meta\b[^>]*?\bcharset\s*=\s*[\"']?\s*" + _NAME, re.IGNORECASE),
)


def decoded(data: bytes, charset: str | None, *, html: bool) -> str:
    """The text of a page; a wrong charset costs some letters, not the whole page.

    A byte order mark takes precedence over the header, as in browsers; then comes the page's own declaration.

    Args:
        data: The page.
        charset: As declared in its header; None if it is not.
        html: Whether the page itself may declare its charset.
    """
    for mark, codec in BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(codec, "replace")
    found = _codec(charset) if charset else None
    if found is None and html:
        found = _said(data)
    return _shown(data) if found is None else data.decode(found, "replace")


def _codec(name: str) -> str | None:
    """Python's name for a charset; None if no page uses it."""
    try:
        name = name.strip().lower()
        codec = codecs.lookup(SYNONYMS.get(name, name.removeprefix("x-"))).name
    except (LookupError, ValueError):
        return None
    codec = SUPERSETS.get(codec, codec)
    return codec if codec in KNOWN else None


def _said(data: bytes) -> str | None:
    """The charset declared in the HTML's head, which was readable as ASCII, so it cannot be UTF-16."""
    head = _COMMENT.sub(b"", data[:HEAD])
    for said in _SAID:
        if match := said.search(head):
            codec = _codec(match[1].decode("ascii"))
            return "utf-8" if codec is not None and codec.startswith("utf-16") else codec
    return None


def _shown(data: bytes) -> str:
    """The text of bytes without any declaration.

    UTF-8 if most of the non-ASCII bytes are valid, else Windows-1252, the default of Western browsers.
    """
    text = data.decode("utf-8", "replace")
    broken = text.count("\N{REPLACEMENT CHARACTER}")
    letters = len(text) - len(text.encode("ascii", "ignore"))
    return data.decode("cp1252", "replace") if broken and letters <= 2 * broken else text
