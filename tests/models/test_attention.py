"""Attention over a row that is a tree, as a GPU gets it: masks that are names of shapes."""

import pytest
import torch

from vtune.models.attention import layout, tree_attention
from vtune.models.tree import Segment

SEGMENTS = (Segment(0, 0, 5, ()), Segment(0, 5, 9, (0,)), Segment(1, 5, 8, (0,)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_masks_of_a_gpu_mean_what_those_of_a_cpu_mean(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    length = sum(segment.end - segment.start for segment in SEGMENTS)
    query = torch.randn(1, 4, length, 8).to(dtype)
    key, value = (torch.randn(1, 2, length, 8).to(dtype) for _ in range(2))
    found = [
        tree_attention(query, key, value, layout(SEGMENTS, torch.device(device)), scaling=0.3)
        for device in ("cpu", "cuda")
    ]
    torch.testing.assert_close(*found, rtol=0, atol=1e-5 if dtype == torch.float32 else 2e-2)
