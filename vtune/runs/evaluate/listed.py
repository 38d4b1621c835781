"""`vtune eval --list`: every suite that ships, whether its data are present, and its protocols."""

from typing import Any

from vtune.config import load_recipe, shipped
from vtune.protocols import PROTOCOLS
from vtune.runs.evaluate.groups import GROUPS, SUITES, Group, is_here
from vtune.runs.evaluate.revisions import revisions
from vtune.runs.evaluate.suite import EvalSuite


def list_suites() -> dict[str, Any]:
    """All suites and groups.

    Returns:
        `suites`, by name: `rows`, `licence` (None: `licence_why` says why none is known), `md5` (of its file,
        checked on reading; None: unknown), `revision` (on the hub, checked if `hf download` recorded one;
        None: any is accepted), `data` (where it is looked for on this machine), `revisions` (recorded ones of
        what is here, by path), `here`, `get` (how to get it), `agent` and `protocol` (the defaults) and
        `protocols`. `groups`, by name: `members`, `without_suite` and `average`.
    """
    return {
        "suites": {name: _suite(load_recipe(path, EvalSuite)) for name, path in shipped(SUITES).items()},
        "groups": {
            name: load_recipe(path, Group).model_dump(mode="json") for name, path in shipped(GROUPS).items()
        },
    }


def _suite(suite: EvalSuite) -> dict[str, Any]:
    return {
        "rows": suite.published.rows,
        "licence": suite.published.licence,
        "licence_why": suite.published.licence_why,
        "revision": suite.published.revision,
        "revisions": revisions(suite.data),
        "md5": suite.published.md5,
        "data": list(suite.data),
        "here": is_here(suite),
        "get": suite.data_from,
        "agent": suite.agent,
        "protocol": suite.protocol,
        "protocols": [name for name, protocol in PROTOCOLS.items() if protocol.rule(suite.kind) is not None],
    }
