"""Operations on colour and brightness alone: a crop keeps its size and what it shows."""

from vtune.sandbox.attacks.programs.draft import Draft, Operation, within

TONES = {
    "contrast": ("pil", "c = ImageEnhance.Contrast(c).enhance({:.2f})", 0.5, 2.2),
    "brightness": ("pil", "c = ImageEnhance.Brightness(c).enhance({:.2f})", 0.6, 1.4),
    "colour": ("pil", "c = ImageEnhance.Color(c).enhance({:.2f})", 0.2, 3.0),
    "sharpness": ("pil", "c = ImageEnhance.Sharpness(c).enhance({:.2f})", 1.2, 4.0),
    "unsharp": ("pil", "c = c.filter(ImageFilter.UnsharpMask(2, {:.0f}, 3))", 60, 200),
    "sharpen": ("pil", "c = c.filter(ImageFilter.SHARPEN)", 0, 1),
    "detail": ("pil", "c = c.filter(ImageFilter.DETAIL)", 0, 1),
    "autocontrast": ("pil", "c = ImageOps.autocontrast(c, cutoff={:.0f})", 0, 2),
    "equalize": ("pil", "c = ImageOps.equalize(c)", 0, 1),
    "invert": ("pil", "c = ImageOps.invert(c)", 0, 1),
    "posterize": ("pil", "c = ImageOps.posterize(c, {:.0f})", 3, 6),
    "gamma": ("pil", "c = c.point(lambda v: int(255 * (v / 255) ** {:.2f}))", 0.5, 2.0),
    "palette": ("pil", "c = c.quantize({:.0f}).convert('RGB')", 16, 64),
    "clahe": (
        "lab",
        "l = cv2.cvtColor(c, cv2.COLOR_RGB2LAB)\n"
        "l[..., 0] = cv2.createCLAHE({:.1f}, (8, 8)).apply(l[..., 0])\n"
        "c = cv2.cvtColor(l, cv2.COLOR_LAB2RGB)",
        1.5,
        4.0,
    ),
    "scale_abs": ("lab", "c = cv2.convertScaleAbs(c, alpha={:.2f}, beta=5)", 0.7, 1.5),
    "stretch": ("lab", "c = cv2.normalize(c, None, 0, {:.0f}, cv2.NORM_MINMAX)", 180, 255),
    "lut": ("lab", "c = cv2.LUT(c, (255 * (np.arange(256) / 255) ** {:.2f}).astype(np.uint8))", 0.5, 2.0),
    "mild_blur": ("lab", "c = cv2.GaussianBlur(c, (0, 0), {:.2f})", 0.2, 0.5),
    "bilateral": ("lab", "c = cv2.bilateralFilter(c, 5, {:.0f}, 3)", 10, 40),
    "denoise": ("lab", "c = cv2.fastNlMeansDenoisingColored(c, None, {:.0f}, 3, 5, 9)", 1, 4),
    "unsharp_cv": (
        "lab",
        "c = cv2.addWeighted(c, {:.1f}, cv2.GaussianBlur(c, (0, 0), 2), -0.8, 0)",
        1.5,
        2.2,
    ),
    "kernel": (
        "lab",
        "c = cv2.filter2D(c, -1, np.array([[0, -1, 0], [-1, {:.1f}, -1], [0, -1, 0]]))",
        4.8,
        6.0,
    ),
    "mild_noise": (
        "lab",
        "c = np.clip(c + np.random.default_rng(0).normal(0, {:.1f}, c.shape), 0, 255).astype(np.uint8)",
        2,
        12,
    ),
    "jpeg": (
        "lab",
        "c = cv2.imdecode(cv2.imencode('.jpg', c, [cv2.IMWRITE_JPEG_QUALITY, {:.0f}])[1], 1)",
        60,
        95,
    ),
    "hsv_round_trip": (
        "lab",
        "h = cv2.cvtColor(c, cv2.COLOR_RGB2HSV)\n"
        "h[..., 2] = np.clip(h[..., 2] * {:.2f}, 0, 255).astype(np.uint8)\n"
        "c = cv2.cvtColor(h, cv2.COLOR_HSV2RGB)",
        0.8,
        1.2,
    ),
    "floats": ("lab", "c = (np.clip(c / 255 * {:.2f}, 0, 1) * 255).astype(np.uint8)", 0.8, 1.2),
}
"""Name -> (type that it works on, lines, bounds of its parameter). The size stays the same."""
GREYS = {
    "grey": "c = cv2.cvtColor(c, cv2.COLOR_RGB2GRAY)",
    "equalize_grey": "c = cv2.equalizeHist(cv2.cvtColor(c, cv2.COLOR_RGB2GRAY))",
    "red": "c = c[..., 0].copy()",
    "green": "c = np.ascontiguousarray(c[:, :, 1])",
    "blue": "c = cv2.split(c)[2]",
    "saturation": "c = cv2.cvtColor(c, cv2.COLOR_RGB2HSV)[..., 1].copy()",
    "value": "c = c.max(axis=2)",
    "lightness": "c = cv2.cvtColor(c, cv2.COLOR_RGB2LAB)[..., 0].copy()",
    "otsu": "c = cv2.threshold(cv2.cvtColor(c, cv2.COLOR_RGB2GRAY), 0, 255,"
    " cv2.THRESH_BINARY + cv2.THRESH_OTSU)[1]",
    "adaptive": "c = cv2.adaptiveThreshold(cv2.cvtColor(c, cv2.COLOR_RGB2GRAY), 255,"
    " cv2.ADAPTIVE_THRESH_GAUSSIAN_C, cv2.THRESH_BINARY, 11, 2)",
    "above_mean": "g = cv2.cvtColor(c, cv2.COLOR_RGB2GRAY)\n"
    "c = np.where(g > g.mean(), 255, 0).astype(np.uint8)",
    "sobel": "g = cv2.cvtColor(c, cv2.COLOR_RGB2GRAY).astype(np.float32)\n"
    "c = np.clip(np.hypot(cv2.Sobel(g, cv2.CV_32F, 1, 0), cv2.Sobel(g, cv2.CV_32F, 0, 1)), 0, 255)"
    ".astype(np.uint8)",
    "laplacian": "g = cv2.cvtColor(c, cv2.COLOR_RGB2GRAY)\n"
    "c = cv2.convertScaleAbs(cv2.Laplacian(g, cv2.CV_32F), alpha=2)",
    "canny": "c = cv2.Canny(c, 50, 150)",
    "tophat": "g = cv2.cvtColor(c, cv2.COLOR_RGB2GRAY)\n"
    "c = cv2.morphologyEx(g, cv2.MORPH_GRADIENT, np.ones((2, 2)))",
    "local_scatter": "g = cv2.cvtColor(c, cv2.COLOR_RGB2GRAY).astype(np.float32)\n"
    "c = np.clip(2 * np.sqrt(np.maximum(cv2.blur(g * g, (3, 3)) - cv2.blur(g, (3, 3)) ** 2, 0)), 0, 255)"
    ".astype(np.uint8)",
}
"""From colours to one channel. The size stays the same."""


def tone(kind: str, lines: str, low: float, high: float) -> Operation:
    """An entry of `TONES` as an operation; its parameter is scaled to between `low` and `high`."""

    def apply(draft: Draft, numbers: tuple[float, ...]) -> None:
        if kind == "pil":
            draft.pil(colour=True)
        else:
            draft.array(colour=True)
        draft.add(*lines.format(within(numbers[0], low, high)).split("\n"))

    return apply


def to_grey(lines: str) -> Operation:
    """An entry of `GREYS` as an operation."""

    def apply(draft: Draft, _: tuple[float, ...]) -> None:
        draft.array(colour=True)
        draft.add(*lines.split("\n"))
        draft.grey = True

    return apply
