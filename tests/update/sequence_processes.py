"""Writes log-probabilities and gradients of rows shared by two processes to a file."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor

from tests.conftest import load
from tests.models.kernel import KERNEL, varlen_attn
from tests.update.build import items, without_picture
from vtune.models.policy import Policy
from vtune.models.row_attention import use_one_call
from vtune.models.sequence_parallel import SequenceGroup, Stretches, stretches
from vtune.update.batch import Item, dummy_item, micro_batch
from vtune.update.forward import PolicyForward, checkpoint_activations
from vtune.update.ranks import Ranks
from vtune.update.sequence import sequence_group
from vtune.update.starting import start

Numbers = dict[str, Tensor]


def many(policy: Policy) -> list[Item]:
    """Six conversations, some with a common prefix, about pictures of three sizes."""
    found = items(policy, 6)
    long = replace(found[0], token_ids=[*found[0].token_ids[:-2], *found[3].token_ids[-9:]])
    counted = [False] * (len(long.token_ids) - 11) + [True] * 11
    return [*found, replace(long, loss_mask=counted)]


def one_picture(policy: Policy) -> list[Item]:
    """One process has no picture to encode, and the other none in its tokens."""
    return [items(policy, 2)[1]]


def one_token(policy: Policy) -> list[Item]:
    """One process has no token to score."""
    one = items(policy, 3)[2]
    return [replace(one, loss_mask=[False] * (len(one.token_ids) - 1) + [True])]


def in_text(policy: Policy) -> list[Item]:
    """Only the dummy item has a picture."""
    found = [without_picture(item, policy) for item in items(policy, 4)]
    return [*found, dummy_item(policy.chat, policy.pictures)]


def short(policy: Policy) -> list[Item]:
    """One process has all tokens, as if rows had fewer tokens than there are processes."""
    return one_picture(policy)


def in_one_call(policy: Policy) -> list[Item]:
    """Two processes attend to all segments in one call; the single process for comparison does not."""
    return many(policy)


CASES: dict[str, Callable[[Policy], list[Item]]] = {
    one.__name__: one for one in (many, one_picture, one_token, in_text, short, in_one_call)
}


def numbers(policy: Policy, given: list[Item], group: SequenceGroup | None) -> Numbers:
    """The results of a forward and a backward pass, with only this process's gradients."""
    forward = PolicyForward(policy.model, policy.chat, group).train()
    batch = micro_batch(given, policy)
    count = len(batch.targets)
    stats = forward(batch.packed, batch.predicting, batch.targets, 3 if count > 3 else 1)
    policy.model.zero_grad()
    # A different weight per token, plus products of neighbours as in sequence-level losses.
    weights = torch.linspace(-1, 2, count, device=stats.logprobs.device)
    (stats.logprobs @ weights + (stats.logprobs[1:] * stats.logprobs[:-1]).sum() / count).backward()
    found = {"logprobs": stats.logprobs.detach(), "entropy": stats.entropy}
    for name, parameter in policy.model.named_parameters():
        assert parameter.grad is not None, name
        found[name] = parameter.grad
    return found


def all_first(tokens: int, group: SequenceGroup) -> Stretches:
    return Stretches(group, (tokens, *[0] * (group.size - 1)))


def main(even: str, even3: str, out: str) -> None:
    torch.set_num_threads(1)
    ranks = start(Ranks.of_this_process())
    group = sequence_group(ranks, 2)
    found: dict[tuple[str, str], Numbers] = {}
    for folder in (even, even3):
        policy = load(Path(folder))
        checkpoint_activations(policy.model)
        for case, items_of in CASES.items():
            if items_of is in_one_call:
                use_one_call(policy.model)  # the last case
            split = all_first if items_of is short else stretches
            with patch(KERNEL, varlen_attn), patch("vtune.update.forward.stretches", split):
                mine = numbers(policy, items_of(policy), group)
            for name, value in mine.items():
                if name not in ("logprobs", "entropy"):
                    torch.distributed.all_reduce(value)
            found[folder, case] = {name: value.clone() for name, value in mine.items()}
    if ranks.first:
        torch.save(found, out)
    ranks.wait()
