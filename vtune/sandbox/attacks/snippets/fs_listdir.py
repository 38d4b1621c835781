# MUST NOT: list host folders
# CHECK: names of canary files absent
# SOFT: 2
# LAYER: landlock

import glob
import os

print(glob.glob("{{CANARY}}/**", recursive=True))
print(list(os.walk("{{CANARY}}")))
for folder in ("{{CANARY}}", "{{ROOT}}", "/", "/root", "/home", "/tmp", "/etc", "/srv", "/proc", "/sys"):
    try:
        print(folder, sorted(os.listdir(folder))[:20])
    except OSError as error:
        print("refused", folder, error.strerror)
