# MUST NOT: fill the disk with names: long ones, made and renamed without end
# CHECK: host disk flat; next call answered
# SOFT: 3
# LAYER: quota

import os

os.mkdir("names")
for number in range(1500):
    open(f"names/{'l' * 240}{number}", "x").close()
for turn in range(60_000):
    old, new = ("lm", "ml")[turn // 1500 % 2]
    os.rename(f"names/{old * 240}{turn % 1500}", f"names/{new * 240}{turn % 1500}")
