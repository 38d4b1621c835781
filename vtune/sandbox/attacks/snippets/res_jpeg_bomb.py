# MUST NOT: give a JPEG or a BMP a head that promises gigabytes
# CHECK: host memory flat; next call answered
# SOFT: 2
# LAYER: collector

import io
import struct

buffer = io.BytesIO()
Image.new("RGB", (8, 8)).save(buffer, "JPEG")
content = bytearray(buffer.getvalue())
at = content.index(b"\xff\xc0") + 5
content[at : at + 4] = struct.pack("!HH", 65_535, 65_535)
open("large.jpg", "wb").write(content)
head = struct.pack("<2sIHHI", b"BM", 1 << 31, 0, 0, 54)
for name, width, height, bits, packing in (
    ("large.bmp", 60_000, 60_000, 24, 0),
    ("negative.bmp", 60_000, -60_000, 32, 0),
    ("packed.bmp", 30_000, 30_000, 8, 1),
):
    open(name, "wb").write(
        head + struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, packing, 0, 0, 0, 0, 0)
    )
print("made")
