# MUST NOT: crash with a core file
# CHECK: broker alive; next call answered; nothing new beside the workspace
# SOFT: 2
# LAYER: fork server

import os
import resource

resource.getrlimit(resource.RLIMIT_CORE)
os.abort()
