# MUST NOT: swap names under the collector while it looks
# CHECK: canary unchanged; token absent; next call answered
# SOFT: 2
# LAYER: freeze

import os

os.mkdir("folder.png")
picture = image.convert("RGB").resize((8, 8))
for number in range(2000):
    picture.save("file.png")
    os.rename("file.png", "swap.tmp")
    os.rename("folder.png", "file.png")
    os.rename("swap.tmp", "folder.png.x")
    os.rename("file.png", "folder.png")
    os.rename("folder.png.x", "file.png")
    if number % 3 == 0:
        os.unlink("file.png")
print("swapped")
