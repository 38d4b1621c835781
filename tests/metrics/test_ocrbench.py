"""OCRBench v2: means of categories, means of questions, and no mean while a score is deferred."""

from dataclasses import replace

import pytest

from vtune.metrics.benchmarks import Mark
from vtune.metrics.ocrbench import ocrbench, ocrbench_weighted

MARKS = {
    "text_recognition_en": [1.0, 1.0, 0.0],
    "text_spotting_en": [0.5],
    "text_recognition_cn": [0.0, 0.5],
}


def marks(values: dict[str, list[float | None]]) -> list[Mark]:
    return [
        Mark(f"{name}/{number}", {"category": name}, value, unreadable=False, waits=value is None)
        for name, scores in values.items()
        for number, value in enumerate(scores)
    ]


def test_authors_average_categories_and_lmms_eval_averages_questions() -> None:
    found = ocrbench(marks(MARKS))  # type: ignore[arg-type]
    assert found["en"] == pytest.approx((2 / 3 + 0.5) / 2)
    assert found["cn"] == 0.25
    assert found["score"] == pytest.approx(((2 / 3 + 0.5) / 2 + 0.25) / 2)
    assert "intervals" not in found
    weighted = ocrbench_weighted(marks(MARKS))  # type: ignore[arg-type]
    assert weighted["en"] == pytest.approx(2.5 / 4)
    assert weighted["score"] == pytest.approx(3.0 / 6)
    assert weighted["intervals"]["score"]["value"] == pytest.approx(0.5)


@pytest.mark.parametrize("scorer", [ocrbench, ocrbench_weighted])
def test_a_deferred_score_removes_only_the_means_it_belongs_to(scorer: object) -> None:
    found = scorer(marks(MARKS | {"text_spotting_en": [0.5, None]}))  # type: ignore[operator,arg-type]
    assert "score" not in found
    assert "en" not in found
    assert found["cn"] == 0.25
    assert "score" not in found["categories"]["text_spotting_en"]
    assert found["categories"]["text_recognition_en"]["score"] == pytest.approx(2 / 3)
    assert found["unscored"] == 1


def unscored(values: dict[str, list[float | None]]) -> list[Mark]:
    """A reply without a score that is not deferred to an official script."""
    return [replace(mark, waits=False) for mark in marks(values)]


def test_unscored_replies_have_no_weight() -> None:
    found = ocrbench_weighted(unscored(MARKS | {"text_spotting_en": [0.5, None, None, None]}))
    assert found["en"] == pytest.approx(2.5 / 4)
    assert found["score"] == pytest.approx(3.0 / 6)


def test_without_a_mean_for_one_language_there_is_no_overall_mean() -> None:
    found = ocrbench(unscored(MARKS | {"text_spotting_en": [None]}))
    assert found.keys().isdisjoint({"en", "score", "intervals"})
    assert found["cn"] == 0.25
    only = ocrbench(marks({"text_recognition_cn": [0.0, 0.5]}))
    assert only["score"] == only["cn"] == 0.25
