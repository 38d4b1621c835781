import pickle

import pytest

from vtune import errors
from vtune.errors import DataError, VtuneError

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, VtuneError)]


def test_the_kinds_are_found() -> None:
    assert {kind.__name__ for kind in KINDS} >= {"RecipeError", "DataError", "ServiceError", "RunFailed"}


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_survives_pickling_between_processes(kind: type[VtuneError]) -> None:
    error = pickle.loads(pickle.dumps(kind("what", where="row 3", fix="fix it")))
    assert (type(error), error.what, error.where, error.fix) == (kind, "what", "row 3", "fix it")


def test_an_error_says_what_where_and_the_next_step() -> None:
    assert str(DataError("no box", where="row 3", fix="draw one")) == "no box\n  at   row 3\n  fix  draw one"
    assert str(DataError("no box")) == "no box"
