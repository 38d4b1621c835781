# MUST NOT: change a picture that the trainer reads through a mapping that stays
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: freeze

import mmap
import os

small = image.convert("RGB").resize((64, 64))
small.save("mapped.png")
size = os.path.getsize("mapped.png")
descriptor = os.open("mapped.png", os.O_RDWR)
kept = mmap.mmap(descriptor, size)
os.ftruncate(descriptor, 10)
print("the file is shorter than its mapping")
