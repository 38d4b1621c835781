"""Protocols: the prompt bytes, the parser and the aggregation by which a benchmark is asked and scored.

To add one: write its file, which adds itself to `PROTOCOLS`, and a line in `OURS` (`vtune.parts`).
"""

from typing import Annotated

from pydantic import AfterValidator

from vtune.protocols.protocol import Protocol
from vtune.registry import Parts

PROTOCOLS: Parts[Protocol] = Parts("protocol", lambda protocol: protocol.about, Protocol)
"""Name on the command line and in a suite -> protocol."""

ProtocolName = Annotated[str, AfterValidator(PROTOCOLS.known)]
