"""Traces in the chat layouts of other trainers: the same conversation, however it is stored."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.formats.published import coded, jpeg
from vtune.data.formats.building import Options
from vtune.data.formats.conversations import conversation_row, conversation_trace, read_conversations
from vtune.data.formats.likely import look_at
from vtune.data.formats.source import Place
from vtune.data.formats.table import FORMATS, Glance
from vtune.errors import DataError
from vtune.rollout.transcript import check_trace, replay
from vtune.runs.data.exporting import export_data
from vtune.runs.data.importing import import_data
from vtune.schema.message import Message, Picture
from vtune.schema.parquet import read_trajectories, write_trajectories
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call, Trajectory
from vtune.tools.calls import INVALID, MOST, tool_response, tools_block

if TYPE_CHECKING:
    from vtune.models.policy import Policy

PLACE = Place(Path("a.jsonl"), 0, "a")
BOX = {"name": "zoom", "arguments": {"bbox_2d": [1, 2, 30, 40]}}
CALL = f"<tool_call>\n{json.dumps(BOX)}\n</tool_call>"
THOUGHT, END = "<think>I look.</think>", "<think>Seven.</think>\n<answer>7</answer>"
SCHEMA = {"type": "function", "function": {"name": "zoom", "parameters": {"type": "object"}}}
PICTURES = {"images": [jpeg(0), jpeg(1)]}


def turns(*said: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"role": who, "content": content} for who, content in said]


def read(row: dict[str, Any]) -> Trajectory:
    trace = conversation_trace(row, PLACE, Options())
    check_trace(trace, where="here")
    return trace


ONE = {
    "in the text": turns(
        ("user", "<image>\nWhich?"),
        ("assistant", f"{THOUGHT}\n{CALL}"),
        ("user", "<image>"),
        ("assistant", END),
    ),
    "a turn of the call": turns(
        ("user", "<image>\nWhich?"),
        ("assistant", THOUGHT),
        ("tool_call", json.dumps(BOX)),
        ("tool_response", "<image>"),
        ("assistant", END),
    ),
    "thoughts in the turn of the call": turns(
        ("user", "<image>\nWhich?"),
        ("tool_call", f"{THOUGHT}{json.dumps(BOX)}"),
        ("tool_response", "<image>"),
        ("assistant", END),
    ),
    "ShareGPT": [
        {"from": "human", "value": "<image>\nWhich?"},
        {"from": "gpt", "value": THOUGHT},
        {"from": "function_call", "value": json.dumps(BOX)},
        {"from": "observation", "value": "<tool_response>\n<image>\n</tool_response>"},
        {"from": "gpt", "value": END},
    ],
    "tool_calls": [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "\nWhich?"}]},
        {
            "role": "assistant",
            "content": THOUGHT,
            "tool_calls": [
                {"type": "function", "function": {**BOX, "arguments": json.dumps(BOX["arguments"])}}
            ],
        },
        {"role": "tool", "content": [{"type": "image"}]},
        {"role": "assistant", "content": END, "tool_calls": None},
    ],
}


@pytest.mark.parametrize("layout", ONE)
@pytest.mark.parametrize("column", ["messages", "conversations"])
def test_a_conversation_becomes_the_same_trace_in_every_layout(layout: str, column: str) -> None:
    row = {column: ONE[layout], **PICTURES}
    trace = read(row)
    frame = "<image>" if layout == "in the text" else "<tool_response>\n<image>\n</tool_response>"
    assert [(one.role, one.content, one.images) for one in trace.messages] == [
        ("user", "<image>\nWhich?", (0,)),
        ("assistant", f"{THOUGHT}\n{CALL}", ()),
        ("user", frame, (1,)),
        ("assistant", END, ()),
    ]
    (call,) = trace.calls
    assert (call.tool, json.loads(call.arguments), call.status) == ("zoom", BOX["arguments"], "ok")
    assert (call.images, [one.origin for one in trace.images]) == ((1,), ["input", "call:0"])
    assert (trace.answer, trace.source, trace.sample_id) == ("7", "conversations", "conversations/a/0")
    assert look_at(Glance(row=row)) == "conversations"
    assert look_at(Glance(row=row | {"problem": "?", "answer": "7"})) is None, "it may be imported as either"
    assert read(row | {column: json.dumps(ONE[layout])}) == trace, "as tables of texts have it"


def test_a_prompt_and_its_completion_are_one_conversation() -> None:
    asked, said = ONE["in the text"][:1], ONE["in the text"][1:]
    trace = read({"prompt": asked, "completion": said, **PICTURES})
    assert trace == read({"messages": ONE["in the text"], **PICTURES})
    short = {"prompt": "Which?", "completion": f"[7]{END}", "images": [jpeg(0)], "system": "Be brief."}
    assert [(one.role, one.content) for one in read(short).messages] == [
        ("system", "Be brief."),
        ("user", "<image>\nWhich?"),
        ("assistant", f"[7]{END}"),
    ]
    assert look_at(Glance(row=short)) == "conversations"


def test_a_preferred_reply_is_trained_on_and_a_rejected_one_is_not() -> None:
    row = said(ANSWER) | {"rejected_messages": None, "rejected_images": []}
    assert read(row | {"label": True, "rejected_count": 3}) == read(said(ANSWER))
    with pytest.raises(DataError, match="the reply is a rejected one"):
        read(row | {"label": "False"})
    with pytest.raises(DataError, match="the reply is a rejected one") as caught:
        read(row | {"label": False})
    assert (caught.value.where, caught.value.fix) == ("column `label`", "drop the row")


def test_separate_thoughts_are_trained_on() -> None:
    spoken = {"role": "assistant", "reasoning_content": "Seven.", "content": "<answer>7</answer>"}
    trace = read({"messages": [*turns(("user", "<image>?")), spoken], "images": [jpeg(0)]})
    assert trace.messages[1].content == "<think>\nSeven.\n</think>\n\n<answer>7</answer>"


def test_empty_fields_added_by_parquet_are_not_trained_on(tmp_path: Path) -> None:
    def row(call: dict[str, Any], objects: dict[str, Any]) -> dict[str, Any]:
        asks = {"role": "assistant", "content": "", "tool_calls": [{"function": call}]}
        messages = [*turns(("user", "<image>?")), asks, *turns(("tool", "x"), ("assistant", END))]
        picture = {"bytes": jpeg(0), "path": None}
        return {"messages": messages, "images": [picture], "objects": objects}

    python = {"name": "python", "arguments": {"code": "1"}}
    rows = [row(BOX, {"bbox": None}), row(python, {"bbox": []}), row(python, {"bbox": [[1, 2, 3, 4]]})]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    *found, (_, boxed) = read_conversations(tmp_path / "a.parquet", Options())
    calls = [json.loads(trace.calls[0].arguments) for _, trace in found if isinstance(trace, Trajectory)]
    assert calls == [BOX["arguments"], python["arguments"]]
    assert isinstance(boxed, DataError)


def test_code_becomes_a_python_call_and_its_output_is_framed() -> None:
    code = f"{THOUGHT}\n<code>\nprint(1/0)\n</code>"
    wrong = "ZeroDivisionError: division"
    said = turns(("user", "Which?"), ("assistant", code), ("tool", wrong), ("assistant", END))
    trace = read({"messages": said, "image": coded(0)})
    assert trace.messages[0].content == "<image>\nWhich?", "without a mark, pictures go first"
    assert trace.messages[2].content == f"<sandbox_output>\n{wrong}\n</sandbox_output>"
    assert [(one.tool, one.status, one.error) for one in trace.calls] == [("python", "error", wrong)]
    assert json.loads(trace.calls[0].arguments) == {"code": "\nprint(1/0)\n"}


def test_each_call_of_a_turn_gets_its_own_response() -> None:
    said = turns(
        ("user", "<image>?"),
        ("tool_call", json.dumps([BOX, {"name": "find", "arguments": {"q": "x"}}])),
        ("tool", "<image><image>"),
        ("tool", "found <image>"),
        ("user", "Go on."),
        ("assistant", END),
    )
    trace = read({"messages": said, "images": [jpeg(0)] * 4})
    assert [(one.tool, one.output, one.images) for one in trace.calls] == [
        ("zoom", "", (1, 2)),
        ("find", "found", (3,)),
    ]
    assert trace.messages[2].content.endswith("found <image>\n</tool_response>\nGo on.")
    assert [one.origin for one in trace.images] == ["input", "call:0", "call:0", "call:1"]


def test_answers_to_several_calls_belong_to_the_calls_that_their_ids_name() -> None:
    calls = [{"id": f"c{k}", "function": {"name": "find", "arguments": {"q": k}}} for k in range(2)]
    asked = [*turns(("user", "?")), {"role": "assistant", "tool_calls": calls}]
    back = [{"role": "tool", "tool_call_id": f"c{k}", "content": f"is {k}"} for k in range(2)]
    end = turns(("assistant", END))
    in_order = read({"messages": [*asked, *back, *end]})
    assert [one.output for one in in_order.calls] == ["is 0", "is 1"]
    assert read({"messages": [*asked, *back[::-1], *end]}) == in_order
    unnamed = [{key: turn[key] for key in ("role", "content")} for turn in back]
    assert read({"messages": [*asked, *unnamed, *end]}) == in_order
    stray = [back[0], back[1] | {"tool_call_id": "c7"}]
    with pytest.raises(DataError, match="answers the call 'c7', but the calls before it are c0, c1"):
        read({"messages": [*asked, *stray, *end]})
    parts = [{"type": "image", "image": jpeg(0)}]
    shown = [*asked, back[1] | {"content": parts}, back[0], *end]
    assert [one.images for one in read({"messages": shown}).calls] == [(), (0,)]
    with pytest.raises(DataError, match="in another order"):
        read({"messages": [*asked, back[1] | {"content": "<image>"}, back[0], *end], "images": [jpeg(0)]})


def test_pictures_may_be_base64_among_bytes_as_json_has_them() -> None:
    row = {"messages": ONE["in the text"], "images": [{"bytes": coded(0), "path": None}, {"bytes": coded(1)}]}
    assert [one.data for one in read(row).images] == [jpeg(0), jpeg(1)]
    with pytest.raises(DataError, match="an encoded image, or base64 of one"):
        read(row | {"images": [{"bytes": "?"}, {"bytes": coded(1)}]})


@pytest.mark.parametrize("tools", [[SCHEMA], json.dumps([SCHEMA]), json.dumps([SCHEMA["function"]])])
def test_tools_are_offered_in_the_system_turn(tools: Any) -> None:
    said = ONE["ShareGPT"]
    trace = read({"conversations": said, "tools": tools, "system": "Be brief.", **PICTURES})
    assert trace.messages[0].content == "Be brief.\n\n" + tools_block([SCHEMA])
    assert read({"conversations": said, "tools": tools, **PICTURES}).messages[0].content == tools_block(
        [SCHEMA]
    )
    offered = [{"from": "system", "value": f"Mine. {tools_block([SCHEMA])}"}, *said]
    assert (
        read({"conversations": offered, "tools": tools, **PICTURES}).messages[0].content
        == offered[0]["value"]
    )


def test_a_developer_turn_becomes_a_system_turn() -> None:
    said = [{"role": "developer", "content": "Be brief."}, *ONE["in the text"]]
    assert read({"messages": said, **PICTURES}).messages[0].role == "system"


def test_a_trace_that_does_not_end_with_the_assistant_is_not_exported() -> None:
    trace = read({"messages": ONE["in the text"], **PICTURES})
    assert conversation_row(trace, 0)["messages"] == ONE["in the text"]
    with pytest.raises(DataError, match="does not end with the assistant"):
        conversation_row(replace(trace, messages=trace.messages[:-1]), 0)


def test_calls_that_could_not_run_survive_an_export() -> None:
    """Our own traces also train on failed calls; files of others do not mark them as such."""
    many = "\n".join(["<tool_call>\nzoom\n</tool_call>", *[CALL] * MOST])
    said = turns(
        ("user", "Which?"),
        ("assistant", many),
        ("user", "\n".join([tool_response("no")] * (MOST + 1))),
        ("assistant", END),
    )
    calls = [Call(tool=INVALID, arguments=json.dumps({"text": "zoom"}), status="error", error="no")]
    calls += [Call(tool="zoom", arguments=json.dumps(BOX["arguments"]), status="ok", output="no")] * MOST
    calls[-1] = replace(calls[-1], status="error", output="", error="no")
    messages = tuple(Message(turn["role"], turn["content"]) for turn in said)
    trace = Trajectory(
        sample_id="a", source="b", messages=messages, images=(), calls=tuple(calls), answer="7"
    )
    row = conversation_row(trace, 0)
    assert read(row) == trace
    with pytest.raises(DataError, match="is not JSON"):
        read(row | {"vtune": None})


def test_pictures_may_be_inside_turns() -> None:
    inside = [
        {"role": "user", "content": [{"type": "image", "image": jpeg(0)}, {"type": "text", "text": "?"}]},
        {"role": "assistant", "content": CALL},
        {
            "role": "tool",
            "content": [{"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{coded(1)}"}}],
        },
        {"role": "assistant", "content": END},
    ]
    assert [one.data for one in read({"messages": inside}).images] == [jpeg(0), jpeg(1)]
    with pytest.raises(DataError, match="in the turns and beside them"):
        read({"messages": inside, **PICTURES})


def said(*behind: tuple[str, Any]) -> dict[str, Any]:
    """A row with a question about a picture and the turns that follow it."""
    return {"messages": turns(("user", "<image>?"), *behind), "images": [jpeg(0)]}


ANSWER = ("gpt", END)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (said(("gpt", "Yes."), ("user", "Sure?"), ANSWER), "neither ends"),
        (said(("bot", "Yes.")), "a turn has the role 'bot'"),
        (said(("gpt", CALL), ("tool", "x")), "must end with an assistant turn"),
        (said(("gpt", "<tool_call>{</tool_call>"), ("tool", "x"), ANSWER), "not JSON"),
        (said(("tool_call", '{"arguments": {}}'), ("tool", "x"), ANSWER), "a call {name, arguments}"),
        (said(("tool_call", '{"name": "a"'), ("tool", "x"), ANSWER), "not JSON"),
        (said(("gpt", CALL * 2), ("tool", "x"), ANSWER), "answers 1 of 2 calls"),
        (said() | {"messages": [{"role": "gpt", "content": END, "loss": False}]}, "not to be learnt"),
        (said() | {"messages": [{"role": "gpt", "content": END, "weight": 0}]}, "not to be learnt"),
        (said() | {"messages": [{"role": "gpt", "content": END, "loss_scale": 0.0}]}, "not to be learnt"),
        (said() | {"messages": [{"role": "gpt", "content": END, "loss_scale": [1.0, 0.3]}]}, "weight 0.3"),
        (said(ANSWER) | {"kto_tag": False}, "a rejected one"),
        (said(ANSWER) | {"rejected_response": "No."}, "a chosen and a rejected reply"),
        (said(ANSWER) | {"rejected_messages": turns(("user", "?"), ANSWER)}, "a chosen and a rejected reply"),
        ({"prompt": "?", "chosen": "Yes.", "rejected": "No."}, "a chosen and a rejected reply"),
        ({"prompt": turns(ANSWER), "completion": "Yes."}, "`completion`, where it is learnt"),
        ({"prompt": "?", "completion": 7}, "a list of turns"),
        (said(ANSWER) | {"videos": ["a.mp4"]}, "only pictures"),
        (said(ANSWER) | {"objects": {"bbox": [[1, 2, 3, 4]]}}, "given apart"),
        (said(("gpt", f"<image>{END}")) | {"images": [jpeg(0)] * 2}, "2 pictures for 1"),
        (said(("gpt", "")), "turn 1 of a trace, of the assistant, is empty"),
        (
            {
                "messages": [*turns(("user", "<image>?")), {"role": "assistant", "content": None}],
                "images": [jpeg(0)],
            },
            "is empty",
        ),
        ({"messages": turns(ANSWER)}, "begins with an assistant turn"),
        ({"messages": turns(("gpt", "Hello."), ("user", "?"), ANSWER)}, "begins with an assistant turn"),
        (said(("tool", "7"), ANSWER), "before the assistant has made a call"),
        (said(("gpt", CALL), ("tool", "x"), ("system", "Be brief."), ANSWER), "after the assistant's first"),
        (said(("gpt", f"{CALL}{tool_response('7')}{END}")), "contains tool output"),
        (said(("gpt", f"<code>1</code><sandbox_output>1</sandbox_output>{END}")), "tool output"),
        (said(("gpt", f"<search>x</search><information>7</information>{END}")), "</information>"),
        (said(("gpt", f"<search>x</search>\n<result>7</result>{END}")), "tool output"),
        (said(("gpt", f"<code>1</code><interpreter>7</interpreter>{END}")), "</interpreter>"),
        ({"messages": []}, "a list of turns"),
        ({"text": "x"}, "none of messages, conversations"),
    ],
)
def test_content_that_a_trace_cannot_hold_is_refused(row: dict[str, Any], why: str) -> None:
    with pytest.raises(DataError, match=why) as caught:
        read(row)
    assert caught.value.fix


def test_turns_with_weight_1_are_read() -> None:
    marks = {"loss": True, "loss_scale": 1.0, "weight": 1}
    asked, *rest = said(ANSWER)["messages"]
    row = {"messages": [asked | {"weight": 0}, *(turn | marks for turn in rest)], "images": [jpeg(0)]}
    assert read(row) == read(said(ANSWER))


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_thoughts_beside_the_text_go_before_it(key: str) -> None:
    row = said(ANSWER)
    row["messages"][-1][key] = "Hm."
    assert read(row).messages[-1].content == f"<think>\nHm.\n</think>\n\n{END}"


def test_a_question_and_its_reply_may_be_one_item() -> None:
    row = {"conversation": [{"human": "<image>?", "assistant": END}], "images": [jpeg(0)]}
    assert read(row) == read(said(ANSWER))
    assert look_at(Glance(row=row)) == "conversations"


@pytest.mark.parametrize("mark", ["<tool_response>", "</tool_response>", "<sandbox_output>"])
def test_output_about_the_marks_of_a_frame_gets_a_frame(mark: str) -> None:
    """A page that a search finds may be about them."""
    trace = read(said(("gpt", CALL), ("tool", f"The tag {mark} is a mark."), ANSWER))
    inert = f"The tag < {mark[1:]} is a mark."
    assert trace.messages[2].content == tool_response(inert)
    assert [call.output for call in trace.calls] == [inert]


def test_tool_output_is_never_trained_on(policy: "Policy") -> None:
    trace = read({"messages": ONE["in the text"], **PICTURES})
    book = replay(trace, policy.chat, policy.pictures)
    learnt = [token for token, mask in zip(book.token_ids, book.loss_mask, strict=True) if mask]
    written = policy.chat.tokenizer.decode(learnt)
    assert [text in written for text in (CALL, END, "Which?", "<image>")] == [True, True, False, False]


def shown_trace() -> Trajectory:
    """A trace with a picture in its question and one returned by its call."""
    return read({"messages": ONE["in the text"], **PICTURES})


def test_an_answer_outside_its_tag_survives_an_export() -> None:
    trace = shown_trace()
    last = Message("assistant", "It is \\boxed{7}.")
    boxed = replace(trace, messages=(*trace.messages[:-1], last), answer="7")
    assert read(conversation_row(boxed, 0)) == boxed
    assert read(conversation_row(boxed, 0) | {"vtune": None}).answer is None


def test_a_file_of_an_older_export_is_read() -> None:
    trace = shown_trace()
    row = conversation_row(trace, 0)
    assert read(row | {"vtune": json.dumps(json.loads(row["vtune"])["calls"])}) == trace


def unseen(trace: Trajectory) -> Trajectory:
    call = replace(trace.calls[0], images=(), unseen=True)
    return replace(trace, messages=trace.messages[:2], images=trace.images[:1], calls=(call,))


def says(trace: Trajectory, text: str) -> Trajectory:
    return replace(trace, messages=(*trace.messages[:-1], Message("assistant", text + END)))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda t: replace(t, images=(*t.images, Picture(jpeg(2)))), "picture 2 is shown in no turn"),
        (unseen, "a call that was never answered"),
        (lambda t: says(t, "I see <image>."), "message 3, of the assistant, says <image>"),
        (lambda t: says(t, "It is no <video>."), "says <video>"),
    ],
    ids=["a picture that is never shown", "a call without its answer", "a mark", "a mark of another medium"],
)
def test_a_trace_that_turns_cannot_express_is_skipped_and_counted(
    change: Callable[[Trajectory], Trajectory], why: str, tmp_path: Path
) -> None:
    """Trainers count the image marks of all turns, and an import ignores pictures without a mark."""
    traces, out, back = (tmp_path / f"{name}.parquet" for name in ("traces", "out", "back"))
    good = shown_trace()
    write_trajectories(traces, [good, change(good), good])
    result = export_data("conversations", traces, out)
    assert (result["rows"], [problem["row"] for problem in result["problems"]]) == (2, [1])
    assert why in result["problems"][0]["what"]
    assert why in Path(result["problems_file"]).read_text(encoding="utf-8")
    import_data("conversations", [out], back, options=Options(), strict=True)
    assert [one.messages for one in read_trajectories(back)] == [good.messages] * 2
    with pytest.raises(DataError, match=why):
        export_data("conversations", traces, tmp_path / "none.parquet", strict=True)
    write_trajectories(traces, [change(good)])
    with pytest.raises(DataError, match="no row can be exported") as caught:
        export_data("conversations", traces, tmp_path / "none.parquet")
    assert why in caught.value.what
    assert not (tmp_path / "none.parquet").exists()


def test_turns_may_be_json_as_in_datasets(tmp_path: Path) -> None:
    """TRL stores calls this way, as their arguments differ from row to row."""
    import datasets

    call = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": BOX}]}
    said = [turns(("user", "Which?"))[0], call, *turns(("tool", "7"), ("assistant", END))]
    features = datasets.Features({"messages": datasets.List(datasets.Json()), "tools": datasets.Json()})
    made = datasets.Dataset.from_list([{"messages": said, "tools": [SCHEMA]}], features=features)
    made.to_parquet(str(tmp_path / "traces.parquet"))
    ((_, trace),) = read_conversations(tmp_path / "traces.parquet", Options())
    assert isinstance(trace, Trajectory)
    assert [(one.tool, one.output) for one in trace.calls] == [("zoom", "7")]


def test_a_chat_that_ends_with_the_question_gets_advice_to_import_samples(tmp_path: Path) -> None:
    row = {"messages": [{"role": "user", "content": "How many?"}], "solution": "3"}
    file = tmp_path / "swift.jsonl"
    file.write_text(json.dumps(row) + "\n")
    ((_, error),) = FORMATS["conversations"].read(file, Options())
    assert isinstance(error, DataError)
    assert error.what == "a trace must end with an assistant turn"
    assert "`vtune data import hf --columns` with `question: messages`" in error.fix
    (tmp_path / "columns.yaml").write_text("source: own\nquestion: messages\nanswer: solution\n")
    ((_, sample),) = FORMATS["hf"].read(file, Options(columns=tmp_path / "columns.yaml"))
    assert isinstance(sample, Sample)
    assert (sample.question, sample.ground_truth) == ("How many?", "3")
