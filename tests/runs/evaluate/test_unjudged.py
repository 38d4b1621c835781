"""What is advised where replies stay without a grade."""

from vtune.runs.evaluate.unjudged import enough


def test_the_share_that_is_advised_is_enough_and_no_larger_than_it_must_be() -> None:
    for total in range(1, 301):
        for left in range(1, total + 1):
            found = enough(left, total)
            assert left <= float(f"{found:g}") * total
            assert left / total <= found + 1e-9 < left / total + 0.02
            assert found <= 1
    assert (enough(9, 100), enough(29, 100), enough(1, 3)) == (0.09, 0.3, 0.34)
