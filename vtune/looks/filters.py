"""Linear filters, and the direction in which lines run."""

import math

import cv2
import numpy as np
from numpy.typing import NDArray

SMOOTHED = 0.01
"""Standard deviation of the blur before directions are measured, as a fraction of the side."""
AROUND = 0.02
"""Standard deviation of the blur that averages them, as a fraction of the side."""


def blurred(planes: NDArray[np.float32], sigma: float) -> NDArray[np.float32]:
    """Blur planes, shape (h, w, n); the kernel ends at 2.5 standard deviations."""
    reach = 2 * math.ceil(2.5 * sigma) + 1
    smooth = cv2.GaussianBlur(planes, (reach, reach), sigma, borderType=cv2.BORDER_REFLECT)
    return np.asarray(smooth, np.float32).reshape(planes.shape)  # OpenCV drops the axis of a single plane


def directions(planes: NDArray[np.float32], side: int) -> tuple[NDArray[np.complex64], NDArray[np.float32]]:
    """The structure tensor of each pixel (Bigün and Granlund, 1987), shapes (h, w, n).

    Returned in two parts. First a complex number: its angle is twice that of the gradient, so that both sides
    of a line give the same; its size grows with the strength of nearby lines and with how far they run one
    way. Second the trace: their strength in any direction.
    """
    smooth = blurred(planes, max(0.6, SMOOTHED * side))
    across, down = (
        cv2.Sobel(smooth, cv2.CV_32F, *way, ksize=3).reshape(planes.shape) for way in ((1, 0), (0, 1))
    )
    sigma = max(0.8, AROUND * side)
    cosine, sine = blurred(across * across - down * down, sigma), blurred(2 * across * down, sigma)
    return np.asarray(cosine + 1j * sine, np.complex64), blurred(across * across + down * down, sigma)
