# MUST NOT: leave the runner without a free descriptor
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: rlimits

import os

held = []
try:
    while len(held) < 100_000:
        held.append(os.open(os.devnull, os.O_RDONLY))
    print("DONE", len(held))
except OSError:
    pass
image.convert("RGB")
