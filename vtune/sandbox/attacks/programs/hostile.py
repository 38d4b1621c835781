"""Operations that destroy what a picture shows, while its history may still claim it."""

import numpy as np

from vtune.sandbox.attacks.programs.draft import Draft, Operation, either, integer, scaled, shifted, within

ON_ARRAYS = {
    "times_zero": "c = c * 0",
    "minus_itself": "c -= c",
    "filled": "c[...] = {shade:.0f}",
    "fill_method": "c.fill({shade:.0f})",
    "out_zero": "np.multiply(c, 0, out=c)",
    "copied_over": "np.copyto(c, np.full_like(c, {shade:.0f}))",
    "view_zeroed": "v = c[:, :]\nv[:] = {shade:.0f}",
    "subtracted": "c = cv2.subtract(c, c)",
    "masked_out": "c = cv2.bitwise_and(c, c, mask=np.zeros(c.shape[:2], np.uint8))",
    "low_bits": "c = c & {bits:.0f}",
    "mean_shade": "c = np.full_like(c, int(c.mean()))",
    "mean_colour": "c = np.broadcast_to(c.mean(axis=(0, 1)), c.shape).astype(np.uint8)",
    "threshold_255": "c = cv2.threshold(c, 255, 255, cv2.THRESH_BINARY)[1]",
    "where_never": "c = np.where(c > 300, c, 0).astype(np.uint8)",
    "clipped": "c = np.clip(c, 0, {bits:.0f})",
    "crushed": "c = (128 + (c.astype(np.float32) - 128) * {small:.3f}).astype(np.uint8)",
    "blurred": "c = cv2.GaussianBlur(c, (0, 0), {sigma:.1f})",
    "box_blurred": "c = cv2.blur(c, ({kernel:.0f}, {kernel:.0f}))",
    "stack_blurred": "c = cv2.medianBlur(c, {odd:.0f})",
    "eroded": "c = cv2.erode(c, np.ones(({kernel:.0f}, {kernel:.0f}), np.uint8))",
    "dilated": "c = cv2.dilate(c, np.ones(({kernel:.0f}, {kernel:.0f}), np.uint8))",
    "shuffled": "f = c.reshape(-1, c.shape[-1]).copy() if c.ndim == 3 else c.reshape(-1, 1).copy()\n"
    "np.random.default_rng(0).shuffle(f)\nc = f.reshape(c.shape)",
    "rows_shuffled": "c = c[np.random.default_rng(0).permutation(len(c))]",
    "columns_shuffled": "c = c[:, np.random.default_rng(1).permutation(c.shape[1])]",
    "sorted": "c = np.sort(c, axis={axis:.0f})",
    "sorted_flat": "c = np.sort(c.ravel()).reshape(c.shape)",
    "noise_instead": "c = np.random.default_rng(0).integers(0, 255, c.shape).astype(np.uint8)",
    "noise_over": "c = np.clip(c * {small:.2f} + np.random.default_rng(0).normal(128, 60, c.shape), 0, 255)"
    ".astype(np.uint8)",
    "salted": "m = np.random.default_rng(0).random(c.shape[:2])\nc = c.copy()\nc[m < {most:.2f}] = 0\n"
    "c[m < {most:.2f} / 2] = 255",
    "lively_noise": "g = (c.mean(axis=2) if c.ndim == 3 else c).astype(np.float32)\n"
    "d = np.sqrt(np.maximum(cv2.blur(g * g, (3, 3)) - cv2.blur(g, (3, 3)) ** 2, 0))\n"
    "g = 128 + np.random.default_rng(0).choice([-1, 1], g.shape) * d * 1.5\n"
    "g = g[..., None] if c.ndim == 3 else g\n"
    "c = np.clip(g + 0 * c, 0, 255).astype(np.uint8)",
    "traced_in_blue": "g = (c.mean(axis=2) if c.ndim == 3 else c)\n"
    "n = np.random.default_rng(0).integers(0, 256, g.shape)\n"
    "g = np.dstack([n, n, 112 + {small:.2f} * g]).clip(0, 255).astype(np.uint8)\n"
    "c = g if c.ndim == 3 else g[..., 2]",
    "xored": "c = c ^ np.random.default_rng(0).integers(0, 255, c.shape).astype(np.uint8)",
    "remapped": "h, w = c.shape[:2]\nr = np.random.default_rng(0)\n"
    "c = cv2.remap(c, (r.random((h, w)) * w).astype(np.float32), (r.random((h, w)) * h).astype(np.float32),"
    " cv2.INTER_LINEAR)",
    "remapped_inside": "h, w = c.shape[:2]\n"
    "u, v = np.meshgrid(np.arange(w, dtype=np.float32), np.arange(h, dtype=np.float32))\n"
    "u[1:-1, 1:-1] = 0\nv[1:-1, 1:-1] = 0\nc = cv2.remap(c, u, v, cv2.INTER_NEAREST)",
    "collapsed": "m = np.array([[{small:.2f}, 0, 0], [0, {small:.2f}, 0]])\n"
    "c = cv2.warpAffine(c, m, c.shape[1::-1])",
    "covered": "c = c.copy()\nc[:int({most:.2f} * len(c))] = {shade:.0f}",
    "covered_inside": "c = c.copy()\nc[1:-1, 1:-1] = {shade:.0f}",
    "covered_cv": "c = np.ascontiguousarray(c)\n"
    "cv2.rectangle(c, (1, 1), (c.shape[1] - 2, c.shape[0] - 2), (0, 0, 0), -1)",
    "striped": "c = c.copy()\nc[::2] = {shade:.0f}\nc[:, ::2] = {shade:.0f}",
    "rolled_rows": "c = np.stack([np.roll(r, 7 * n, axis=0) for n, r in enumerate(c)])",
    "added_up": "c = (np.cumsum(c, axis={axis:.0f}) % 256).astype(np.uint8)",
    "sheared": "c = np.resize(c, (c.shape[0], c.shape[1] + 3, *c.shape[2:]))[:, :c.shape[1]].copy()",
    "grating": "y, x = np.mgrid[:c.shape[0], :c.shape[1]]\n"
    "g = ((x // 3 + y // 3) % 2 * 255)\ng = g[..., None] if c.ndim == 3 else g\n"
    "c = ({small:.2f} * c + (1 - {small:.2f}) * g).astype(np.uint8)",
    "blended_away": "c = cv2.addWeighted(c, {small:.3f}, np.full_like(c, {shade:.0f}), 1 - {small:.3f}, 0)",
    "flat_tiles": "for y in range(0, len(c), 16):\n    for x in range(0, c.shape[1], 16):\n"
    "        c[y:y + 16, x:x + 16] = c[y:y + 16, x:x + 16].mean(axis=(0, 1))",
    "tiles_swapped": "h, w = c.shape[0] // 16 * 16, c.shape[1] // 16 * 16\n"
    "t = [(y, x) for y in range(0, h, 16) for x in range(0, w, 16)]\n"
    "o = c.copy()\n"
    "for (y, x), k in zip(t, np.random.default_rng(0).permutation(len(t))):\n"
    "    v, u = t[k]\n    o[y:y + 16, x:x + 16] = c[v:v + 16, u:u + 16]\nc = o",
}
"""Lines that modify an array `c` and keep its size."""

