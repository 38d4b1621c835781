"""`vtune doctor`: what this machine can run, what it cannot and why, and how to fix that."""

import asyncio
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from vtune.errors import ServiceError
from vtune.runs import versions
from vtune.sandbox import Sandbox

COMMAND_SECONDS = 60.0
"""Importing torch from a cold disk takes a while."""
OPTIONAL = {"vllm>=0.32,<0.34": "only for rollouts with vLLM"}
"""Packages that vtune does not require, with the supported version range, and what they are for."""
SHARED_MEMORY = Path("/dev/shm")
SHARED_MEMORY_GB = 4.0
"""Shared memory for NCCL, vLLM and data loaders of a few processes. Ours; containers have 0.06 by default."""
DRIVERS = {12: 525, 13: 580}
"""CUDA version -> the oldest driver that supports it (NVIDIA, CUDA compatibility)."""
LAYERS = {
    "landlock": ("landlock",),
    "seccomp": ("seccomp",),
    "namespaces": ("namespace", "unshare"),
    "private_uid": ("uid", "user number"),
}
"""Layer of the sandbox -> words that identify a note about it."""


def run_doctor(
    recipe: str | None = None, *, overrides: Sequence[str] = (), self_test: bool = False
) -> dict[str, Any]:
    """Check this machine, and what a recipe needs. Nothing is changed.

    Torch is imported only if there is a GPU or a recipe.

    Args:
        recipe: Name or path of a recipe to check against the machine, its data and its services.
        overrides: Overrides of the recipe, `key.path=value`, applied in order.
        self_test: Also test whether this machine does what it should, see `vtune.runs.plan.self_test`.

    Returns:
        `ok` (no check fails, and the sandbox can run or is not needed), `python`, `system`, `cores`,
        `memory_gb` and `memory_available_gb`, `disk_free_gb` (of the current folder), `gpus` (lines of
        nvidia-smi), `cuda` (what torch sees: a count, or why there are none), `packages` (each `name`,
        `wanted`, `installed`, `ok`, `note`), `checks` (each `name`, `level`: ok, warn or fail, `found`,
        `fix`), `sandbox` (`tier`, `layers` each with `name`, `on`, `why`, `capacity`, `notes`, and `needed`:
        false if the recipe runs no code), and `fixes`.

    Raises:
        RecipeError: If the recipe cannot be read.
    """
    asked, needed = [], True
    if recipe is not None:
        # First, so that a recipe that cannot be read is reported before anything is started.
        from vtune.runs.plan.checks import check_recipe, read_recipe
        from vtune.runs.plan.needs import runs_code

        read = read_recipe(recipe, overrides)
        asked, needed = check_recipe(read), runs_code(read)
    packages = _packages()
    gpus = _gpus()
    cuda = _cuda() if gpus else "no GPU"
    sandbox = asyncio.run(_sandbox()) | {"needed": needed}
    memory = _memory()
    shared = shutil.disk_usage(SHARED_MEMORY).total if SHARED_MEMORY.is_dir() else None
    checks = [_shared_memory(shared), *_driver(gpus, cuda), *asked]
    if self_test:
        from vtune.runs.plan import self_test as trials

        checks += trials.self_test()
    return {
        "ok": not _lacks_sandbox(sandbox) and all(check["level"] != "fail" for check in checks),
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": memory["MemTotal"],
        "memory_available_gb": memory["MemAvailable"],
        "disk_free_gb": _gb(shutil.disk_usage(Path.cwd()).free),
        "gpus": gpus,
        "cuda": cuda,
        "packages": packages,
        "checks": checks,
        "sandbox": sandbox,
        "fixes": [*_fixes(packages, gpus, cuda, sandbox), *_asked(checks)],
    }


def _shared_memory(size: float | None) -> dict[str, str]:
    if size is None:
        fix = f"`mkdir {SHARED_MEMORY}; mount -t tmpfs -o size=16g shm {SHARED_MEMORY}`"
        return {"name": "shared memory", "level": "fail", "found": f"there is no {SHARED_MEMORY}", "fix": fix}
    found = f"{SHARED_MEMORY} holds {_gb(size)} GB"
    if size >= SHARED_MEMORY_GB * 1e9:
        return {"name": "shared memory", "level": "ok", "found": found, "fix": ""}
    fix = "start the container with --shm-size=16g, or `mount -o remount,size=16g /dev/shm`"
    return {"name": "shared memory", "level": "warn", "found": found, "fix": fix}


