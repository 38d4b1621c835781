# MUST NOT: read the requests meant for the runner
# CHECK: killed or timeout within soft+grace; next call answered
# SOFT: 1
# LAYER: protocol

import os

print(os.read(10, 1000))
print(os.read(10, 1000))
