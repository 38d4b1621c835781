# MUST NOT: turn the name of the input into a way out of the workspace
# CHECK: token absent; input image unchanged
# SOFT: 2
# LAYER: collector

import os

try:
    os.unlink(image_path)
    print("the workspace's own link is gone")
except OSError as error:
    print("refused", error.strerror)
for make in (os.symlink, os.link):
    try:
        make("{{CANARY}}/secret.png", image_path)
        print("linked")
    except OSError as error:
        print("refused", error.strerror)
try:
    os.mkdir(image_path)
    open(image_path + "/secret.png", "w").write("a folder in place of the input")
except OSError as error:
    print("refused", error.strerror)
