import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reward.build import LEVELS
from vtune.data import trails
from vtune.data.trail_world import make_world
from vtune.reward.audit import audit
from vtune.reward.evidence import Judges, score_call
from vtune.reward.evidence_passages import NAME, PassageJudge
from vtune.schema.message import Message
from vtune.schema.reward import Reward
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call, Trajectory
from vtune.tools import image_search, text_search

SEARCH = LEVELS.model_copy(update={"search_abilities": ("search",), "judges": (NAME,)})


def sample(**changes: object) -> Sample:
    values = {
        "id": "q",
        "source": "q",
        "prompt": (Message("user", "Where does the red road of Ulm lead?"),),
        "ground_truth": "Bad Orb",
        "verifier": "exact",
        "ability": "search",
        "tools": (text_search.NAME,),
    }
    return Sample(**(values | changes))  # type: ignore[arg-type]


def found(output: str, **changes: object) -> Call:
    call = Call(tool=text_search.NAME, arguments="{}", status="ok", output=output)
    return replace(call, **changes)  # type: ignore[arg-type]


def shows(asked: Sample, call: Call) -> bool:
    """Whether a trajectory with one call shows the answer."""
    one = Trajectory(sample_id="q", source="q", calls=(call,))
    return asyncio.run(PassageJudge(SEARCH).shows_target(asked, one, 0))


@pytest.mark.parametrize(
    ("output", "held"),
    [
        ("1. Ulm\nThe red road leads to bad orb.", True),
        ("1. Ulm\nThe red road leads to Bad Orben.", False),
        ("1. Ulm\nA bad road. 2. Orb\nA town.", False),
        ("No matching passages were found.", False),
        ("1. Ulm\nNothing.\naddresses:\nhttp://bad-orb.de", False),
    ],
)
def test_the_answer_is_looked_for_as_whole_words(output: str, held: bool) -> None:
    assert shows(sample(), found(output)) is held


def test_if_documents_are_named_only_they_count() -> None:
    gold = sample(extra={"documents": ["Ulm"]})
    assert not shows(gold, found("1. Trier\nThe red road leads to Bad Orb."))
    assert shows(gold, found("1. Trier\nA town.\n\n2. Ulm\nThe red road leads to Bad Orb."))
    assert shows(sample(ground_truth="7", extra={"documents": ["Ulm"]}), found("1. Ulm\nIt has 7."))


def test_a_summary_has_no_title_and_counts_by_its_text() -> None:
    gold = sample(extra={"documents": ["Ulm"]})
    assert shows(gold, found("The red road of Ulm leads to Bad Orb."))
    assert shows(gold, found("Bad Orb\nThe red road leads there.\naddresses:\nhttp://a.de"))
    assert not shows(gold, found("The results say nothing about it."))
    short = sample(ground_truth="7", extra={"documents": ["Ulm"]})
    assert not shows(short, found("Ulm has 7 roads."))


def test_a_list_in_a_document_is_part_of_it() -> None:
    listed = "1. Ulm\nIts roads:\n1. The blue road leads to Trier.\n2. The red road leads to Bad Orb."
    gold = sample(extra={"documents": ["Ulm"]})
    assert shows(gold, found(listed))
    assert shows(gold, found(f"{listed}\n\n2. Trier\nA town."))
    assert not shows(gold, found("1. Trier\nIts roads:\n1. Ulm\nThe red road leads to Bad Orb."))


@pytest.mark.parametrize(
    "output",
    [
        "1. Steps\nDo this.\n\n2. Then that.\n\n2. Ulm\nIt leads to Bad Orb.",
        "1. Steps\n\n1. This.\n\n2. That.\n\n3. Those.\n\n2. Ulm\nIt leads to Bad Orb.\n\n3. Trier\nA town.",
        "1. Ulm\nIts roads:\n\n1. Blue.\n\n2. The red road leads to Bad Orb.\n\n2. Trier\nA town.",
    ],
)
def test_a_list_with_empty_lines_in_a_document_is_part_of_it(output: str) -> None:
    gold = sample(extra={"documents": ["Ulm"]})
    assert shows(gold, found(output))
    assert not shows(sample(extra={"documents": ["Steps", "Trier"]}), found(output))


def test_a_list_in_a_summary_has_no_titles() -> None:
    summary = "Two roads:\n\n1. The blue road.\n\n2. The red road leads to Bad Orb."
    assert shows(sample(extra={"documents": ["Ulm"]}), found(summary))


@given(st.lists(st.lists(st.integers(1, 6), max_size=4), min_size=1, max_size=5), st.data())
def test_the_named_document_is_found_despite_lists_in_others(
    lists: list[list[int]], data: st.DataObject
) -> None:
    gold = data.draw(st.integers(0, len(lists) - 1))
    bodies = ["\n\n".join(["It says:", *(f"{number}. Item" for number in items)]) for items in lists]
    bodies[gold] = "The red road leads to Bad Orb."
    output = "\n\n".join(f"{n}. Town {n}\n{body}" for n, body in enumerate(bodies, start=1))
    for n in range(1, len(lists) + 1):
        named = sample(extra={"documents": [f"Town {n}"]})
        assert shows(named, found(output)) is (n == gold + 1)


