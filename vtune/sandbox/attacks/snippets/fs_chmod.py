# MUST NOT: change mode, owner, times or attributes of host files (a call may claim success and do nothing)
# CHECK: canary unchanged; input image unchanged
# SOFT: 2
# LAYER: seccomp

import os

targets = ["{{CANARY}}/victim.txt", "{{CANARY}}", image_path, ".."]
for path in targets:
    for change in (
        lambda: os.chmod(path, 0o777),
        lambda: os.chown(path, 12345, 12345),
        lambda: os.lchown(path, 12345, 12345),
        lambda: os.utime(path, (1, 1)),
        lambda: os.setxattr(path, "user.mark", b"1"),
        lambda: os.chmod(os.open(path, os.O_RDONLY), 0o777),
        lambda: os.utime(os.open(path, os.O_RDONLY), (1, 1)),
    ):
        try:
            change()
            print("returned", path)
        except OSError as error:
            print("refused", error.strerror)
