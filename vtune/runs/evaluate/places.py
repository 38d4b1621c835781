"""Where the data of suites are: `VTUNE_DATA`, `~/.config/vtune.toml`, or where the suite says.

`--data` overrides the suite and takes precedence. Otherwise the first existing place is used; if none exists,
the first.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vtune.errors import RecipeError
from vtune.files.reading import read_text
from vtune.sections import Strict

ROOT = "VTUNE_DATA"
"""Environment variable with a folder to use instead of `data`, the suites' default."""
DEFAULT = "data/"


class _Data(Strict):
    """`[data]` of the file."""

    root: str | None = None
    """Like the environment variable."""
    suites: Mapping[str, tuple[str, ...] | str] = {}
    """Suite's default path -> where it is instead."""


class _Config(Strict):
    """The user's settings."""

    data: _Data = _Data()


def config_file() -> Path:
    """The file with the user's settings; it need not exist."""
    return Path.home() / ".config" / "vtune.toml"


def located(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a suite's file, with the paths of its data on this machine.

    Raises:
        RecipeError: If the user's settings cannot be read.
    """
    data = values.get("data")
    if not isinstance(data, list) or not all(isinstance(path, str) for path in data):
        return values  # validation reports this
    return values | {"data": [place for path in data for place in _place(path)]}


def _place(path: str) -> list[str]:
    places = list(candidates(path))
    return next((place for place in places if all(Path(one).exists() for one in place)), places[0])


def candidates(path: str) -> Iterator[list[str]]:
    """Where the data that a suite calls `path` may be, in search order.

    Raises:
        RecipeError: As `located` does.
    """
    settings = _read().data
    below = path.removeprefix(DEFAULT)
    relocated = path.startswith(DEFAULT)
    if relocated and (root := os.environ.get(ROOT)):
        yield [str(Path(root).expanduser() / below)]
    if path in settings.suites:
        named = settings.suites[path]
        yield [str(Path(one).expanduser()) for one in ((named,) if isinstance(named, str) else named)]
    if relocated and settings.root:
        yield [str(Path(settings.root).expanduser() / below)]
    yield [path]


def _read() -> _Config:
    file = config_file()
    try:
        return _Config.model_validate(tomllib.loads(read_text(file)))
    except FileNotFoundError:
        return _Config()
    except OSError as error:
        raise RecipeError(
            f"cannot read {file}: {error.strerror}", fix="make it readable, or remove it"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"not TOML: {error}", where=str(file), fix=_EXAMPLE) from None
    except ValidationError as error:
        rows = [f"`{'.'.join(map(str, one['loc']))}`: {one['msg']}" for one in error.errors()]
        raise RecipeError("; ".join(rows), where=str(file), fix=_EXAMPLE) from None


_EXAMPLE = 'it holds [data] with `root = "/sets"` and [data.suites] with `"data/vstar_bench" = "/sets/vstar"`'
