"""The text of token ids, from the tokenizer of a run's checkpoint or of its starting model."""

from collections.abc import Callable, Iterator
from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from tokenizers import Tokenizer

from vtune.config import read_values
from vtune.errors import DataError, RecipeError
from vtune.files.json_text import read_json
from vtune.view.place import Place

FILE = "tokenizer.json"


def vocabulary(place: Place) -> tuple[Callable[[int], str] | None, str]:
    """Token id -> its text, or None and the reason; loads nothing from the network, and no weights."""
    try:
        file = next(_files(place), None)
    except (DataError, RecipeError) as error:
        return None, error.what
    if file is None:
        return None, "neither the run nor its model has a tokenizer.json on this machine: ids are shown"
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # noqa: BLE001 - the library has no specific error for a damaged file
        return None, f"{file} cannot be read: {error}"
    return lambda number: str(tokenizer.decode([number], skip_special_tokens=False)), ""


def _files(place: Place) -> Iterator[Path]:
    folders = [place.root, place.root.parent]
    names = [folder / "checkpoints" / "newest" for folder in folders]
    if place.settings is not None:
        values = read_values(place.settings, fix="restore the file")
        names += _named(values.get("model") if isinstance(values, dict) else None)
    if (place.root / "results.json").is_file():
        results = read_json(place.root / "results.json", fix="restore the file")
        names += _named(results.get("model") if isinstance(results, dict) else None)
    for name in names:
        if (name / FILE).is_file():
            yield name / FILE


def _named(model: object) -> list[Path]:
    """Folders that may hold a model: the one of that name, and the one in the hub's cache."""
    if not isinstance(model, str) or not model or "\0" in model:
        return []
    folder = Path(model)
    found = [folder, folder / "checkpoints" / "newest"]
    if not folder.is_absolute() and model.count("/") == 1:
        cached = try_to_load_from_cache(model, FILE)
        found += [Path(cached).parent] if isinstance(cached, str) else []
    return found
