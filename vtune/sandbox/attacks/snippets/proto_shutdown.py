# MUST NOT: shut down one direction of the channel
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: protocol

import os
import socket

channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=os.dup(10))
for how in (socket.SHUT_RD, socket.SHUT_WR):
    try:
        channel.shutdown(how)
    except OSError as error:
        print("refused", error.strerror)
