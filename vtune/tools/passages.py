"""Indexes of passages, BM25 or dense: built (where that takes a model), checked and opened."""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vtune.errors import DataError, MissingExtra, RecipeError
from vtune.models.weights import TOKENIZER, fingerprint_here
from vtune.sections import Strict
from vtune.tools.store import check_same_encoder, read_manifest

if TYPE_CHECKING:
    import torch

    from vtune.models.encoder import Encoder, EncoderSettings
    from vtune.tools.bm25 import PassageIndex
    from vtune.tools.dense import DenseIndex

NO_SEARCH = "pip install 'vtune[search]'"
NO_DENSE = "pip install 'vtune[dense]'"

MOVED = (
    "name its folder: --encoder DIR (of pictures, --picture-encoder of `vtune serve search`), or `model` in "
    "tools.text_search.encoder or tools.image_search.encoder"
)

Device = Literal["cpu", "cuda"]


class IndexEncoder(Strict):
    """The model that embeds queries to a dense index."""

    model: str | None = None
    """Where the model that built it is now: a folder or hub name; null: as the index names it."""
    device: Device = "cpu"
    """`cuda` shares a training GPU; a `vtune serve search` has its own."""


def check_passages(folder: Path, encoder: IndexEncoder | None) -> None:
    """Check, before a run, that an index exists, and that everything its kind needs does.

    Raises:
        DataError: If there is no index, or the model that built it is missing or has changed.
        MissingExtra: If a package is not installed.
        RecipeError: If an encoder is named for an index that has none.
    """
    facts = read_manifest(folder, "passages", "dense")
    if facts["kind"] == "passages":
        if encoder is not None:
            raise RecipeError(
                f"the index in {folder} is a BM25 index, which embeds nothing",
                fix="take encoder out, or build a dense index: vtune data index … --encoder MODEL",
            )
        return
    check_model(folder, facts, encoder, beside=TOKENIZER)


def open_passages(folder: Path, encoder: IndexEncoder | None) -> "PassageIndex | DenseIndex":
    """An index of passages of either kind.

    Raises:
        DataError: If there is none, it is incomplete, or its encoder cannot be loaded or is a different one.
        MissingExtra: If a package is not installed.
        RecipeError: If an encoder is named for an index that has none.
    """
    facts = read_manifest(folder, "passages", "dense")
    if facts["kind"] == "dense":
        try:
            from vtune.tools.dense import DenseIndex
        except ModuleNotFoundError as error:
            raise MissingExtra(f"{error.name} is not installed", fix=NO_DENSE) from None
        device = "cpu" if encoder is None else encoder.device
        model = _existing(folder, facts, encoder)
        return DenseIndex(folder, load_encoder(model, _settings(folder, facts), device))
    check_passages(folder, encoder)
    try:
        from vtune.tools.bm25 import PassageIndex
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is not installed", fix=NO_SEARCH) from None
    return PassageIndex(folder)


def load_encoder(model: str, settings: "EncoderSettings", device: Device) -> "Encoder":
    """A text encoder.

    Raises:
        DataError: If it cannot be loaded.
        RecipeError: If there is no such device.
    """
    from vtune.models.encoder import Encoder

    return Encoder(model, settings, device=torch_device(device))


def torch_device(device: Device) -> "torch.device":
    """Where an encoder computes: on a GPU, always that of this process, whichever thread uses it later.

    Raises:
        RecipeError: If there is no such device.
    """
    import torch

    if device == "cpu":
        return torch.device(device)
    if not torch.cuda.is_available():
        raise RecipeError("there is no CUDA device for the encoder", fix="set its device to cpu")
    return torch.device("cuda", torch.cuda.current_device())


def check_model(
    folder: Path, facts: Mapping[str, Any], encoder: IndexEncoder | None, *, beside: Sequence[str]
) -> None:
    """Check, before a run, that an index embedded by a model can be searched.

    Args:
        folder: Folder of the index.
        facts: Its manifest.
        encoder: Where its model is now; None: as the manifest says.
        beside: Names of files that matter as much as weights.

    Raises:
        DataError: If the model is missing or has changed.
        MissingExtra: If a package is not installed.
    """
    if importlib.util.find_spec("usearch") is None:
        raise MissingExtra("usearch is not installed", fix=NO_DENSE)
    model = _existing(folder, facts, encoder)
    if (mine := fingerprint_here(model, beside)) is not None:
        check_same_encoder(folder, facts["encoder"], {"model": model, "fingerprint": mine})


def model_of(facts: Mapping[str, Any], encoder: IndexEncoder | None) -> str:
    """The current location of an index's model."""
    named: str = facts["encoder"]["model"]
    return named if encoder is None or encoder.model is None else encoder.model


def _existing(folder: Path, facts: Mapping[str, Any], encoder: IndexEncoder | None) -> str:
    """The same, checked to be a model.

    Raises:
        DataError: If it is not; names the index.
    """
    from vtune.models.source import check_local

    model = model_of(facts, encoder)
    try:
        check_local(model)
    except DataError as error:
        raise DataError(
            f"{error.what}; it embedded what the index holds", where=str(folder), fix=MOVED
        ) from None
    return model


def _settings(folder: Path, facts: dict[str, Any]) -> "EncoderSettings":
    """How the encoder reads texts, according to the index."""
    from vtune.models.encoder import EncoderSettings

    settings = {key: value for key, value in facts["encoder"].items() if key not in ("model", "fingerprint")}
    try:
        return EncoderSettings(**settings)
    except TypeError:
        raise DataError(f"the index in {folder} was built by another version", fix="build it again") from None
