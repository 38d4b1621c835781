# MUST NOT: close the channel or the output
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: protocol

import os

os.closerange(0, 4096)
while True:
    pass
