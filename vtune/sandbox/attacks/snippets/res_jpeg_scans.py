# MUST NOT: keep whoever decodes busy for a minute with a JPEG of thousands of passes that say nothing
# CHECK: host memory flat; next call answered
# SOFT: 2
# LAYER: collector

import io
import struct

file = io.BytesIO()
Image.new("RGB", (4900, 4900), (90, 120, 40)).save(file, "JPEG", progressive=True, quality=50)
content = file.getvalue()
parts, at = [], 2
while content[at + 1] != 0xD9:
    end = at + 2 + struct.unpack(">H", content[at + 2 : at + 4])[0]
    if content[at + 1] == 0xDA:
        end = next(k for k in range(end, len(content)) if content[k] == 0xFF and content[k + 1] not in (0, *range(0xD0, 0xD8)))
    parts.append(content[at:end])
    at = end
scans = [number for number, part in enumerate(parts) if part[1] == 0xDA]
again = b"".join(parts[scans[-2] + 1 :])
for number, times in enumerate((60, 300, 3000)):
    # A thumbnail in front that pretends to be the picture.
    head = b"\xff\xd8" + (b"\xff\xe1" + struct.pack(">H", 8) + b"\xff\xda\xff\xd9\xff\xd8" if number else b"")
    open(f"scans{number}.jpg", "wb").write(head + b"".join(parts) + again * times + b"\xff\xd9")
print("made")
