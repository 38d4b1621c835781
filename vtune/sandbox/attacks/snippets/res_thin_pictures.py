# MUST NOT: return kilobytes that become gigabytes when a picture one pixel wide is padded or enlarged
# CHECK: host memory flat; next call answered
# SOFT: 6
# LAYER: collector

import io

for number, (mode, size) in enumerate(
    [("L", (24_000_000, 1)), ("1", (1, 20_000_000)), ("RGB", (200_000, 1)), ("L", (60_000, 2)), ("P", (1, 65_000))]
):
    file = io.BytesIO()
    Image.new(mode, size).save(file, "PNG")
    # Bypass the hooks of `save`, so that only the file itself can tell.
    open(f"thin{number}.png", "wb").write(file.getvalue())
for kind, size in (("JPEG", (65_000, 1)), ("WEBP", (16_000, 1)), ("GIF", (1, 65_000)), ("BMP", (2_000_000, 1))):
    file = io.BytesIO()
    Image.new("RGB", size).save(file, kind)
    open(f"thin.{kind.lower()}", "wb").write(file.getvalue())
print("made")
