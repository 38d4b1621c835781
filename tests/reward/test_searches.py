"""Reward-hacking searches, each next to similar honest ones."""

import asyncio
import dataclasses
import json
import time
from pathlib import Path

import pytest

import vtune.reward
from tests.reward.build import INPUT, recipe
from tests.reward.test_passages import SEARCH, sample, shows
from vtune.reward.audit import audit
from vtune.reward.evidence import Judges, score_call
from vtune.reward.score import Scorer
from vtune.reward.searches import repeated_searches
from vtune.schema.message import Message
from vtune.schema.reward import Reward
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call, Trajectory
from vtune.tools import image_search, text_search

GOOD = "1. Ulm\nThe red road of Ulm leads to Bad Orb."
MISS = "1. Trier\nTrier is a town on the Moselle."
ABOUT = "1. Bad Orb\nBad Orb is a spa town in Hesse."
FULL, MISSED = SEARCH.full, SEARCH.miss
EVERY = ("text_search_tool", "image_search_tool", "image_zoom_in_tool", "python")


def search(query: str, output: str, **changes: object) -> Call:
    call = Call(tool=text_search.NAME, arguments=json.dumps({"query": query}), status="ok", output=output)
    return dataclasses.replace(call, **changes)  # type: ignore[arg-type]


def done(*calls: Call, answer: str = "Bad Orb") -> Trajectory:
    written = '<tool_call>{"name": "text_search_tool", "arguments": {"query": "Ulm"}}</tool_call>'
    turns = [f"<think>Look.</think>{written}"] * len(calls)
    turns.append(f"<think>So.</think><answer>{answer}</answer>")
    messages = (Message("user", "?"), *(Message("assistant", turn) for turn in turns))
    return Trajectory(sample_id="q", source="q", messages=messages, calls=calls)


def scores(what: Sample, *calls: Call) -> list[float]:
    """The passage judge's score for each call, without red flags."""
    one, judges = done(*calls), Judges(SEARCH, None)
    return [asyncio.run(score_call(what, one, k, judges)).score for k in range(len(calls))]


def rewarded(what: Sample, *trajectories: Trajectory) -> list[Trajectory]:
    async def story() -> list[Trajectory]:
        async with Scorer(recipe(evidence=SEARCH)) as scorer:
            return await scorer.score([what], trajectories)

    return asyncio.run(story())


RED, BLUE = search("red road", GOOD), search("blue road", MISS)
CODE = Call(tool="python", arguments='{"code": "pass"}', status="ok")
PAGE = Call(tool="fetch", arguments='{"url": "http://ulm.de"}', status="ok", output="It leads to Bad Orb.")
SUMMARIES = [
    search("red road", "The red road of Ulm leads to Bad Orb."),
    search("road of Ulm", "According to the results, it leads to Bad Orb."),
    search("where it leads", "Bad Orb is where the red road ends."),
]
REPLIES = {
    "a good search": done(RED),
    "a good search, then one about the town that it found": done(RED, search("Bad Orb", ABOUT)),
    "a miss, then a good search": done(BLUE, RED),
    "a good search, then a page read with a tool of your own": done(RED, PAGE),
    "a good search, then other words for what it found": done(RED, search("road red", GOOD)),
    "a summary with the answer, then two in other words": done(*SUMMARIES),
    "a search that misses": done(BLUE),
    "a search for a guess": done(search("Bad Orb", ABOUT)),
    "a good search, then the same again": done(RED, RED),
    "no search": done(),
    "a search that found nothing": done(search("asdf", text_search.NOTHING)),
    "code beside the searches": done(CODE),
    "a search that cannot be": done(search("red road", "", status="error")),
    "a good search, and another answer": done(RED, answer="Trier"),
    "no search, and another answer": done(answer="Trier"),
}


