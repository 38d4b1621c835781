"""Linear filters, and the direction in which lines run."""

import math

import cv2
import numpy as np
from numpy.typing import NDArray

SMOOTHED = 0.01
"""Standard deviation, as a share of the side, at which directions are measured."""
AROUND = 0.02
"""Standard deviation, as a share of the side, over which they are averaged."""


def blurred(planes: NDArray[np.float32], sigma: float) -> NDArray[np.float32]:
    """Blur planes, shape (h, w, n); beyond 2.5 standard deviations nothing is left."""
    reach = 2 * math.ceil(2.5 * sigma) + 1
    smooth = cv2.GaussianBlur(planes, (reach, reach), sigma, borderType=cv2.BORDER_REFLECT)
    return np.asarray(smooth, np.float32).reshape(planes.shape)  # a single plane has lost its last axis


def directions(planes: NDArray[np.float32], side: int) -> tuple[NDArray[np.complex64], NDArray[np.float32]]:
    """The structure tensor of each pixel (Bigün and Granlund, 1987), shapes (h, w, n).

    As a complex number, whose angle is twice that of the gradient, so that both sides of a line give one, and
    whose size is how strong the lines around are and how far they run one way; and as its trace, how
    strong they are whatever way they run.
    """
    smooth = blurred(planes, max(0.6, SMOOTHED * side))
    across, down = (
        cv2.Sobel(smooth, cv2.CV_32F, *way, ksize=3).reshape(planes.shape) for way in ((1, 0), (0, 1))
    )
    sigma = max(0.8, AROUND * side)
    cosine, sine = blurred(across * across - down * down, sigma), blurred(2 * across * down, sigma)
    return np.asarray(cosine + 1j * sine, np.complex64), blurred(across * across + down * down, sigma)
