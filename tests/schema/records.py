"""Records for tests, and hypothesis strategies for any valid record."""

from hypothesis import strategies as st

from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.reward import Reward
from vtune.schema.sample import Evidence, Sample
from vtune.schema.trajectory import Call, Crop, Trajectory

SAMPLE = Sample(
    id="signs/1",
    source="signs",
    prompt=(Message("user", f"{IMAGE}\nWhich glyph?", (0,)),),
    images=(Picture(data=b"picture"),),
    ability="visual_search",
    ground_truth="B",
    answer="B",
    verifier="choice",
    accuracy_ratio=0.9,
    format_ratio=0.1,
    tools=("python",),
    evidence=(Evidence("sign", 0, (1.0, 2.0, 30.0, 40.0)),),
    choices=("x", "y"),
)

TRAJECTORY = Trajectory(
    sample_id="signs/1",
    source="signs",
    messages=(Message("user", f"{IMAGE}\nWhich glyph?", (0,)), Message("assistant", "<answer>B</answer>")),
    images=(Picture(data=b"picture"), Picture(data=b"crop", origin="call:0")),
    calls=(
        Call(
            tool="python",
            arguments='{"code": "crop"}',
            status="ok",
            images=(1,),
            crops=(Crop(0, (1.0, 2.0, 3.0, 4.0), shown=1),),
            span=(1, 2),
            flags=("whole_image",),
        ),
    ),
    token_ids=(5, 6, 7),
    loss_mask=(False, True, False),
    logprobs=(None, -0.5, None),
    answer="B",
    reward=Reward(
        total=0.5,
        accuracy=1.0,
        format=0.0,
        tool=None,
        consistency=1.0,
        why="judge is down",
        parts={"iou": 0.1},
    ),
    tool_scores=(None,),
)

words = st.text(max_size=8).filter(lambda text: IMAGE not in text)
names = st.text(min_size=1, max_size=8)
singles = st.floats(width=32, allow_nan=False, allow_infinity=False)
boxes = st.tuples(*[st.floats(0, 100, allow_nan=False)] * 2, *[st.floats(101, 500, allow_nan=False)] * 2)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
objects = st.dictionaries(words | st.sampled_from(["id", "image_path", "more_json"]), plain, max_size=3)
named = words.filter(bool)
pictures = (
    st.builds(Picture, data=st.binary(max_size=8))
    | st.builds(Picture, data=st.binary(min_size=1, max_size=8), path=named)
    | st.builds(Picture, path=named)
)
# float32 values and typical decimal values both survive unchanged
ratios = st.sampled_from([0.0, 0.1, 0.3, 0.9, 1.0]) | st.floats(0, 1, width=32).map(
    lambda x: float(f"{x:.3f}")
)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    images = tuple(draw(st.lists(pictures, max_size=3)))
    texts = [f"{draw(words)}{IMAGE}{draw(words)}" for _ in images] + [draw(words)]
    numbers = [(index,) for index in range(len(images))] + [()]
    # The last turn must not be the assistant's.
    roles = [draw(st.sampled_from(["system", "user", "assistant"])) for _ in images]
    roles.append(draw(st.sampled_from(["system", "user"])))
    prompt = tuple(
        Message(role, text, number) for role, text, number in zip(roles, texts, numbers, strict=True)
    )
    evidence = st.builds(Evidence, label=words, image=st.integers(0, max(len(images) - 1, 0)), bbox=boxes)
    return Sample(
        id=draw(names),
        source=draw(names),
        prompt=prompt,
        images=images,
        ability=draw(words),
        ground_truth=draw(words),
        answer=draw(words),
        verifier=draw(names),
        verifier_parm=draw(objects),
        accuracy_ratio=draw(ratios),
        format_ratio=draw(ratios),
        tool_ratio=draw(ratios),
        tools=draw(st.sampled_from([(), ("python",)])),
        evidence=tuple(draw(st.lists(evidence, max_size=2))) if images else (),
        choices=tuple(draw(st.lists(words, max_size=3))),
        extra=draw(objects),
    )


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    images = tuple(draw(st.lists(st.builds(Picture, data=st.binary(max_size=4), origin=words), max_size=3)))
    index = st.integers(0, len(images) - 1) if images else st.nothing()
    indices = st.lists(index, max_size=2).map(tuple) if images else st.just(())
    tokens = draw(st.integers(0, 6))
    ends = st.tuples(st.integers(0, tokens), st.integers(0, tokens)).map(lambda pair: (min(pair), max(pair)))
    crop = st.builds(Crop, image=index, bbox=boxes, shown=st.none() | index) if images else st.nothing()
    call = st.builds(
        Call,
        tool=words,
        arguments=words,
        status=st.sampled_from(["ok", "error", "blocked", "timeout", "killed", "infra"]),
        error=words,
        output=words,
        images=indices,
        crops=st.lists(crop, max_size=2).map(tuple) if images else st.just(()),
        seconds=st.floats(0, 9),
        span=ends,
        flags=st.lists(words, max_size=2).map(tuple),
        unseen=st.booleans(),
    )
    calls = tuple(draw(st.lists(call, max_size=2)))
    score = st.none() | singles
    facts = st.dictionaries(words, st.floats(allow_nan=False, allow_infinity=False), max_size=2)
    per_call = st.tuples(*[score] * len(calls)) | st.just(())
    turns = st.builds(
        lambda role, text, images: Message(role, text + IMAGE * len(images), images),
        st.sampled_from(["system", "user", "assistant"]),
        words,
        indices,
    ) | st.builds(Message, role=st.just("assistant"), content=st.just(f"I see {IMAGE}, or do I?"))
    return Trajectory(
        sample_id=draw(names),
        source=draw(names),
        group=draw(st.integers(0, 2**40)),
        rollout=draw(st.integers(0, 99)),
        policy_version=draw(st.integers(0, 99)),
        messages=tuple(draw(st.lists(turns, max_size=2))),
        images=images,
        calls=calls,
        token_ids=tuple(draw(st.lists(st.integers(0, 2**31 - 1), min_size=tokens, max_size=tokens))),
        loss_mask=tuple(draw(st.lists(st.booleans(), min_size=tokens, max_size=tokens))),
        logprobs=tuple(draw(st.lists(score, min_size=tokens, max_size=tokens))),
        entropies=tuple(draw(st.lists(score, min_size=tokens, max_size=tokens) | st.just([]))),
        answer=draw(st.none() | words),
        stop_reason=draw(st.sampled_from(["answer", "length", "turns", "context", "error"])),
        reward=draw(
            st.none()
            | st.builds(
                Reward,
                **dict.fromkeys(("total", "accuracy", "format", "tool", "consistency"), score),
                why=words,
                parts=facts,
            )
        ),
        tool_scores=draw(per_call),
        advantage=draw(score),
        call_advantages=draw(per_call),
        needs_look=draw(st.none() | st.booleans()),
    )