def test_the_table_of_searches_on_the_reward_page_is_correct() -> None:
    page = (Path(vtune.reward.__file__).parent / "README.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in page.splitlines()]
    told = {row[0]: row[1:] for row in rows if row[0] in REPLIES}
    earned = [one.reward for one in rewarded(sample(tools=(*EVERY, "fetch")), *REPLIES.values())]
    expected = {
        reply: [f"{value:g}" for value in (r.accuracy, r.format, r.tool, r.total) if value is not None]
        for reply, r in zip(REPLIES, earned, strict=True)
        if r is not None
    }
    assert told == expected


def test_repeating_a_good_search_never_raises_the_score() -> None:
    honest, again, other_words = rewarded(
        sample(),
        done(BLUE, RED),
        done(BLUE, *[RED] * 8),
        done(BLUE, RED, *(search(f"red road {n}", GOOD) for n in range(7))),
    )
    assert honest.reward is not None
    assert again.reward is not None
    assert other_words.reward is not None
    assert (honest.reward.tool, again.calls[2].flags) == (0.625, ("repeated_search",))
    assert max(again.reward.tool or 0.0, other_words.reward.tool or 0.0) < 0.625


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ('{"query": "Red  road "}', '{"query": "red road"}', True),
        ('{"query": "a", "top_k": 3}', '{"top_k": 3, "query": "A"}', True),
        ("{}", "{}", True),
        ("no JSON", "NO  json", True),
        ('{"query": "red road"}', '{"query": "blue road"}', False),
        ('{"query": "red road"}', '{"query": "\\"red road\\""}', False),
        ('{"query": "a", "page": 1}', '{"query": "a", "page": 2}', False),
        ("[" * 100_000, "{}", False),
    ],
)
def test_a_search_repeats_another_by_tool_and_arguments(first: str, second: str, same: bool) -> None:
    calls = [search("", MISS, arguments=one) for one in (first, second)]
    assert repeated_searches(calls) == ({1} if same else set())
    assert not repeated_searches([calls[0], dataclasses.replace(calls[1], tool=image_search.NAME)])
    assert not repeated_searches([dataclasses.replace(one, tool="python") for one in calls])
    assert not repeated_searches([dataclasses.replace(calls[0], status="error"), calls[1]])
    assert not repeated_searches([dataclasses.replace(calls[0], unseen=True), calls[1]])


def test_a_passage_is_rewarded_once_and_a_new_one_still_counts() -> None:
    assert scores(sample(), RED, search("road of Ulm", GOOD)) == [FULL, 0.0]
    assert scores(sample(), RED, search("Ulm", f"{GOOD}\n\n2. Trier\nA town.")) == [FULL, MISSED]
    assert scores(sample(), BLUE, search("Ulm", f"{MISS}\n\n2. Ulm\nTo Bad Orb.")) == [MISSED, FULL]
    cut = search("Ulm road", "1. Ulm\nThe red road of Ulm leads to Bad Orb. It …")
    whole = search("Ulm", "1. Ulm\nThe red road of Ulm leads to Bad Orb. It is long.")
    assert scores(sample(), whole, cut) == [FULL, 0.0]
    assert scores(sample(), cut, whole) == [FULL, 0.0]
    before = search("Ulm road", "1. Ulm\nThe red road of Ulm …")
    assert scores(sample(), before, whole) == [MISSED, FULL]


def test_summaries_show_the_answer_once_however_worded() -> None:
    missed = search("blue road", "The results say nothing about it.")
    assert scores(sample(), *SUMMARIES) == [FULL, MISSED, MISSED]
    assert scores(sample(), SUMMARIES[0], SUMMARIES[0]) == [FULL, 0.0]
    assert scores(sample(), missed, *SUMMARIES[:2]) == [MISSED, FULL, MISSED]
    assert scores(sample(), search("Is it Bad Orb?", "It is Bad Orb."), *SUMMARIES[:1]) == [MISSED, FULL]
    pictured = search("", ABOUT, tool=image_search.NAME, arguments="{}")
    assert scores(sample(), SUMMARIES[0], pictured) == [FULL, FULL]
    right = Reward(total=1, accuracy=1, format=1, tool=None, why="")
    one = dataclasses.replace(done(*SUMMARIES), reward=right)
    (row,) = asyncio.run(audit([sample()], [one], Judges(SEARCH, None), every=True))
    assert (row.any_faithful, row.helpful) == (True, 1)


def test_summaries_show_the_intermediate_fact_once_and_then_the_answer() -> None:
    through = sample(extra={"atomic_fact": "Ulm Minster"})
    fact = search("the church", "It is the Ulm Minster.")
    again = search("church of Ulm", "The church is called Ulm Minster.")
    both = search("road at the church", "From the Ulm Minster it leads to Bad Orb.")
    last = search("church road", "Bad Orb is where the road of the Ulm Minster ends.")
    assert scores(through, fact, again, both, last) == [SEARCH.partial, MISSED, FULL, MISSED]


