"""The machines of a run: their names and GPUs, and which environment variables they receive."""

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from vtune.errors import RecipeError
from vtune.files.reading import read_text, why_unread

DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Device files of GPU drivers: NVIDIA's, AMD's, and that of Linux on Windows."""
SLOTS = "write one line per machine: `name slots=8`"
"""The format of a hostfile."""
NAME = re.compile(r"([\w.-]+@)?\w[\w.-]*")
"""A machine's name, optionally with a user. pdsh would read ranges in `[]`, and a transport before `:`."""
ALIAS = "give it a name: `Host NAME` with HostName in ~/.ssh/config; a line for each machine"
"""The remedy for IPv6 addresses and ranges."""

ENVIRONMENT = "environment.json"
"""In the folder `logs`, readable only by its owner, while a run on several machines lasts."""

DEEPSPEED_ENV = ".deepspeed_env"
"""In the home folder or the working directory."""

FORWARDED = (
    "HF_",
    "HUGGINGFACE_",
    "TRANSFORMERS_",
    "TORCH",
    "PYTORCH_",
    "TRITON_",
    "VLLM_",
    "NCCL_",
    "GLOO_",
    "MLFLOW_",
    "WANDB_",
    "TRACKIO_",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "OMP_NUM_THREADS",
    "UCX_",
    "XDG_CACHE_HOME",
)
"""Prefixes of the names of variables that mean the same on every machine of a run."""


OWN = ("VLLM_HOST_IP",)
"""Variables among them that differ between machines."""


def machines_of(hostfile: Path) -> dict[str, int]:
    """Machine -> GPUs that a hostfile (one line `name slots=N` per machine) lists for it, in order.

    Raises:
        RecipeError: If it cannot be read, names no machine, or names one twice, without slots, with anything
            after them, or by something that the launcher does not accept as a name.
    """
    try:
        lines = read_text(hostfile).splitlines()
    except FileNotFoundError:
        raise RecipeError(f"there is no hostfile {hostfile}", fix=SLOTS) from None
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(
            f"the hostfile {hostfile} cannot be read: {why_unread(error)}",
            fix=SLOTS,
        ) from None
    found: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        name, (key, _, slots) = words[0], (words[1] if len(words) > 1 else "").partition("=")
        # `#` begins a comment; anything else would have been meant to do something.
        more = len(words) > 2 and not words[2].startswith("#")
        again = _host(name) in map(_host, found)
        if key != "slots" or more or not slots.isdecimal() or int(slots) == 0 or again:
            what = f"{name} a second time" if again else f"{line.strip()!r}, not a name and its GPUs"
            raise RecipeError(f"{hostfile}, line {number} has {what}", fix=SLOTS)
        if not NAME.fullmatch(name):
            what = f"{name!r}, which pdsh does not read as one machine"
            raise RecipeError(f"{hostfile}, line {number} has {what}", fix=ALIAS)
        found[name] = int(slots)
    if not found:
        raise RecipeError(f"{hostfile} names no machine", fix=SLOTS)
    return found


def _host(name: str) -> str:
    """A machine's name without a user; upper and lower case mean the same."""
    return name.rpartition("@")[2].lower()


def included(hostfile: Path, processes: int) -> str:
    """The GPUs that a run uses on each machine, in the form of `CUDA_VISIBLE_DEVICES`.

    Those in this machine's `CUDA_VISIBLE_DEVICES`, or the first ones if it is not set.

    Raises:
        RecipeError: If a machine does not have them, or they are not given by number.
    """
    wanted = _visible(processes)
    for name, slots in machines_of(hostfile).items():
        if missing := [number for number in wanted if number >= slots]:
            raise RecipeError(
                f"GPU {missing[0]} is wanted on every machine, but {hostfile} gives {slots} of {name}: "
                f"0 to {slots - 1}",
                fix="lower --gpus, or raise slots; CUDA_VISIBLE_DEVICES, where set, says which are taken",
            )
    return ",".join(map(str, wanted))


