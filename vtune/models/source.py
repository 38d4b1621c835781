"""Where a model comes from: a folder, a run, or the hub."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from vtune.errors import DataError, RecipeError
from vtune.models.served import is_scripted, is_served

HUB_SECONDS = 5.0
"""Seconds that the hub may take to answer at all; ours."""


def resolved(name: str) -> str:
    """The folder of a path, with links resolved, so that a run keeps its starting weights; else the name.

    For a run folder it is the newest checkpoint.
    """
    folder = Path(name)
    newest = folder / "checkpoints" / "newest"
    if newest.is_dir() and not (folder / "config.json").is_file():
        folder = newest
    return str(folder.resolve()) if folder.is_dir() else name


def check_local(name: str) -> None:
    """Reject a mistyped path at once, instead of looking for it on a hub.

    A hub name is `owner/model`; anything else, or a path whose parent folder exists, means a folder. If no
    hub can be reached, a name that is not in its cache is rejected at once: transformers would retry for most
    of a minute.
    """
    if is_served(name):
        raise RecipeError(
            f"{name.partition('#')[2] or name} is behind an endpoint, which gives neither weights nor tokens"
            " nor log-probabilities",
            fix="give a folder of weights or a hub name; `vtune eval`, `vtune serve agent` and pass_rate of "
            "`vtune curate` take an endpoint",
        )
    if is_scripted(name):
        raise RecipeError(
            f"{name} is a file of replies, which has no weights",
            fix="give a folder of weights or a hub name; `vtune eval` takes a script",
        )
    path = Path(name)
    hub_like = name.count("/") <= 1 and not name.startswith((".", "/", "~"))
    if not path.is_dir() and (not hub_like or (path.parent != Path() and path.parent.is_dir())):
        raise DataError(f"there is no model folder {name}", fix="give a folder that save_pretrained wrote")
    if path.is_dir() and not (path / "config.json").is_file():
        run = (path / "recipe.yaml").is_file()
        what = "the run has written no checkpoint yet" if run else "it has no config.json"
        raise DataError(f"{name} holds no model: {what}", fix="give the folder of a checkpoint, or of a run")
    if not path.is_dir() and not _cached(name) and (why := _unreachable()):
        raise DataError(
            f"there is no model folder {name}, and no hub to fetch it from: {why}",
            fix="give a folder that save_pretrained wrote, or fetch the model where there is a network",
        )


def _cached(name: str) -> bool:
    """Whether a hub model is on this machine."""
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(name, "config.json"), str)


def _unreachable() -> str:
    """Why the hub does not answer; empty if it does, with whatever status."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        with urllib.request.urlopen(constants.ENDPOINT, timeout=HUB_SECONDS):
            return ""
    except urllib.error.HTTPError:
        return ""
    except OSError as error:
        return str(getattr(error, "reason", error))


def unloadable(name: str, error: Exception) -> DataError:
    """The error for a model that transformers cannot load; names the file that is not JSON, if any."""
    for path in sorted(Path(name).glob("*.json")) if Path(name).is_dir() else ():
        try:
            json.loads(path.read_bytes())
        except ValueError as why:
            return DataError(
                f"a file of the model is not JSON: {why}",
                where=str(path),
                fix="copy or download it again: it was cut short, or edited",
            )
        except OSError:
            continue  # e.g. a dangling link: use transformers' own message about the model
    return DataError(
        f"cannot load a model from {name!r}: {str(error).strip().splitlines()[0]}",
        fix="give a folder that save_pretrained wrote, or a hub name that this machine can reach",
    )


def quiet() -> None:
    """Disable the progress bars of transformers, which would break up those of a run."""
    from transformers.utils import logging

    off: Any = logging.disable_progress_bar
    off()