def test_unseen_results_do_not_count_as_shown() -> None:
    unseen = dataclasses.replace(RED, unseen=True)
    repeated = done(unseen, RED)
    (one,) = rewarded(sample(), repeated)
    assert (one.tool_scores, one.calls[1].flags) == ((0.0, FULL), ())
    assert scores(sample(), unseen, search("Bad Orb", ABOUT)) == [0.0, MISSED]


@pytest.mark.parametrize("output", ["", text_search.NOTHING, image_search.NOTHING])
def test_an_empty_or_invalid_search_earns_nothing(output: str) -> None:
    assert scores(sample(tools=EVERY), search("asdf", output)) == [0.0]
    other = [
        dataclasses.replace(CODE, status="limit"),
        CODE,
        search("", "Bad Orb", tool="image_zoom_in_tool"),
    ]
    assert scores(sample(tools=EVERY), *other) == [0.0] * 3


def test_a_custom_tool_is_a_miss_and_does_not_reduce_an_honest_second_hop() -> None:
    assert scores(sample(tools=(*EVERY, "fetch")), BLUE, PAGE, RED) == [MISSED, MISSED, FULL]


@pytest.mark.parametrize(
    ("answer", "query", "guessed"),
    [
        ("The Who", "who was the band at Leeds 1970", False),
        ("The Who", "the who leeds 1970", True),
        ("The Who", "Who, The (band)", True),
        ("New York", "york university new campus", False),
        ("New York", "campus york new", True),
        ("Second World War", "war in the second half of the 20th century world", False),
        ("Second World War", "was it the world war, second", True),
        ("The Band", "which band played at Woodstock", False),
        ("The Band", "the band woodstock", True),
        ("M\u00e1laga", "was it malaga", True),
        ("The The", "the river and the road", False),
    ],
)
def test_a_query_names_an_answer_if_its_words_are_adjacent(answer: str, query: str, guessed: bool) -> None:
    asked = sample(ground_truth=answer, prompt=(Message("user", "What is it?"),))
    output = f"1. x\nIt is {answer}."
    assert scores(asked, search(query, output)) == [MISSED if guessed else FULL]
    excused = dataclasses.replace(asked, prompt=(Message("user", f"{query}?"),))
    assert scores(excused, search(answer, output)) == [FULL if guessed else MISSED]


@pytest.mark.parametrize(
    "query", ["Bad Orb", "bad orb town", "Orb, Bad", "Trier Worms Bad Orb Bern", "Bad_Orb", "B\u00e1d Orb"]
)
def test_a_query_that_guesses_the_answer_shows_nothing(query: str) -> None:
    assert scores(sample(), search(query, ABOUT)) == [MISSED]
    assert (
        scores(sample(), search(query, ABOUT), search(f"{query} spa", f"{ABOUT} It is old.")) == [MISSED] * 2
    )
    gold = sample(extra={"documents": ["Bad Orb"]})
    assert scores(gold, search(query, ABOUT)) == [FULL]
    guessed = done(search(query, ABOUT))
    right = dataclasses.replace(guessed, reward=Reward(total=1, accuracy=1, format=1, tool=None, why=""))
    (row,) = asyncio.run(audit([sample()], [right], Judges(SEARCH, None)))
    assert row.any_faithful is False


def test_a_query_may_use_names_from_the_question_or_earlier_searches() -> None:
    about = search("Bad Orb", ABOUT)
    assert scores(sample(), RED, about) == [FULL, FULL]
    pictured = search("", "1. Bad Orb, marketplace\n<image>", tool=image_search.NAME, arguments="{}")
    assert scores(sample(), pictured, about) == [FULL, FULL]
    assert scores(sample(tools=(*EVERY, "fetch")), PAGE, about) == [MISSED, FULL]
    printed = dataclasses.replace(CODE, output="Bad Orb")
    assert scores(sample(tools=EVERY), printed, about) == [0.0, MISSED]
    choice = sample(prompt=(Message("user", "Where does it lead?\nA. Trier\nB. Bad Orb"),))
    assert scores(choice, about) == [FULL]


def test_a_guess_does_not_take_the_reward_from_an_honest_search_after_it() -> None:
    assert scores(sample(), search("Bad Orb road", GOOD), RED) == [MISSED, FULL]


