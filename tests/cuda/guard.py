"""Compiles the fake CUDA device: `python -m tests.cuda.guard FILE` (`make guard`)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("guard.cpp")
TORCH = Path(torch.__file__).parent


def compiler() -> str | None:
    """The C++ compiler of this machine."""
    return shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")


def obstacle() -> str | None:
    """Why the device cannot be built here; None if it can."""
    if compiler() is None:
        return "there is no C++ compiler: install g++, or name one in CXX"
    if torch.backends.cuda.is_built():
        return "this torch is built for CUDA, whose place the device takes in one that is not"
    return None


def build(out: Path) -> None:
    """Compile it to a shared library."""
    if (reason := obstacle()) is not None:
        raise SystemExit(reason)
    out.parent.mkdir(parents=True, exist_ok=True)
    headers = [TORCH / "include", TORCH / "include/torch/csrc/api/include"]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"
    subprocess.run(
        [
            *(str(compiler()), "-O0", "-shared", "-fPIC", "-std=c++20", abi, str(SOURCE), "-o", str(out)),
            *(f"-I{folder}" for folder in headers),
            *(f"-L{TORCH / 'lib'}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{TORCH / 'lib'}"),
        ],
        check=True,
    )


def environment(library: Path) -> dict[str, str]:
    """The environment of a process that has the device."""
    return {**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"}


if __name__ == "__main__":
    build(Path(sys.argv[1]))
