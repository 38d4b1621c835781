"""Log-probabilities by transformers' own modules in float32, without our fused modules or vLLM."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.models.rows import stock
from vtune.models.batch import Row
from vtune.models.policy import Policy, policy_logprobs
from vtune.rollout.engine import Completion, Request


@torch.no_grad()
def stock_logprobs(
    model: Path, policy: Policy, asked: Sequence[Request], drawn: Sequence[Completion]
) -> torch.Tensor:
    """Log-probabilities of all generated tokens under the weights of a folder, on the CPU.

    Args:
        model: The folder of the model.
        policy: The policy whose tokenizer and picture processing were used.
        asked: The prompts.
        drawn: The generated turn for each prompt.
    """
    from transformers import AutoModelForImageTextToText

    load: Any = AutoModelForImageTextToText.from_pretrained
    plain = load(model, dtype=torch.float32).to(policy.device).eval()
    found = []
    for request, one in zip(asked, drawn, strict=True):
        ids = torch.tensor([[*request.token_ids, *one.token_ids]], device=policy.device)
        given: dict[str, Any] = {}
        if request.pixels:
            given = stock(policy, [Row(request.token_ids, list(request.pixels))])
            given = {name: values.to(policy.device) for name, values in given.items()}
        out = plain(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            mm_token_type_ids=(ids == policy.chat.image_id).int(),
            **given,
        )
        before = len(request.token_ids)
        logprobs = policy_logprobs(out.logits[0, before - 1 : -1], policy.chat)
        found.append(logprobs.gather(1, ids[0, before:, None])[:, 0].cpu())
    return torch.cat(found)