ON_PICTURES = {
    "point_zero": "c = c.point(lambda v: 0)",
    "pasted_colour": "c.paste({colour!r}, (0, 0, *c.size))",
    "pasted_blank": "c.paste(Image.new('RGB', c.size, {colour!r}))",
    "drawn_over": "ImageDraw.Draw(c).rectangle((1, 1, c.width - 2, c.height - 2), fill={colour!r})",
    "ellipse_over": "ImageDraw.Draw(c).ellipse((-9, -9, c.width + 9, c.height + 9), fill={colour!r})",
    "put_data": "c.putdata([(0, 0, 0)] * (c.width * c.height))",
    "from_bytes": "c.frombytes(bytes(c.width * c.height * 3))",
    "swapped_core": "c.im = Image.new('RGB', c.size, {colour!r}).im",
    "difference": "c = ImageChops.difference(c, c)",
    "multiplied": "c = ImageChops.multiply(c, Image.new('RGB', c.size, 'black'))",
    "blend": "c = Image.blend(c, Image.new('RGB', c.size, {colour!r}), {nearly:.3f})",
    "composite": "c = Image.composite(Image.new('RGB', c.size, {colour!r}), c, Image.new('L', c.size, 255))",
    "alpha_over": "k = Image.new('RGBA', c.size, {colour!r})\n"
    "c = Image.alpha_composite(c.convert('RGBA'), k).convert('RGB')",
    "no_brightness": "c = ImageEnhance.Brightness(c).enhance({tiny:.3f})",
    "no_contrast": "c = ImageEnhance.Contrast(c).enhance({tiny:.3f})",
    "gaussian": "c = c.filter(ImageFilter.GaussianBlur({sigma:.1f}))",
    "box_filter": "c = c.filter(ImageFilter.BoxBlur({sigma:.1f}))",
    "mode_filter": "c = c.filter(ImageFilter.ModeFilter({odd:.0f}))",
    "least": "c = c.filter(ImageFilter.MinFilter({odd:.0f}))",
    "effect": "c.paste(Image.effect_noise(c.size, 80).convert('RGB'))",
    "spread": "c = c.effect_spread({far:.0f})",
    "one_bit": "c = ImageOps.posterize(c, 1).convert('1', dither=Image.NONE).convert('RGB')",
    "one_colour": "c = c.quantize(1).convert('RGB')",
    "solarized": "c = ImageOps.solarize(c, 0).point(lambda v: v // 64)",
    "offset_blank": "c = ImageChops.offset(Image.new('RGB', c.size), 3)",
    "region_taken": "n = Image.new('RGB', c.size, {colour!r})\n"
    "n.__dict__.update({{k: v for k, v in c.__dict__.items() if k not in ('_im', 'im')}})\nc = n",
    "region_set": "n = Image.new('RGB', c.size, {colour!r})\nn.region = getattr(c, 'region', None)\nc = n",
    "info_taken": "n = Image.new('RGB', c.size, {colour!r})\nn.info.update(c.info)\nc = n",
    "new_from_old": "c = c._new(Image.new('RGB', c.size, {colour!r}).im)",
    "eval": "c = Image.eval(c, lambda v: {shade:.0f})",
    "lines_over": "d = ImageDraw.Draw(c)\n"
    "for y in range(0, c.height, 2): d.line((0, y, c.width, y), fill={colour!r}, width=2)",
    "words_over": "d = ImageDraw.Draw(c)\nfor y in range(0, c.height, 5):\n"
    "    d.text((-3, y - 4), 'HHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHHH', fill={colour!r})",
}
"""Lines that modify a PIL picture `c` and keep its size."""


