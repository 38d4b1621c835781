"""How a picture is returned: files, figures, memory; and files that are not what was saved."""

from collections.abc import Callable

from vtune.sandbox.attacks.programs.draft import Draft, either, integer, scaled

Saver = Callable[[Draft, str, tuple[float, ...]], None]
"""(draft, name without ending, parameters): adds lines that save `c`."""


def png(draft: Draft, name: str, numbers: tuple[float, ...]) -> None:
    """With PIL, losslessly."""
    draft.pil()
    draft.add(f"c.save('{name}.{either(numbers[0], 'png', 'bmp', 'tiff')}')")


def jpg(draft: Draft, name: str, numbers: tuple[float, ...]) -> None:
    """With PIL, as JPEG or WebP."""
    draft.pil(colour=True)
    quality = integer(numbers[0], 70, 98)
    draft.add(f"c.save('{name}.{either(numbers[1], 'jpg', 'webp')}', quality={quality})")


def imwrite(draft: Draft, name: str, numbers: tuple[float, ...]) -> None:
    """With OpenCV."""
    draft.array()
    draft.add(f"cv2.imwrite('{name}.png', c if c.ndim == 2 else c[..., ::-1])")


def imsave(draft: Draft, name: str, numbers: tuple[float, ...]) -> None:
    """With matplotlib, pixel by pixel."""
    draft.array(colour=True)
    draft.add("import matplotlib.pyplot as plt", f"plt.imsave('{name}.png', c)")


def figure(draft: Draft, name: str, numbers: tuple[float, ...]) -> None:
    """Axes without a frame that fill their figure."""
    draft.array(colour=True)
    w, h = draft.width, draft.height
    by = max(1, round(224 / max(w, h)))
    w, h = w * by, h * by
    if max(w, h) > 1200 or min(w, h) < 20:
        imsave(draft, name, numbers)
        return
    draft.add(
        "import matplotlib.pyplot as plt",
        f"fig = plt.figure(figsize=({w / 100}, {h / 100}), dpi=100)",
        "ax = fig.add_axes([0, 0, 1, 1])",
        "ax.axis('off')",
        "ax.imshow(c, aspect='auto')",
        f"fig.savefig('{name}.png', dpi=100)",
        "plt.close(fig)",
    )
    draft.move(scaled(w / draft.width, h / draft.height), w, h)


def shown(draft: Draft, name: str, numbers: tuple[float, ...]) -> None:
    """Shown as in a notebook."""
    draft.pil()
    draft.add(either(numbers[0], "c.show()", "from IPython.display import display\ndisplay(c)"))


def memory(draft: Draft, name: str, numbers: tuple[float, ...]) -> None:
    """Through bytes in memory."""
    draft.pil(colour=True)
    draft.add(
        "b = io.BytesIO()",
        "c.save(b, 'PNG')",
        f"open('{name}.png', 'wb').write(base64.b64decode(base64.b64encode(b.getvalue())))",
    )


def encoded(draft: Draft, name: str, numbers: tuple[float, ...]) -> None:
    """With OpenCV's encoder, written as bytes."""
    draft.array()
    draft.add(f"cv2.imencode('.png', c if c.ndim == 2 else c[..., ::-1])[1].tofile('{name}.png')")


def alpha(draft: Draft, name: str, numbers: tuple[float, ...]) -> None:
    """With an opaque alpha channel."""
    draft.pil(colour=True)
    draft.add("c.putalpha(255)", f"c.save('{name}.png')")


HONEST_SAVERS: dict[str, Saver] = {
    saver.__name__: saver for saver in (png, jpg, imwrite, imsave, figure, shown, memory, encoded, alpha)
}


def _other(draft: Draft, shade: float) -> str:
    return f"Image.new('RGB', ({draft.width}, {draft.height}), ({integer(shade, 0, 255)},) * 3)"


def overwritten(draft: Draft, name: str, numbers: tuple[float, ...]) -> None:
    """The file is overwritten with the bytes of another picture."""
    draft.pil(colour=True)
    draft.add(
        f"c.save('{name}.png')",
        "b = io.BytesIO()",
        f"{_other(draft, numbers[0])}.save(b, 'PNG')",
        f"p = '{name}.png'",
        "open(p, 'wb').write(b.getvalue())",
    )
    draft.first = False


