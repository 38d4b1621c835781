# MUST NOT: read keys and histories of the host's user
# CHECK: refused
# SOFT: 2
# LAYER: landlock

import os


def attempt(what, action):
    try:
        result = action()
    except Exception as error:
        print("refused", what, type(error).__name__, str(error)[:80])
    else:
        print("DONE", what, repr(result)[:120])


for home in ("/root", os.path.expanduser("~"), "/home/user", "/home/ubuntu"):
    for name in (
        ".ssh/id_rsa",
        ".ssh/authorized_keys",
        ".netrc",
        ".bash_history",
        ".aws/credentials",
        ".cache/huggingface/token",
        ".gitconfig",
        ".config/pip/pip.conf",
        ".bashrc",
        ".profile",
    ):
        attempt(f"{home}/{name}", lambda: len(open(f"{home}/{name}", "rb").read()))
for path in (
    "/etc/shadow",
    "/etc/ssh/sshd_config",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/hostname",
    "/var/run/secrets",
    "/run/secrets",
    "/proc/1/environ",
    "/.dockerenv",
    "/sys/class/dmi/id/product_uuid",
):
    attempt(path, lambda: len(open(path, "rb").read()))