def test_found_pictures_follow_line_by_line() -> None:
    gold = sample(extra={"documents": ["Ulm"]}, tools=(image_search.NAME,))
    both = "1. Trier\nA town.\n<image>\n2. Ulm\nThe red road leads to Bad Orb.\n<image>"
    assert shows(gold, found(both, tool=image_search.NAME))
    assert not shows(gold, found(both.replace("Ulm", "Worms"), tool=image_search.NAME))


@pytest.mark.parametrize(
    ("answer", "text", "held"),
    [
        ("乌尔姆大教堂", "世界上最高的教堂是乌尔姆大教堂，高一百六十一米。", True),
        ("乌尔姆大教堂", "世界上最高的教堂是科隆大教堂。", False),
        ("北京", "中国的首都是北京。", True),
        ("京", "中国的首都是北京。", False),
        ("ウルム大聖堂", "ウルム大聖堂は世界で最も高い教会である。", True),
        ("울름", "울름의 대성당은 높다.", True),
        ("กรุงเทพ", "เมืองหลวงคือกรุงเทพมหานคร", True),
        ("Málaga", "Picasso was born in Ma\u0301laga.", True),
        ("２０１９年", "It opened in 2019年.", True),
        ("Ulm", "Ulmer Münster", False),
        ("केला", "आगरा का किला लाल है।", False),
        ("केला", "यह केला है।", True),
    ],
)
def test_in_scripts_without_spaces_the_answer_is_found_within_words(
    answer: str, text: str, held: bool
) -> None:
    assert shows(sample(ground_truth=answer), found(f"1. x\n{text}")) is held
    titled = sample(ground_truth=answer, extra={"documents": ["Cafe\u0301"]})
    assert shows(titled, found(f"1. Café\n{text}")) is (held or answer == "京")


@pytest.mark.parametrize(
    ("answer", "text", "held"),
    [
        ("1234", "It has 1,234 steps.", True),
        ("1,234", "It has 1234 steps.", True),
        ("1,234,567", "It has 1234567 people (1,234 of them old).", True),
        ("1234567", "It has 1\u202f234\u202f567 people.", True),
        ("1234567", "It has 1'234'567 people.", True),
        ("1234.5", "It is 1,234.5 m long.", True),
        ("345", "It has 12,345 steps.", False),
        ("123456", "The rooms 123,456 are his.", True),
        ("1234", "The rooms 1,234,5 are his.", False),
        ("1234", "The rooms 1 234 are his.", False),
        ("1234", "It is 1.234 m long.", False),
        ("0.125", "It is 0,125 m long.", True),
        ("1234", "It is 1234.5 m long.", False),
        ("1234", "It is 1,234.5 m long.", False),
        ("125", "It is 0.125 m long.", False),
        ("125", "It is 0,125 m long.", False),
        ("1234.5", "It is 1234.5 m long.", True),
        ("1234", "It is 1234.", True),
        ("1990", "It opened on 3.10.1990.", True),
    ],
)
def test_a_number_is_matched_as_a_whole(answer: str, text: str, held: bool) -> None:
    assert shows(sample(ground_truth=answer), found(f"1. x\n{text}")) is held


@pytest.mark.parametrize(
    ("answer", "text", "held"),
    [
        ("the nab eno!", "It leads to Nab Eno.", True),
        ("the Beatles", "Beatles fans came.", True),
        ("Beatles", "It is by the Beatles.", True),
        ("Washington, D.C.", "He lived in Washington DC for years.", True),
        ("Washington DC", "He lived in Washington, D.C., for years.", True),
        ("J.R.R. Tolkien", "It is by J. R. R. Tolkien.", True),
        ("JRR Tolkien", "It is by J.R.R. Tolkien.", True),
        ("Schindler's List", "Schindlers List was shown.", True),
        ("The Who", "It is by those who came.", False),
        ("The Who", "It is by the Who.", True),
        ("The The", "By the river.", False),
        ("The 1975", "It is of 1975.", False),
        ("A-Team", "It is by a new team.", False),
        ("D.C.", "The dc motor.", False),
        ("a", "It is a road.", False),
        ("the Beatles", "Beatlesque songs.", False),
        ("the Beatles", "Beatles sang.", True),
        ("Shell", "She'll be there.", False),
        ("Cant", "He can't.", False),
        ("Well", "We'll come.", False),
        ("Hell", "He\u2019ll come.", False),
        ("Were", "We're here.", False),
        ("W.H.O.", "Those who came.", False),
        ("W.H.O.", "It is of the WHO.", True),
        ("N.O.W.", "It is now.", False),
        ("The Doors", "He painted doors.", False),
        ("The Doors", "The Doors played.", True),
        ("The Wire", "It is a copper wire.", False),
        ("The Times", "Many times he came.", False),
        ("The A-Team", "He leads a team.", False),
    ],
)
def test_leading_articles_and_punctuation_are_ignored(answer: str, text: str, held: bool) -> None:
    assert shows(sample(ground_truth=answer), found(f"1. x\n{text}")) is held


