# MUST NOT: sleep through the time limit
# CHECK: killed or timeout within soft+grace
# SOFT: 1
# LAYER: timer

import select
import time

print("good night", flush=True)
try:
    time.sleep(3600)
finally:
    select.select([], [], [], 3600)
