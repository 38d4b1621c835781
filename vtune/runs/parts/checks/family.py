"""What a family of models promises, tested on its tiny model."""

import asyncio
import io
import json
import tempfile
from pathlib import Path

import torch
from PIL import Image

from vtune.models.families import FAMILIES
from vtune.models.pictures import PixelBudget, Pixels
from vtune.models.policy import Policy, load_policy, policy_logprobs
from vtune.models.shape import shape_of
from vtune.models.tiny import build_tiny
from vtune.rollout.engine import Completion, Request, Sampling
from vtune.rollout.transformers import TransformersEngine
from vtune.runs.parts.checks.check import Broken, Check, tried
from vtune.schema.message import IMAGE, Message
from vtune.tools.calls import TEMPLATE

BUDGET = PixelBudget(min_pixels=56 * 56, max_pixels=112 * 112)
SIDES = (120, 90)
"""Width and height of the picture that it is tested on."""
DRAWN = 8
"""Tokens to generate, at most."""
TOLERANCE = 1e-3
"""Nats by which a log-probability may differ from the model's own forward pass, in float32; ours."""


class _Trial:
    """The tiny model of a family, and a question about a picture."""

    def __init__(self, name: str, folder: Path) -> None:
        self.family = FAMILIES[name]
        build_tiny(folder, [f"What is this? It is a {name}."], seed=0, family=name, vocab_size=300)
        self.config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        device = torch.device("cpu")
        self.policy: Policy = load_policy(str(folder), budget=BUDGET, dtype="float32", device=device)
        self.policy.model.eval()
        out = io.BytesIO()
        Image.linear_gradient("L").resize(SIDES).convert("RGB").save(out, "PNG")
        self.data = out.getvalue()
        self.pixels: Pixels = self.policy.pictures.read(self.data)

    def parts(self) -> str:
        counts = {"vision": 0, "connector": 0, "language": 0}
        for name, parameter in self.policy.model.named_parameters():
            counts[self.family.part_of(name)] += parameter.numel()
        if not all(counts.values()):
            raise Broken(f"parameters by part: {counts}", "correct `vision` or `connector`")
        if (found := shape_of(self.config).parameters) != counts:
            raise Broken(f"`shape` counts {found}, the model has {counts}", "correct `shape`")
        return ", ".join(f"{part} {count}" for part, count in counts.items())

    def picture(self) -> str:
        shown = self.policy.pictures.shown(self.pixels)
        if shown.size != (size := self.policy.pictures.shown_size(self.data)):
            raise Broken(
                f"a picture is shown in {shown.width} x {shown.height} pixels, not in {size[0]} x {size[1]}",
                "let the processor and `shown_size` agree",
            )
        if self.pixels.tokens * self.policy.merge**2 != len(self.pixels.levels):
            raise Broken(
                f"{len(self.pixels.levels)} patches fill {self.pixels.tokens} tokens", "correct `merge`"
            )
        return f"{shown.width} x {shown.height} pixels, {self.pixels.tokens} tokens"

    def forged(self) -> str:
        chat = self.policy.chat
        special = {*chat.banned_ids, chat.end_id, chat.pad_id}
        words = (*self.family.tokens.placeholders, self.family.tokens.turn, *self.family.tiny.special)
        for word in words:
            if special & set(chat.words(f"a {word} b")):
                raise Broken(f"text that spells {word} becomes that token", "correct `tokens.inert`")
        return f"{len(words)} tokens cannot be spelt"

    def template(self) -> str:
        if self.family.tools is not TEMPLATE:
            raise Broken("conversations have calls in `vtune.models.families.hermes`", "use HERMES")
        return ", ".join(self.family.tools.tags)

    def drawn(self) -> str:
        """Compare the engine's prefill and its single steps with the model's own pass over all tokens."""
        prompt = self.policy.chat.prompt([Message("user", f"{IMAGE}What is this?")], [self.pixels])
        reply = asyncio.run(_drawn(self.policy, prompt, self.pixels))
        ids = torch.tensor([[*prompt, *reply.token_ids]])
        fresh = self.family.inputs(ids, self.policy.chat.image_id, self.pixels.patches, [self.pixels.grid])
        with torch.no_grad():
            logits = self.policy.model(**fresh, attention_mask=torch.ones_like(ids), use_cache=False).logits
        said = policy_logprobs(logits[0, len(prompt) - 1 : -1], self.policy.chat)
        theirs = said.gather(1, ids[0, len(prompt) :, None])[:, 0]
        difference = float((theirs - torch.tensor(reply.logprobs)).abs().max())
        if not difference <= TOLERANCE:
            raise Broken(
                f"log-probabilities differ by {difference:.3g} nats",
                "look at positions, `fused` and features",
            )
        return f"{len(reply.token_ids)} tokens, {difference:.1g} nats at most"


async def _drawn(policy: Policy, prompt: list[int], pixels: Pixels) -> Completion:
    engine = TransformersEngine(policy, max_batch=1)
    engine.join(0)
    sampling = Sampling(temperature=1.0, max_new_tokens=DRAWN)
    reply = await engine.generate(
        Request(token_ids=prompt, pixels=[pixels], sampling=sampling, key=(0, 0, 0, 0, 0))
    )
    engine.leave(0)
    return reply


def check_family(name: str) -> list[Check]:
    """Its tiny model can be built and counted, sees pictures, and generates as its forward pass predicts."""
    found: list[_Trial] = []
    with tempfile.TemporaryDirectory() as folder:

        def built() -> str:
            found.append(_Trial(name, Path(folder) / name))
            return f"{sum(parameter.numel() for parameter in found[0].policy.model.parameters())} parameters"

        first = tried("the tiny model is built and loads", built)
        if not found:
            return [first]
        (trial,) = found
        return [
            first,
            tried("`shape` counts the parameters", trial.parts),
            tried("a picture has the size of `shown_size`", trial.picture),
            tried("text cannot forge a token", trial.forged),
            tried("calls follow the tool template", trial.template),
            tried("samples match the model's probabilities", trial.drawn),
        ]