@pytest.mark.parametrize(
    ("answer", "text", "held"),
    [("U.S.", "He told us so.", False), ("U.S.", "He left the US.", True), ("I.T.", "It is red.", False)],
)
def test_a_short_answer_without_its_dots_is_recognised_by_case(answer: str, text: str, held: bool) -> None:
    named = sample(ground_truth=answer, extra={"documents": ["Ulm"]})
    assert shows(named, found(f"1. Ulm\n{text}")) is held


def test_an_option_means_its_text_and_printed_output_counts_for_nothing() -> None:
    choice = sample(ground_truth="B", choices=("Worms", "Trier"))
    assert shows(choice, found("1. Ulm\nTo Trier."))
    assert not shows(choice, found("1. Ulm\nB"))
    assert not shows(sample(), found("Bad Orb", tool="python"))
    assert not shows(sample(), found("Bad Orb", status="error"))


@given(st.text(max_size=60), st.text(max_size=20))
def test_any_text_is_judged_without_an_error(output: str, answer: str) -> None:
    assert shows(sample(ground_truth=answer), found(output)) in (True, False)


def test_a_search_is_rewarded_and_audited_by_the_same_judge() -> None:
    right = Reward(total=None, accuracy=1.0, format=1.0, tool=None, why="")
    asked = sample()
    both = [
        Trajectory(sample_id="q", source="q", calls=(found(output),), reward=right)
        for output in ("1. Ulm\nTo Bad Orb.", "1. Ulm\nA town.")
    ]
    judges = Judges(SEARCH, None)
    scores = [asyncio.run(score_call(asked, one, 0, judges)).score for one in both]
    assert scores == [SEARCH.full, SEARCH.miss]
    rows = asyncio.run(audit([asked], both, judges))
    assert [(row.any_faithful, row.by, row.helpful) for row in rows] == [(True, NAME, 1), (False, NAME, 0)]


def test_a_search_whose_result_was_never_shown_earns_nothing() -> None:
    call = found("1. Ulm\nTo Bad Orb.", unseen=True)
    right = Reward(total=None, accuracy=1.0, format=1.0, tool=None, why="")
    one = Trajectory(sample_id="q", source="q", calls=(call,), reward=right)
    verdict = asyncio.run(score_call(sample(), one, 0, Judges(SEARCH, None)))
    assert (verdict.score, verdict.why) == (0.0, "not seen: the conversation ended before")
    (row,) = asyncio.run(audit([sample()], [one], Judges(SEARCH, None)))
    assert (row.any_faithful, row.helpful) == (False, 0)


def test_on_trails_verdicts_agree_with_their_construction() -> None:
    world = make_world(40, 20, seed=0)
    made = list(trails.traces(world, 90, seed=0))
    stream = trails.trails(world, seed=0, split="traces")
    samples = {t.sample_id: trails._sample(next(stream), t.sample_id) for t in made}
    told = {True: 0, False: 0}
    for trace in made:
        asked = samples[trace.sample_id]
        held = any(shows(asked, call) for call in trace.calls)
        if trace.answer == asked.ground_truth and held:
            told[True] += 1
        elif not held:
            # After a wrong road or an early stop, the policy has not read where the right road leads.
            assert trace.answer != asked.ground_truth or asked.extra["documents"] == []
            told[False] += 1
    assert min(told.values()) > 5


def test_if_the_intermediate_fact_is_known_only_passages_that_name_it_count() -> None:
    """SimpleVQA: the question leads via an entity, and the answer alone may be as short as a digit."""
    asked = sample(ground_truth="7", extra={"atomic_fact": "Ulm Minster"})
    assert not shows(asked, found("1. Cologne\nIts cathedral has 7 bells."))
    assert shows(asked, found("1. Ulm Minster\nIt has 7 bells."))
    assert shows(asked, found("1. Bells\nThe ulm minster has 7."))
    assert not shows(asked, found("1. Ulm Minsters\nThey have 7."))
    judge = Judges(SEARCH, None)
    for output, level in (
        ("1. Ulm Minster\nIt has 7 bells.", SEARCH.full),
        ("1. Ulm Minster\nA church.", SEARCH.partial),
        ("1. Cologne\nIts cathedral has 7 bells.", SEARCH.miss),
    ):
        trajectory = Trajectory(sample_id="q", source="q", calls=(found(output),))
        assert asyncio.run(score_call(asked, trajectory, 0, judge)).score == level
        assert shows(asked, found(output)) is (level == SEARCH.full)