def _visible(processes: int) -> list[int]:
    """Numbers of the GPUs to use on each machine."""
    said = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if not said:
        return list(range(processes))
    names = [name.strip() for name in said.split(",")]
    if not all(name.isdecimal() for name in names):
        raise RecipeError(
            f"CUDA_VISIBLE_DEVICES is {said}, but GPUs of other machines are known by number only",
            fix="give numbers, e.g. CUDA_VISIBLE_DEVICES=4,5,6,7",
        )
    if len(names) < processes:
        raise RecipeError(
            f"--gpus {processes}, but CUDA_VISIBLE_DEVICES names {len(names)}: {said}",
            fix="ask for fewer, or name more",
        )
    return [int(name) for name in names[:processes]]


def gpus_here() -> int:
    """Number of GPUs of this machine; if there is no driver, without loading torch, which takes long."""
    if not any(Path(driver).exists() for driver in DRIVERS):
        return 0
    import torch

    return torch.cuda.device_count()


def places(runs: int, processes: int) -> list[dict[str, str]]:
    """Environment variables for each of several simultaneous runs on this machine: separate GPUs if there are
    any, otherwise its share of the cores.

    Args:
        runs: Number of runs, at least one.
        processes: Processes per run, which gets as many GPUs. On a CPU, the user's `OMP_NUM_THREADS` applies
            if it is less than the share.

    Raises:
        RecipeError: If there are GPUs, but too few.
    """
    if runs == 1:
        return [{}]
    there = gpus_here()
    if not there:
        share = max(1, len(os.sched_getaffinity(0)) // (runs * processes))
        said = os.environ.get("OMP_NUM_THREADS", "")
        threads = min(share, int(said)) if said.isdecimal() else share
        return [{"OMP_NUM_THREADS": str(threads)} for _ in range(runs)]
    if runs * processes > there:
        most = f"--jobs {there // processes}" if processes <= there else f"--jobs 1 --gpus {there}"
        raise RecipeError(f"--jobs {runs} with {processes} GPUs each, but this machine has {there}", fix=most)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [*map(str, range(there))]
    starts = range(0, runs * processes, processes)
    return [{"CUDA_VISIBLE_DEVICES": ",".join(names[start : start + processes])} for start in starts]


def variables(values: Mapping[str, Any]) -> set[str]:
    """Names of environment variables that a recipe reads, e.g. API keys: values of `*_env`, at any depth."""
    found = {
        value
        for key, value in values.items()
        if isinstance(key, str) and key.endswith("_env") and isinstance(value, str)
    }
    return found.union(*(variables(one) for one in _sections(values)))


def _sections(values: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for value in values.values():
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, Mapping):
                yield one


def write_environment(logs: Path, names: Collection[str]) -> None:
    """Write this machine's variables that mean the same on the other machines to a file for them.

    A file and not the launcher's command line, which every user of either machine could read.

    Args:
        logs: The folder that all machines see.
        names: Variables in addition to those that are always forwarded.
    """
    chosen = {
        name: value
        for name, value in os.environ.items()
        if name in names or (name.startswith(FORWARDED) and name not in OWN)
    }
    chosen |= _of_deepspeed()
    file = logs / ENVIRONMENT
    file.unlink(missing_ok=True)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        json.dump(chosen, out)


def _of_deepspeed() -> dict[str, str]:
    """Variables that DeepSpeed users define for their other machines: one `NAME=value` per line."""
    found: dict[str, str] = {}
    for file in (folder / DEEPSPEED_ENV for folder in (Path.home(), Path.cwd())):
        lines = read_text(file).splitlines() if file.is_file() else []
        for number, line in enumerate(lines, start=1):
            name, equals, value = (part.strip() for part in line.partition("="))
            if not name or name.startswith("#"):
                continue
            if not equals:
                what = f"{file}, line {number} has {name!r}"
                raise RecipeError(what, fix="one line per variable: `NAME=value`")
            # With the syntax of a shell, to which DeepSpeed passes the line.
            found[name.removeprefix("export ").lstrip()] = value
    return found
