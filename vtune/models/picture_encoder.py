"""A picture encoder: the vision half of a CLIP or SigLIP, whose vectors say how alike two pictures are."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from vtune.errors import DataError
from vtune.models.encoder import folder_of
from vtune.models.source import check_local, quiet, resolved, unloadable
from vtune.models.weights import PROCESSOR, fingerprint


class PictureModel:
    """A loaded encoder; threads may share it.

    Args:
        name: Folder or hub name of a model that embeds pictures and texts in one space.
        device: Where it runs: in float32 on a CPU, in float16 elsewhere.

    Raises:
        DataError: If it cannot be loaded, or does not give exactly one vector per picture.
    """

    def __init__(self, name: str, *, device: torch.device) -> None:
        from transformers import AutoImageProcessor, AutoModel

        quiet()
        check_local(name)
        try:
            reader: Any = AutoImageProcessor
            self._processor: Any = reader.from_pretrained(name, trust_remote_code=False, backend="pil")
            dtype = torch.float32 if device.type == "cpu" else torch.float16
            model: Any = AutoModel.from_pretrained(name, dtype=dtype, trust_remote_code=False)
            folder = folder_of(name)
        except (OSError, ValueError) as error:
            raise unloadable(name, error) from error
        if not hasattr(model, "get_image_features") or not hasattr(model, "get_text_features"):
            raise DataError(f"{name} embeds no pictures", fix="give a CLIP or SigLIP model")
        self._model: Any = model.to(device=device).eval()
        self._dtype, self._device = dtype, device
        self._lock = threading.Lock()
        self.width: int = len(self.picture(Image.new("RGB", (32, 32))))
        """Length of a vector."""
        self.facts: Mapping[str, Any] = {
            "model": resolved(name),
            "fingerprint": fingerprint(folder, PROCESSOR),
        }
        """What an index records about it."""

    def picture(self, picture: Image.Image) -> NDArray[np.float32]:
        """The vector of a picture, of length 1, shape (width,)."""
        with self._lock, torch.inference_mode():
            pixels = self._processor(images=picture, return_tensors="pt")["pixel_values"]
            found = self._model.get_image_features(pixel_values=pixels.to(self._device, self._dtype))
            vector = torch.nn.functional.normalize(found.pooler_output[0].float(), dim=-1)
        numbers: NDArray[np.float32] = vector.cpu().numpy()
        return numbers
