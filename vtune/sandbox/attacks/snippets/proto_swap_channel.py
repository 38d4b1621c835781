# MUST NOT: answer oneself through a socket pair in the channel's place
# CHECK: killed or timeout within soft+grace; next call answered
# SOFT: 1
# LAYER: protocol

import os
import socket

ours, theirs = socket.socketpair()
kept = os.dup(10)
os.dup2(theirs.fileno(), 10)
os.set_inheritable(kept, True)
