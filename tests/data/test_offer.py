from dataclasses import replace

import pytest

from vtune.data.offer import Unserved, named_tools, offering, unserved_call
from vtune.errors import DataError, RecipeError
from vtune.schema.message import Message, Picture
from vtune.schema.sample import Sample

ZOOM = (
    "Think first, call **image_zoom_in_tool** if needed, then answer. Format strictly as:  "
    "<think>...</think>  <tool_call>...</tool_call> (if tools needed)  <answer>...</answer> "
)

SEARCH_R1 = (
    "Answer the given question. You must conduct reasoning inside <think> and </think> first every time you "
    "get new information. After reasoning, if you find you lack some knowledge, you can call a search engine "
    "by <{0}> query </{0}> and it will return the top searched results. If you find no further external "
    "knowledge needed, you can directly provide the answer inside <answer> and </answer>, without detailed "
    "illustrations. For example, <answer> Beijing </answer>. Question: "
)


def asking(text: str, *, system: str = "", tools: tuple[str, ...] = ()) -> Sample:
    """A sample with one picture and the given user text."""
    first = (Message("system", system),) if system else ()
    return Sample(
        id="a/1",
        source="a",
        prompt=(*first, Message("user", f"<image>\n{text}", (0,))),
        images=(Picture(path="a.png"),),
        ground_truth="red",
        verifier="exact",
        tools=tools,
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"Which colour?\n{ZOOM}", id="DeepEyes"),
        pytest.param(
            'Which colour?\n### User Image Path:** "1.jpg"\n### User Image Size:** "80×60"\n### **Output '
            "Format (strict adherence required):**\n<think>…</think>\n<answer>…</answer>",
            id="CodeV",
        ),
        pytest.param(
            "Which colour? You FIRST think about the reasoning process as an internal monologue and then "
            "provide the final answer. … within <think> </think> tags. The final answer MUST BE put in "
            "\\boxed{}.",
            id="verl",
        ),
        pytest.param(
            "Which colour? Let's think step by step and output the final answer after `####`.",
            id="verl's GSM8K",
        ),
        pytest.param(
            "Put your thoughts in <think> </think> and the answer in \\boxed{}. Question:\nWhich colour?",
            id="DeepEyes' ThinkLite",
        ),
        pytest.param(f"{SEARCH_R1.format('search')}Which colour?\n", id="Search-R1"),
        pytest.param(f"{SEARCH_R1.format('tool_call')}Which colour?", id="verl's search"),
        pytest.param("Which colour?", id="a bare question"),
    ],
)
def test_the_question_is_kept_and_the_published_prompt_removed(text: str) -> None:
    published = asking(text, system="You may call image_zoom_in_tool.", tools=("image_zoom_in_tool",))
    sample = offering(published, ("python",))
    assert sample.prompt == (Message("user", "<image>\nWhich colour?", (0,)),)
    assert sample.tools == ("python",)
    # The published prompt is kept unchanged.
    assert sample.extra == {
        "published_prompt": [
            {"role": "system", "content": "You may call image_zoom_in_tool."},
            {"role": "user", "content": f"<image>\n{text}"},
        ],
        "published_tools": ["image_zoom_in_tool"],
    }
    assert offering(sample, ("python",)) == sample
    # Later changes of tools keep the original prompt.
    assert offering(sample, ()) == replace(sample, tools=())


def test_a_bare_question_only_gets_the_tools() -> None:
    text = "Question:\nWhich colour?\nA. red\nB. blue"
    sample = offering(asking(text), ("python",))
    assert sample == replace(asking(text), tools=("python",), extra={"published_tools": []})
    # The published tools are recorded, not the ones set in between.
    assert offering(sample, ("image_zoom_in_tool",)).extra == {"published_tools": []}


@pytest.mark.parametrize(
    ("text", "tools", "word"),
    [
        pytest.param("Which? Call image_zoom_in_tool first.", ("python",), "image_zoom_in_tool", id="zoom"),
        pytest.param("Which? Write <code> first.", ("image_zoom_in_tool",), "<code>", id="code"),
        pytest.param("Which? Write <tool_call> first.", ("python",), "<tool_call>", id="a call"),
        pytest.param("Which? Write <grounding> first.", ("image_zoom_in_tool",), "<grounding>", id="another"),
    ],
)
def test_mentioning_a_tool_that_is_not_offered_is_an_error(text: str, tools: tuple, word: str) -> None:
    with pytest.raises(DataError, match=f"mentions {word}, which is not offered") as caught:
        offering(asking(text), tools)
    assert caught.value.fix


def test_a_turn_with_a_prompt_but_no_question_is_an_error() -> None:
    with pytest.raises(DataError, match="holds a prompt but no question"):
        offering(asking(ZOOM), ("python",))


def test_text_of_the_question_after_search_r1s_instruction_is_kept() -> None:
    text = "Who said `Question: why?`"
    sample = offering(asking(SEARCH_R1.format("search") + text), ("text_search_tool",))
    assert sample.prompt[0].content == f"<image>\n{text}"
    own = "Answer the given question. Which? Question: why?"
    assert offering(asking(own), ()).prompt[0].content == f"<image>\n{own}"


def test_a_call_that_no_tool_takes_is_found() -> None:
    published = asking(SEARCH_R1.format("search"), tools=("text_search_tool",))
    assert unserved_call(published) == Unserved("<search>", removable=True)
    assert unserved_call(asking(SEARCH_R1.format("tool_call"))) == Unserved("<tool_call>", removable=True)
    assert unserved_call(asking(SEARCH_R1.format("tool_call"), tools=("text_search_tool",))) is None
    assert unserved_call(asking("Which?", system="Write <search> query </search>.")) is None


def test_a_call_that_stays_in_the_question_is_not_removable() -> None:
    asked = asking("Which? Search by <text_search>query</text_search>.", tools=("text_search_tool",))
    assert unserved_call(asked) == Unserved("<text_search>", removable=False)
    with pytest.raises(DataError, match="<text_search>"):
        offering(asked, ("text_search_tool",))
    image = asking("Which? Write <search><img></search>.", tools=("image_search_tool",))
    assert unserved_call(image) == Unserved("<search>", removable=False)


def test_an_html_element_is_not_a_call() -> None:
    asked = asking("In HTML, what does the `<search>` element do?")
    assert unserved_call(asked) is None
    assert offering(asked, ()).question == asked.question


def test_an_environment_defines_its_own_calls() -> None:
    asked = asking("Move by <tool_call>.")
    assert unserved_call(asked) == Unserved("<tool_call>", removable=False)
    assert unserved_call(replace(asked, environment="maze")) is None


def test_a_question_may_mention_the_tools_that_it_offers() -> None:
    sample = offering(asking("Which? Call image_zoom_in_tool by <tool_call>."), ("image_zoom_in_tool",))
    assert "image_zoom_in_tool" in sample.question


def test_tools_are_named_or_none() -> None:
    assert named_tools(["none"]) == ()
    assert named_tools(["python", "image_zoom_in_tool", "python"]) == ("python", "image_zoom_in_tool")
    with pytest.raises(RecipeError, match="no tool 'pyhton'") as caught:
        named_tools(["pyhton"])
    assert caught.value.fix.startswith("did you mean `python`? To add your own, list its file under `uses:")
    with pytest.raises(RecipeError, match="`none` cannot be combined with tools"):
        named_tools(["none", "python"])
