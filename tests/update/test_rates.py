"""Recognising a GPU by its driver name, as MFU is a share of its peak."""

import pytest

from vtune.errors import RecipeError
from vtune.update.rates import GPUS, device_called, device_like, device_named


@pytest.mark.parametrize(
    ("name", "memory_gb", "known"),
    [
        ("NVIDIA H100 80GB HBM3", 85, "H100"),
        ("NVIDIA H100 PCIe", 85, "H100 PCIe"),
        ("NVIDIA H100 NVL", 100, "H100 NVL"),
        ("NVIDIA H200", 150, "H200"),
        ("NVIDIA H200 NVL", 150, "H200 NVL"),
        ("NVIDIA GH200 480GB", 102, "H200"),
        ("NVIDIA A100 80GB PCIe", 85, "A100"),
        ("NVIDIA A100-PCIE-40GB", 42, "A100 40GB"),
        ("NVIDIA B200", 192, "B200"),
        ("NVIDIA GB200", 198, None),
        ("NVIDIA H20", 103, "H20"),
        ("NVIDIA H800", 85, "H800"),
        ("NVIDIA H800 PCIe", 85, "H800 PCIe"),
        ("NVIDIA A800-SXM4-80GB", 85, "A800"),
        ("NVIDIA RTX A6000", 51, "RTX A6000"),
        ("NVIDIA GeForce RTX 5090", 34, "RTX 5090"),
        ("NVIDIA GeForce RTX 5090 D", 34, None),
        ("NVIDIA GeForce RTX 4090", 25, "RTX 4090"),
        ("NVIDIA GeForce RTX 4090 D", 25, None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 17, None),
        ("NVIDIA RTX A1000", 8, None),
        ("NVIDIA H100X", 85, None),
        ("NVIDIA H100NVL", 100, "H100 NVL"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10, None),
    ],
)
def test_a_gpu_is_not_mistaken_for_a_faster_one(name: str, memory_gb: float, known: str | None) -> None:
    found = device_named(name, memory_gb)
    assert (found and found.name) == known


def test_plans_for_other_machines_assume_the_faster_gpu_of_equal_memory() -> None:
    assert [device_like(size).name for size in (24, 40, 80, 94, 141)] == [
        "RTX 4090",
        "A100 40GB",
        "H100",
        "H100 NVL",
        "H200",
    ]


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("a100", "A100"),
        ("A100-80GB", "A100"),
        ("A100 40GB", "A100 40GB"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("h100-nvl", "H100 NVL"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("RTX4090", "RTX 4090"),
        ("rtx5090", "RTX 5090"),
        ("RTXA6000", "RTX A6000"),
        ("H100NVL", "H100 NVL"),
        ("H200NVL", "H200 NVL"),
        ("H100PCIe", "H100 PCIe"),
        ("h100pcie", "H100 PCIe"),
        ("H100SXM", "H100"),
        ("H100SXM5-80GB", "H100"),
        ("A100SXM4", "A100"),
        ("A100SXM4-40GB", "A100 40GB"),
        *((gpu.name, gpu.name) for gpu in GPUS),
    ],
)
def test_a_gpu_is_recognised_by_common_names(name: str, known: str) -> None:
    assert device_called(name).name == known


@pytest.mark.parametrize(
    "name", ["A10", "H1000", "", "80", "A100 24GB", "H100X", "H100SXMX", "GH200", "gh200", "XH100NVL"]
)
def test_an_unknown_gpu_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(RecipeError) as refused:
        device_called(name)
    assert "A100" in refused.value.fix
