"""What tells encoders apart: the SHA-256 of their weights, and of files that belong to them."""

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path

from vtune.files.reading import open_input

TOKENIZER = ("tokenizer.json", "vocab.txt")
"""Files of a text encoder that are hashed like weights."""

PROCESSOR = ("preprocessor_config.json",)
"""The same for a picture encoder."""


def fingerprint(folder: Path, beside: Sequence[str]) -> str:
    """SHA-256 of a model's weights, wherever they are, and of those of the given files that exist."""
    more = [path for name in beside if (path := folder / name).is_file()]
    digest = hashlib.sha256()
    for path in [*_weights(folder), *more]:
        facts = path.stat()
        digest.update(_digest(path, facts.st_size, facts.st_mtime_ns))
    return digest.hexdigest()


def fingerprint_here(name: str, beside: Sequence[str]) -> str | None:
    """The fingerprint of a model by its folder or hub name; None if unknown before the model is loaded."""
    folder = Path(name) if Path(name).is_dir() else _cached(name)
    return None if folder is None or not _weights(folder) else fingerprint(folder, beside)


def _weights(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))


def _cached(name: str) -> Path | None:
    """A hub model's folder in the cache if all its weights are there; only certain if they are one file."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, "model.safetensors")
    return Path(found).parent if isinstance(found, str) else None


@functools.lru_cache(maxsize=64)
def _digest(path: Path, size: int, changed: int) -> bytes:
    """Hash of a file, read once while it is unchanged: a check before a run and its start both need it."""
    with open_input(path) as stream:
        return hashlib.file_digest(stream, "sha256").digest()