@pytest.mark.parametrize("extra", [{}, {"documents": ["Ulm"]}])
@pytest.mark.parametrize(
    "output", ["The results say nothing about Bad Orb, Worms or Trier.", 'No results for "Bad Orb".']
)
def test_a_summary_that_repeats_its_querys_guess_shows_nothing(
    output: str, extra: dict[str, list[str]]
) -> None:
    asked = sample(extra=extra)
    assert scores(asked, search("whether it is Bad Orb, Worms or Trier", output)) == [MISSED]
    assert scores(asked, search("red road of Ulm", "The red road leads to Bad Orb.")) == [FULL]
    named = sample(extra=extra, prompt=(Message("user", "Does it lead to Bad Orb or to Trier?"),))
    assert scores(named, search("road to Bad Orb", "The red road leads to Bad Orb.")) == [FULL]


@pytest.mark.parametrize(
    ("answer", "text", "held"),
    [
        ("Bad Orb", "the _Bad Orb_ spa", True),
        ("Bad Orb", "[it](https://a.org/wiki/Bad_Orb)", True),
        ("Bad Orb", "Bad&nbsp;Orb", True),
        ("AT&T", "the firm AT&amp;T", True),
        ("R&D", "an R & D team", True),
        ("Simon & Garfunkel", "by Simon and Garfunkel", True),
        ("S\u00e3o Paulo", "Sao Paulo is large.", True),
        ("Sao Paulo", "S\u00e3o Paulo is large.", True),
        ("42%", "a share of 42 per cent", True),
        ("42 percent", "a share of 42 %", True),
        ("42%", "\u5360 42\uff05", True),
        ("10 km", "10km long", True),
        ("10km", "10 km long", True),
        ("10km", "\u957f10km\u7684\u8def", True),
        ("42%", "It has 42 rooms.", False),
        ("345", "rooms 12_345", False),
        ("Are", "\u00c5re is a town.", False),
        ("rose", "a ros\u00e9 wine", False),
        ("\u043c\u043e\u0439", "\u043c\u043e\u0438", False),
        ("5 s", "an iPhone 5s", False),
        ("1990", "the 1990s", False),
    ],
)
def test_spelling_variants_of_an_answer_on_a_page_match(answer: str, text: str, held: bool) -> None:
    assert shows(sample(ground_truth=answer), search("", f"1. x\n{text}")) is held


def test_the_title_of_a_named_document_is_read_except_for_short_answers() -> None:
    named = {"extra": {"documents": ["Ulm Minster", "Apollo 7"]}}
    church = search("", "1. Ulm Minster\nA church of 161 m.\n\n2. Apollo 7\nA flight.")
    assert shows(sample(ground_truth="Ulm Minster", **named), church)
    assert not shows(sample(ground_truth="7", **named), church)
    assert not shows(sample(ground_truth="Trier", **named), search("", MISS))


def test_a_line_of_addresses_within_a_passage_does_not_end_it() -> None:
    text = "1. Ulm\nShops and\naddresses:\nThe red road leads to Bad Orb."
    assert shows(sample(), search("", text))
    below = "1. Ulm\nA town.\naddresses:\nhttp://a.de\nhttps://b.de/Bad_Orb (not read: status 404)"
    assert not shows(sample(), search("", below))


def test_a_search_that_finds_the_questions_picture_is_not_a_scratchpad() -> None:
    asked = sample(images=(INPUT,), prompt=(Message("user", "<image>Where?"),), tools=EVERY)
    call = search("", "1. Bad Orb\n<image>", tool=image_search.NAME, arguments="{}", images=(1,))
    own = (INPUT, dataclasses.replace(INPUT, origin="call:0"))
    found, coded = rewarded(
        asked,
        dataclasses.replace(done(call), images=own),
        dataclasses.replace(done(dataclasses.replace(CODE, images=(1,))), images=own),
    )
    assert (found.calls[0].flags, found.tool_scores) == ((), (FULL,))
    assert coded.calls[0].flags == ("scratchpad",)


def test_many_searches_are_judged_quickly() -> None:
    calls = [search(f"road {n}", f"1. Town {n}\nIt is number {n}.") for n in range(1000)]
    began = time.monotonic()
    (one,) = rewarded(sample(), done(*calls))
    assert one.tool_scores == (MISSED,) * 1000
    assert time.monotonic() - began < 30
