# MUST NOT: end the process and be taken for an honest end
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: protocol

import os

print("so far", flush=True)
os._exit(0)
