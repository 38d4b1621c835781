# MUST NOT: make the collector follow a link to a host file
# CHECK: token absent; canary unchanged
# SOFT: 2
# LAYER: landlock

import os

for kind, make in (("symbolic", os.symlink), ("hard", os.link)):
    for target in ("{{CANARY}}/secret.png", "{{CANARY}}/secret.txt", "{{CANARY}}"):
        name = f"{kind}_{os.path.basename(target)}.png"
        try:
            make(target, name)
            print("made", name)
        except OSError as error:
            print("refused", name, error.strerror)
        try:
            print(open(name, "rb").read())
        except OSError as error:
            print("refused to read", error.strerror)
