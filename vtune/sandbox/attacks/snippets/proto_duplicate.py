# MUST NOT: put another file in the channel's place
# CHECK: killed or timeout within soft+grace; next call answered
# SOFT: 1
# LAYER: protocol

import os

os.dup2(os.open(os.devnull, os.O_RDWR), 10)
