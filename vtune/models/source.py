"""Where a model comes from: a folder, a run, or the hub."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from vtune.errors import DataError, RecipeError
from vtune.models.served import is_scripted, is_served

HUB_SECONDS = 5.0
"""That the hub may take to answer at all; ours."""


def resolved(name: str) -> str:
    """The folder that a path means, links followed: a run keeps its starting weights. Else the name.

    The folder of a run means its newest checkpoint.
    """
    folder = Path(name)
    newest = folder / "checkpoints" / "newest"
    if newest.is_dir() and not (folder / "config.json").is_file():
        folder = newest
    return str(folder.resolve()) if folder.is_dir() else name


def check_local(name: str) -> None:
    """A mistyped path is said to be one at once, and not looked for on a hub.

    A hub name is `owner/model`; anything else, or a path whose parent folder is here, means a folder. Where
    no hub can be reached, a name that is not in its cache is refused at once: transformers would try again
    for most of a minute.
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
            f"there is no model folder {name}, and no hub to fetch such a model from: {why}",
            fix="give a folder that save_pretrained wrote, or fetch the model where there is a network",
        )


def _cached(name: str) -> bool:
    """Whether a model of the hub is on this machine."""
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(name, "config.json"), str)


def _unreachable() -> str:
    """Why the hub does not answer; empty where it does, whatever it says."""
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
    """The error for what transformers cannot load, with the file to blame where it is not JSON."""
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
            continue  # e.g. a link to nothing: what transformers says of the model stands
    return DataError(
        f"cannot load a model from {name!r}: {str(error).strip().splitlines()[0]}",
        fix="give a folder that save_pretrained wrote, or a hub name that this machine can reach",
    )


def quiet() -> None:
    """No progress bars of transformers: they would cut through those of a run."""
    from transformers.utils import logging

    off: Any = logging.disable_progress_bar
    off()
