"""The library hooks that record what pictures show, installed once in the fork server.

They do not change what honest code computes, with one exception: a PIL crop is clamped to its picture instead
of being padded with black.
"""

from . import agg, display, ndimage_hooks, numpy_hooks, opencv_hooks, pil_hooks, signal_hooks
from .hooks import Tracker
from .late import when_imported


def install() -> Tracker:
    """Hook the libraries; return the tracker that the hooks report to."""
    tracker = Tracker()
    pil_hooks.install(tracker)
    numpy_hooks.install()
    opencv_hooks.install(tracker)
    display.install()
    when_imported(
        {
            "matplotlib.colors": agg.hook_colors,
            "matplotlib.image": agg.hook_images,
            "matplotlib.backends.backend_agg": agg.hook_canvas,
            "scipy.ndimage": ndimage_hooks.install,
            "scipy.signal": signal_hooks.install,
        }
    )
    return tracker
