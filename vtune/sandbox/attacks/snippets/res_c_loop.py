# MUST NOT: stay inside one long call of a library written in C
# CHECK: killed or timeout within soft+grace
# SOFT: 1
# LAYER: timer

import collections
import itertools

collections.deque(itertools.count(), maxlen=0)
