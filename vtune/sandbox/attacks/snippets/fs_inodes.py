# MUST NOT: use up the inodes with folders, files and links side by side
# CHECK: killed; host disk flat
# SOFT: 6
# LAYER: quota

import os

for number in range(50_000):
    os.mkdir(f"d{number}")
    open(f"d{number}/f", "w").close()
print("DONE 100000 inodes")
