# MUST NOT: make folders without end, wide and deep
# CHECK: killed; host disk flat
# SOFT: 6
# LAYER: quota

import os

for number in range(50_000):
    os.mkdir(f"d{number}")
print("DONE 50000 folders")
