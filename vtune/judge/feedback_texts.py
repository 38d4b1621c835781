"""Texts that tell a policy whether its looks helped, and how to find them in a conversation."""

import re

from vtune.schema.trajectory import Trajectory

HELPFUL = "This picture shows what was asked for."
UNHELPFUL = "This picture does not show what was asked for."
"""Ours; FaithEyes writes {"is_helpful": …, "reasons": …}."""

_VERDICT = re.compile(
    rf"""{re.escape(HELPFUL)}|(?P<no>{re.escape(UNHELPFUL)})|"is_helpful":\s*(?:true|(?P<nay>false))"""
)


def called_unhelpful(trajectory: Trajectory) -> frozenset[int]:
    """Indices of the calls whose pictures the conversation itself calls unhelpful.

    Verdicts are in the turn in which the pictures came back, in the order of the calls. If a turn has
    more or fewer verdicts than calls with pictures, they cannot be assigned, so none counts.

    Source: FaithEyes (Wang et al. 2026), whose sandbox judges each picture before the policy goes on.
    """
    found = set()
    for message in trajectory.messages:
        if message.role == "assistant" or not message.images:
            continue
        shown = [k for k, call in enumerate(trajectory.calls) if set(call.images) & set(message.images)]
        verdicts = list(_VERDICT.finditer(message.content))
        if len(verdicts) == len(shown):
            found |= {k for k, one in zip(shown, verdicts, strict=True) if one["no"] or one["nay"]}
    return frozenset(found)