def _driver(gpus: Sequence[str], cuda: str) -> list[dict[str, str]]:
    """Whether the driver is new enough for torch's CUDA version; empty without a GPU."""
    if not gpus:
        return []
    version = gpus[0].rsplit(",", 1)[-1].strip()
    built = cuda.rpartition("CUDA ")[2].split(".")[0]
    least = DRIVERS.get(int(built)) if built.isdigit() else None
    found = f"{version}; {cuda}"
    if least is None or int(version.split(".")[0]) >= least:
        return [{"name": "driver", "level": "ok", "found": found, "fix": ""}]
    fix = f"install driver {least} or newer, or a torch that was built for an older CUDA"
    return [{"name": "driver", "level": "fail", "found": found, "fix": fix}]


def _asked(checks: Sequence[dict[str, str]]) -> list[str]:
    """Remedies from the checks, failures first."""
    wanted = [check for level in ("fail", "warn") for check in checks if check["level"] == level]
    return [f"{check['name']}: {check['fix']}" for check in wanted if check["fix"]]


def _gb(size: float) -> float:
    return round(size / 1e9, 1)


def _memory() -> dict[str, float]:
    """The entries of /proc/meminfo, in GB."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return {name: _gb(int(rest.split()[0]) * 1024) for name, rest in (line.split(":") for line in lines)}


def _packages() -> list[dict[str, Any]]:
    """Every package that vtune requires, and the optional ones."""
    rows = versions.packages()
    for line, purpose in OPTIONAL.items():
        row = versions.package(Requirement(line))
        absent = row["installed"] is None
        rows.append(row | ({"ok": True, "note": f"optional: {purpose}"} if absent else {}))
    return rows


def _gpus() -> list[str]:
    """One line per GPU, as reported by the driver: name, memory, driver version."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    found = _said(["nvidia-smi", *query])
    return [line.strip() for line in found.splitlines() if line.strip()]


def _cuda() -> str:
    """What torch reports about the GPUs; in a separate process, since importing it takes seconds."""
    code = "import torch; print(torch.version.cuda, torch.cuda.device_count())"
    words = _said([sys.executable, "-c", code]).split()
    if len(words) != 2 or not words[1].isdigit():
        return "torch cannot be imported"
    version, count = words
    if version == "None":
        return "torch was built without CUDA"
    return f"torch sees {count} GPU(s) with CUDA {version}"


def _said(command: Sequence[str]) -> str:
    """The output of a command; empty if it fails."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout if ended.returncode == 0 else ""


async def _sandbox() -> dict[str, Any]:
    """The tier that a training run would get, from a sandbox that is actually started."""
    try:
        async with Sandbox(warm=0) as sandbox, await sandbox.open([], seed=0) as session:
            info = sandbox.info()
            tried = await session.run("print('ready')")
    except ServiceError as error:
        notes = [error.what, *([f"fix: {error.fix}"] if error.fix else [])]
        return {"tier": None, "layers": [], "capacity": 0, "notes": notes}
    if tried.status != "ok":
        return {"tier": None, "layers": [], "capacity": 0, "notes": [f"a session failed: {tried.error}"]}
    notes = [str(note) for note in info["notes"]]
    layers = [_layer(name, info["layers"].get(name), notes) for name in LAYERS]
    return {"tier": info["tier"], "layers": layers, "capacity": info["capacity"], "notes": notes}


def _lacks_sandbox(sandbox: Mapping[str, Any]) -> bool:
    return sandbox["needed"] and sandbox["tier"] is None


def _layer(name: str, value: object, notes: Sequence[str]) -> dict[str, Any]:
    about = [note for note in notes if any(word in note.lower() for word in LAYERS[name])]
    level = f"ABI {value}" if name == "landlock" and value else ""
    return {"name": name, "on": bool(value), "why": level if value else "; ".join(about)}


def _fixes(
    packages: list[dict[str, Any]], gpus: Sequence[str], cuda: str, sandbox: dict[str, Any]
) -> list[str]:
    """What to do, most urgent first."""
    fixes = []
    if _lacks_sandbox(sandbox):
        fixes.append(
            "sandbox: run on Linux 5.13 or newer with Landlock (listed in /sys/kernel/security/lsm), or as"
            " root where namespaces can be created, unless a line above names another remedy; `--sandbox"
            " unsafe` trains without protection"
        )
    elif sandbox["tier"] == "flat":
        fixes.append(
            "sandbox: run as root, or allow user namespaces, to hide the names and sizes of host files too"
        )
    if remedy := versions.remedy(packages):
        fixes.append(f"packages: {remedy}")
    if gpus and (not cuda.startswith("torch sees") or cuda.startswith("torch sees 0")):
        fixes.append("GPU: install a torch that was built for the driver's CUDA, see https://pytorch.org")
    return fixes
