"""Attention over a tree-shaped row as on a GPU, where masks are given only as named shapes."""

from dataclasses import replace

import pytest
import torch

from vtune.models.attention import _mask, layout, tree_attention
from vtune.models.tree import Segment

SEGMENTS = (Segment(0, 0, 5, ()), Segment(0, 5, 9, (0,)), Segment(1, 5, 8, (0,)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gpu_masks_are_equivalent_to_cpu_masks(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    length = sum(segment.end - segment.start for segment in SEGMENTS)
    query = torch.randn(1, 4, length, 8).to(dtype)
    key, value = (torch.randn(1, 2, length, 8).to(dtype) for _ in range(2))
    of_cpu = layout(SEGMENTS, torch.device("cpu"))
    names = [mask if mask is None else _mask(*mask.shape, torch.device("cuda")) for mask in of_cpu.masks]
    found = [
        tree_attention(query, key, value, row, scaling=0.3) for row in (of_cpu, replace(of_cpu, masks=names))
    ]
    torch.testing.assert_close(*found, rtol=0, atol=1e-5 if dtype == torch.float32 else 2e-2)
