"""From turns of text and pictures to token ids, through the policy's own chat template.

A conversation is only ever appended to: sampled tokens are never decoded and encoded again (token in, token
out).
"""

import functools
import re
from collections.abc import Sequence
from typing import Any

from vtune.errors import DataError
from vtune.models.families.family import Family
from vtune.models.pictures import Pixels
from vtune.schema.message import IMAGE, Message

_MARK = "\ue000"
"""Stands for a picture while the template is rendered; a private-use character."""

LATELY = 64
"""Number of texts whose tokens are cached, and of openings whose rendering is."""


class Chat:
    """Renders turns for one tokenizer.

    Args:
        tokenizer: A transformers tokenizer.
        family: The family whose tokens it has.

    Raises:
        DataError: If the tokenizer lacks one of the tokens, or a chat template that can print a conversation.
    """

    def __init__(self, tokenizer: Any, family: Family) -> None:
        self.tokenizer = tokenizer
        self.family = family
        if not tokenizer.chat_template:
            raise DataError(
                "the tokenizer has no chat template", fix="add chat_template.jinja to the model folder"
            )
        names = family.tokens.placeholders
        ids = tokenizer.convert_tokens_to_ids(list(names))
        if any(i is None or i == tokenizer.unk_token_id for i in ids):
            raise DataError(
                f"the tokenizer lacks one of {', '.join(names)}",
                fix="use a vision-language model with the tokenizer that it was trained with",
            )
        self.opens_id, self.image_id, self.closes_id = ids[:3]
        self.end_id = int(tokenizer.eos_token_id)
        self.pad_id = int(tokenizer.pad_token_id)
        turn = tokenizer.convert_tokens_to_ids(family.tokens.turn)
        self.banned_ids: tuple[int, ...] = tuple(sorted({*ids, turn, self.pad_id} - {None, self.end_id}))
        """Never sampled: a placeholder without a picture, or a forged turn, would break the conversation."""
        special = sorted(
            {str(t) for t in tokenizer.all_special_tokens}
            | {str(t) for t in tokenizer.get_added_vocab() if str(t).startswith(family.tokens.marks)},
            key=len,
            reverse=True,
        )
        self._special = re.compile("|".join(map(re.escape, special)))
        probe = ("user", "1"), ("assistant", "\ue001"), ("user", "\ue002")
        # The rollouts of a group have the same opening.
        self._tokens = functools.lru_cache(maxsize=LATELY)(self._tokenized)
        self._texts = functools.lru_cache(maxsize=LATELY)(self._rendered)
        text = self._texts(probe)
        _, _, rest = text.partition("\ue001")
        self._before_user, mark, self._after_user = rest.partition("\ue002")
        if not mark:
            raise DataError(
                "the chat template does not print what it is given", fix="use an instruct model's template"
            )
        self._check_marks(text)
        self.opens_thoughts = self._after_user.rstrip().endswith(("<think>", "<thinking>"))
        """Whether the header of the assistant's turn opens its thoughts, so that the turn itself does not."""

    def prompt(self, messages: Sequence[Message], pixels: Sequence[Pixels]) -> list[int]:
        """Token ids of the opening turns, up to and including the header of the assistant's turn.

        Raises:
            DataError: If the chat template lacks support for these turns, or marks do not match pictures.
        """
        turns = ((one.role, self._clean(one.content).replace(IMAGE, _MARK)) for one in messages)
        return self._encode(self._texts(tuple(turns)), pixels)

    def observation(self, text: str, pixels: Sequence[Pixels], *, ended: bool) -> list[int]:
        """Token ids that close the assistant's turn, give it a tool's output and open its next turn.

        Args:
            text: The output, with one `<image>` per picture.
            pixels: Its pictures.
            ended: Whether the policy has already sampled the end of its turn.
        """
        before = self._before_user
        if ended:
            before = before.removeprefix(str(self.tokenizer.eos_token))
        return self._encode(before + self._clean(text).replace(IMAGE, _MARK) + self._after_user, pixels)

    def words(self, text: str) -> list[int]:
        """Token ids of text that an assistant writes (cold-start traces); special tokens are inert."""
        return list(self.tokenizer(self._clean(text), add_special_tokens=False)["input_ids"])

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of sampled tokens, without special tokens."""
        text: str = self.tokenizer.decode(list(token_ids), skip_special_tokens=True)
        return text

    def _check_marks(self, text: str) -> None:
        """Reject a template with a mark that is not a token: what it frames would not be read as a turn."""
        found = re.findall(rf"{re.escape(self.family.tokens.marks)}[^\s<>]*>", text)
        for mark in dict.fromkeys(found):
            if self.tokenizer.convert_tokens_to_ids(mark) in (None, self.tokenizer.unk_token_id):
                raise DataError(
                    f"the chat template writes {mark}, which is not a token of the tokenizer",
                    fix="fix chat_template.jinja in the model folder, or copy the one of an instruct model",
                )

    def _rendered(self, turns: tuple[tuple[str, str], ...]) -> str:
        """Render turns (role, content) with the template, including the header of the assistant's turn."""
        from jinja2 import TemplateError

        rows = [{"role": role, "content": content} for role, content in turns]
        try:
            text: str = self.tokenizer.apply_chat_template(rows, add_generation_prompt=True, tokenize=False)
        except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            # String methods that a template calls may raise any of these.
            raise DataError(
                f"the chat template cannot print a conversation of {', '.join(role for role, _ in turns)}: "
                f"{error}",
                fix="fix chat_template.jinja in the model folder, or copy the one of an instruct model",
            ) from error
        return text

    def _clean(self, text: str) -> str:
        """Text in which no special token is spelt out, so that data and tool output cannot forge a turn."""
        # A mark is replaced, not removed: the text around it must not combine into a token.
        plain = text.replace(_MARK, "\ufffd")
        return self._special.sub(lambda found: found[0].replace(*self.family.tokens.inert), plain)

    def _tokenized(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _encode(self, text: str, pixels: Sequence[Pixels]) -> list[int]:
        pieces = text.split(_MARK)
        if len(pieces) != len(pixels) + 1:
            raise DataError(f"a turn has {len(pieces) - 1} {IMAGE} mark(s) for {len(pixels)} picture(s)")
        ids: list[int] = []
        for index, piece in enumerate(pieces):
            if piece:
                ids += self._tokens(piece)
            if index < len(pixels):
                ids += [self.opens_id, *[self.image_id] * pixels[index].tokens, self.closes_id]
        return ids