def _numbers(numbers: tuple[float, ...]) -> dict[str, float | str]:
    a, b = numbers[:2]
    return {
        "shade": integer(a, 0, 255),
        "bits": either(a, "1", "3", "7"),
        "small": within(a, 0.0, 0.05),
        "tiny": within(a, 0.0, 0.03),
        "nearly": within(a, 0.97, 1.0),
        "most": within(a, 0.75, 0.97),
        "sigma": within(a, 4.0, 80.0),
        "kernel": integer(a, 9, 41),
        "odd": 2 * integer(a, 5, 12) + 1,
        "axis": integer(a, 0, 1),
        "far": integer(a, 12, 60),
        "colour": either(b, "black", "white", "grey", "red"),
    }


def _lines(kind: str, lines: str) -> Operation:
    def apply(draft: Draft, numbers: tuple[float, ...]) -> None:
        if kind == "pil":
            draft.pil(colour=True)
        else:
            draft.array()
        values = _numbers(numbers)
        if "bits" in lines:
            values["bits"] = float(values["bits"])
        draft.add(*lines.format(**values).split("\n"))

    return apply


def tiny(draft: Draft, numbers: tuple[float, ...]) -> None:
    """Reduced to a handful of pixels."""
    w, h = integer(numbers[0], 1, 10), integer(numbers[1], 1, 10)
    _sized(draft, w, h, numbers)


def pixelated(draft: Draft, numbers: tuple[float, ...]) -> None:
    """Reduced to a handful of pixels, then enlarged again."""
    w, h = draft.width, draft.height
    tiny(draft, numbers)
    _sized(draft, w, h, numbers[1:])


def quarter(draft: Draft, numbers: tuple[float, ...]) -> None:
    """Reduced until hatching disappears."""
    by = within(numbers[0], 0.1, 0.45)
    draft.pil()
    w, h = max(1, round(draft.width * by)), max(1, round(draft.height * by))
    draft.add(f"c = c.resize(({w}, {h}), Image.BOX)")
    draft.move(scaled(w / draft.width, h / draft.height), w, h)


def thin(draft: Draft, numbers: tuple[float, ...]) -> None:
    """A few pixels high, or wide."""
    side = integer(numbers[0], 1, 3)
    w, h = (draft.width, side) if numbers[1] < 0.5 else (side, draft.height)
    _sized(draft, w, h, numbers[2:])


