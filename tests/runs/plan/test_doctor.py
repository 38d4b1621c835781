"""`vtune doctor`."""

import json
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.report.test_tables import printed
from tests.runs.commands import vtune
from vtune.errors import SandboxUnavailable
from vtune.report.machine import render_machine
from vtune.runs import versions
from vtune.runs.plan import doctor


class NoSandbox:
    """A machine without any tier."""

    def __init__(self, **options: object) -> None:
        pass

    async def __aenter__(self) -> None:
        raise SandboxUnavailable("no tier: landlock: the kernel lacks it", fix="take another kernel")

    async def __aexit__(self, *error: object) -> None:
        pass


def test_the_doctor_reports_what_is_installed() -> None:
    ended = vtune("doctor", "--json")
    result = json.loads(ended.out)
    assert ended.code == (0 if result["sandbox"]["tier"] else 1)
    assert result["cores"] > 0
    assert 0 < result["memory_available_gb"] <= result["memory_gb"]
    rows = {row["name"]: row for row in result["packages"]}
    assert {"torch", "transformers", "deepspeed", "vllm", "numpy"} <= set(rows)
    assert "pytest" not in rows
    assert (rows["numpy"]["ok"], rows["numpy"]["wanted"]) == (True, ">=2")
    layers = {layer["name"] for layer in result["sandbox"]["layers"]}
    assert layers == {"landlock", "seccomp", "namespaces", "private_uid"}
    assert result["sandbox"]["capacity"] > 0


def test_a_machine_without_a_sandbox_is_reported_with_exit_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "Sandbox", NoSandbox)
    ended = vtune("doctor")
    assert (ended.code, ended.err) == (1, "")
    assert "sandbox: CANNOT RUN" in ended.out
    assert "landlock: the kernel lacks it" in ended.out
    assert "fix  sandbox:" in ended.out
    assert json.loads(vtune("doctor", "--json").out)["ok"] is False


@pytest.mark.parametrize(
    ("need", "installed", "ok", "note"),
    [
        ("torch>=2.11,<2.14", "2.13.0+cpu", True, ""),
        ("torch>=2.11,<2.14", "2.14.1", False, "outside the range that was tested"),
        ("torch>=2.11,<2.14", None, False, "not installed"),
    ],
)
def test_a_package_is_compared_with_its_range(
    need: str, installed: str | None, ok: bool, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "version_of", lambda name: installed)
    row = versions.package(Requirement(need))
    assert (row["installed"], row["ok"], row["note"]) == (installed, ok, note)


GPU = ["NVIDIA H200, 143771 MiB, 570.1"]
GOOD = {"tier": "namespaces", "needed": True}


@pytest.mark.parametrize(
    ("packages", "gpus", "cuda", "tier", "starts"),
    [
        ([], [], "no GPU", "namespaces", []),
        ([], GPU, "torch sees 1 GPU(s) with CUDA 13.0", "namespaces", []),
        ([], GPU, "torch sees 0 GPU(s) with CUDA 13.0", "namespaces", ["GPU:"]),
        ([], GPU, "torch was built without CUDA", "namespaces", ["GPU:"]),
        ([], [], "no GPU", "flat", ["sandbox: run as root"]),
        (
            [{"name": "a", "wanted": ">=2", "ok": False}],
            [],
            "no GPU",
            None,
            ["sandbox: run on", "packages: pip"],
        ),
    ],
)
def test_the_advice_follows_from_what_is_missing(
    packages: list[dict[str, Any]], gpus: list[str], cuda: str, tier: str | None, starts: list[str]
) -> None:
    fixes = doctor._fixes(packages, gpus, cuda, {"tier": tier, "needed": True})
    assert len(fixes) == len(starts)
    assert all(fix.startswith(start) for fix, start in zip(fixes, starts, strict=True))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("13.0 2\n", "torch sees 2 GPU(s) with CUDA 13.0"),
        ("None 0\n", "torch was built without CUDA"),
        ("", "torch cannot be imported"),
    ],
)
def test_what_torch_sees_of_the_gpus_is_reported(
    said: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_said", lambda command: said)
    assert doctor._cuda() == told


def test_a_failing_probe_command_gives_no_output() -> None:
    assert doctor._said(["false"]) == ""
    assert doctor._said(["/no/such/command"]) == ""
    assert doctor._said(["echo", "yes"]) == "yes\n"


def test_a_disabled_sandbox_layer_has_a_reason() -> None:
    notes = ["namespaces: flat was asked for", "something else"]
    assert doctor._layer("landlock", 7, notes) == {"name": "landlock", "on": True, "why": "ABI 7"}
    assert doctor._layer("landlock", 0, notes)["on"] is False
    assert doctor._layer("namespaces", False, notes)["why"] == "namespaces: flat was asked for"


def test_the_machine_is_shown_in_tables() -> None:
    notes = ["namespaces: not permitted", "a stray remark"]
    layers = [
        {"name": "namespaces", "on": False, "why": notes[0]},
        {"name": "seccomp", "on": True, "why": ""},
    ]
    result = {
        "python": "3.11.7 (/usr/bin/[x])",
        "system": "Linux",
        "cores": 2,
        "memory_gb": 25.3,
        "memory_available_gb": 20.0,
        "disk_free_gb": 83.5,
        "gpus": [],
        "cuda": "no GPU",
        "packages": [
            {"name": "torch", "wanted": "<3", "installed": None, "ok": False, "note": "not installed"}
        ],
        "checks": [{"name": "judge", "level": "fail", "found": "http://[x]: refused", "fix": "start it"}],
        "sandbox": {"tier": "flat", "layers": layers, "capacity": 7, "notes": notes, "needed": True},
        "fixes": ["packages: pip install 'torch<3'"],
    }
    text = printed(render_machine(result))
    for part in (
        "/usr/bin/[x]",
        "not installed",
        "tier flat",
        "room for 7 sessions",
        "fix  packages: pip",
        "http://[x]: refused",
    ):
        assert part in text
    assert "note: a stray remark" in text
    assert "note: namespaces" not in text