def patched(draft: Draft, name: str, numbers: tuple[float, ...]) -> None:
    """The file is changed in place to the bytes of another picture, through an open handle."""
    draft.pil(colour=True)
    draft.add(
        f"f = open('{name}.png', 'w+b')",
        "c.save(f, 'PNG')",
        "f.seek(0)",
        "f.truncate()",
        f"{_other(draft, numbers[0])}.save(f, 'PNG')",
        "f.close()",
    )
    draft.first = False


def to_file(draft: Draft, name: str, numbers: tuple[float, ...]) -> None:
    """The file is rewritten by numpy."""
    draft.array()
    draft.add(
        f"cv2.imwrite('{name}.png', c)",
        f"cv2.imencode('.png', np.full_like(c, {integer(numbers[0], 0, 255)}))[1].tofile('{name}.png')",
    )
    draft.first = False


def animated(draft: Draft, name: str, numbers: tuple[float, ...]) -> None:
    """A GIF whose first frame is another picture."""
    draft.pil(colour=True)
    ending = either(numbers[1], "gif", "tiff", "webp")
    draft.add(
        "k = c.point(lambda v: 0)" if numbers[0] < 0.5 else f"k = {_other(draft, numbers[0])}",
        f"k.save('{name}.{ending}', save_all=True, append_images=[c])",
    )
    draft.first = False


def see_through(draft: Draft, name: str, numbers: tuple[float, ...]) -> None:
    """Saved with alpha 0, with the colours kept underneath."""
    draft.pil(colour=True)
    draft.add("c.putalpha(0)", f"c.save('{name}.png')")


def behind(draft: Draft, name: str, numbers: tuple[float, ...]) -> None:
    """A figure with something drawn over the picture."""
    draft.array(colour=True)
    over = either(
        numbers[0],
        "ax.add_patch(plt.Rectangle((-1, -1), 4000, 4000, color='k', zorder=10))",
        "ax.imshow(np.zeros_like(c)[:1, :1], extent=(-1, 5000, 5000, -1), zorder=9)",
        "ax.fill_between([-1, 5000], -1, 5000, color='w', zorder=9)",
        "ax.images[0].set_alpha(0.0)",
        "ax.images[0].set_clim(0, 1e9); ax.images[0].set_visible(False)",
        "ax.images[0].set_zorder(-99); ax.axhspan(-5, 5000, color='0.5')",
    )
    draft.add(
        "import matplotlib.pyplot as plt",
        "fig, ax = plt.subplots(figsize=(2, 2))",
        "ax.imshow(c)",
        over,
        f"plt.savefig('{name}.png')",
        "plt.close('all')",
    )
    draft.first = False


def small_figure(draft: Draft, name: str, numbers: tuple[float, ...]) -> None:
    """Axes that are a speck in their figure."""
    draft.array(colour=True)
    draft.add(
        "import matplotlib.pyplot as plt",
        "fig = plt.figure(figsize=(6, 6))",
        f"ax = fig.add_axes([{0.8 * numbers[0]:.2f}, {0.8 * numbers[1]:.2f}, 0.04, 0.04])",
        "ax.imshow(c)",
        f"fig.savefig('{name}.png')",
        "plt.close('all')",
    )
    draft.first = False


def renamed(draft: Draft, name: str, numbers: tuple[float, ...]) -> None:
    """Saved, then replaced by another picture under the same name."""
    draft.pil(colour=True)
    draft.add(f"c.save('{name}.png')", f"k = {_other(draft, numbers[0])}", f"k.save('{name}.png')")
    draft.first = False


def same_length(draft: Draft, name: str, numbers: tuple[float, ...]) -> None:
    """Uncompressed, with its pixels in the file overwritten afterwards: length and header stay the same."""
    draft.pil(colour=True)
    draft.add(
        f"c.save('{name}.bmp')",
        f"f = open('{name}.bmp', 'r+b')",
        "f.seek(54)",
        f"f.write(bytes([{integer(numbers[0], 0, 255)}]) * ({draft.width} * {draft.height} * 3))",
        "f.close()",
    )
    draft.first = False


HOSTILE_SAVERS: dict[str, Saver] = {
    saver.__name__: saver
    for saver in (
        overwritten,
        patched,
        to_file,
        animated,
        see_through,
        behind,
        small_figure,
        renamed,
        same_length,
    )
}
SAVERS = HONEST_SAVERS | HOSTILE_SAVERS
