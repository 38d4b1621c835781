# MUST NOT: confuse the collector by files that become folders and back under one name
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: collector

import os

small = image.convert("RGB").resize((8, 8))
small.save("a.png")
os.unlink("a.png")
os.mkdir("a.png")
small.save("a.png/a.png")
os.mkdir("a.png/b.png")
small.save("c.png")
os.rename("c.png", "d.jpg")
os.mkdir("c.png")
os.mkdir("figure_1.png")
os.mkdir("shown_1.png")
try:
    image.show()
except OSError as error:
    print("refused", error.strerror)
print("ready")