def _sized(draft: Draft, w: int, h: int, numbers: tuple[float, ...]) -> None:
    if numbers[-1] < 0.5:
        draft.pil()
        draft.add(f"c = c.resize(({w}, {h}))")
    else:
        draft.array()
        draft.add(f"c = cv2.resize(c, ({w}, {h}), interpolation=cv2.INTER_AREA)")
    draft.move(scaled(w / draft.width, h / draft.height), w, h)


def corner(draft: Draft, numbers: tuple[float, ...]) -> None:
    """A few pixels from its corner."""
    draft.array()
    w, h = (
        min(integer(n, 2, 9), side) for n, side in zip(numbers, (draft.width, draft.height), strict=False)
    )
    draft.add(f"c = c[:{h}, :{w}]")
    draft.move(np.eye(3), w, h)


def lost(draft: Draft, numbers: tuple[float, ...]) -> None:
    """Small on a huge canvas."""
    draft.pil(colour=True)
    side = integer(numbers[0], 900, 2000)
    x, y = (round(n * (side - 200)) for n in numbers[1:3])
    draft.add(
        f"canvas = Image.new('RGB', ({side}, {side}), {either(numbers[3], 'black', 'white')!r})",
        f"canvas.paste(c, ({x}, {y}))",
        "c = canvas",
    )
    draft.move(shifted(x, y), side, side)


def pushed_out(draft: Draft, numbers: tuple[float, ...]) -> None:
    """Pasted beyond the edge of a canvas."""
    draft.pil(colour=True)
    w, h = draft.width, draft.height
    x = w - integer(numbers[0], 1, 4)
    draft.add(f"canvas = Image.new('RGB', ({w}, {h}))", f"canvas.paste(c, ({x}, 0))", "c = canvas")
    draft.move(shifted(x, 0), w, h)


def under(draft: Draft, numbers: tuple[float, ...]) -> None:
    """Pasted on a canvas, with something else pasted over it."""
    draft.pil(colour=True)
    w, h = draft.width, draft.height
    draft.add(
        f"canvas = Image.new('RGB', ({w}, {h}))",
        "canvas.paste(c, (0, 0))",
        f"over = Image.new('RGB', {(max(1, w - 2), max(1, h - 2))}, {either(numbers[0], 'black', 'grey')!r})",
        "canvas.paste(over, (1, 1))",
        "c = canvas",
    )


def other_content(draft: Draft, numbers: tuple[float, ...]) -> None:
    """Another part of the input pasted over it."""
    draft.pil(colour=True)
    x, y = (integer(n, 0, 380) for n in numbers[:2])
    draft.add(f"c.paste(image.crop(({x}, {y}, {x} + 40, {y} + 40)).resize(c.size), (0, 0))")
    draft.places = ()


def transparent(draft: Draft, numbers: tuple[float, ...]) -> None:
    """Alpha 0 everywhere, flattened on black."""
    draft.pil(colour=True)
    draft.add(
        "c.putalpha(0)",
        "b = Image.new('RGBA', c.size, 'black')",
        "b.alpha_composite(c)",
        "c = b.convert('RGB')",
    )


def tall(draft: Draft, numbers: tuple[float, ...]) -> None:
    """A strip that becomes short when it is shown."""
    draft.pil()
    w, h = integer(numbers[0], 2, 12), integer(numbers[1], 400, 1200)
    draft.add(f"c = c.resize(({w}, {h}))")
    draft.move(scaled(w / draft.width, h / draft.height), w, h)


def mosaic_of_itself(draft: Draft, numbers: tuple[float, ...]) -> None:
    """Repeated until each copy is only a few pixels when it is shown."""
    draft.array()
    times = integer(numbers[0], 6, 12)
    if times * max(draft.width, draft.height) > 3000:
        return
    draft.add(f"c = np.tile(c, ({times}, {times}, 1) if c.ndim == 3 else ({times}, {times}))")
    draft.move(np.eye(3), draft.width * times, draft.height * times)


HOSTILE: dict[str, Operation] = {
    **{name: _lines("array", lines) for name, lines in ON_ARRAYS.items()},
    **{name: _lines("pil", lines) for name, lines in ON_PICTURES.items()},
    **{
        operation.__name__: operation
        for operation in (
            tiny,
            pixelated,
            quarter,
            thin,
            corner,
            lost,
            pushed_out,
            under,
            other_content,
            transparent,
            tall,
            mosaic_of_itself,
        )
    },
}
"""Operations that remove content, or make it too small to see."""
