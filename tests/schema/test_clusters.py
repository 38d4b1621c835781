"""Which rollouts and questions belong together."""

from dataclasses import replace

from vtune.schema.clusters import cluster_of
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

ASKED = Sample(
    id="q/1", source="s", prompt=(Message("user", "?"),), images=(), ground_truth="1", verifier="math"
)
SHOWN = Trajectory(sample_id="q/1", source="s", images=(Picture(data=b"photo"),))


def test_questions_about_the_same_picture_are_one_cluster_and_others_are_not() -> None:
    rotated = replace(SHOWN, sample_id="q/2", rollout=3)
    cropped = replace(SHOWN, images=(*SHOWN.images, Picture(data=b"crop", origin="call:0")))
    other = replace(SHOWN, images=(Picture(data=b"another"),))
    two = replace(SHOWN, images=(Picture(data=b"photo"), Picture(data=b"another")))
    assert cluster_of(SHOWN, ASKED) == cluster_of(rotated, ASKED) == cluster_of(cropped, ASKED)
    assert len({cluster_of(one, ASKED) for one in (SHOWN, other, two)}) == 3


def test_the_same_pictures_in_another_order_are_one_cluster() -> None:
    shown = (Picture(data=b"photo"), Picture(data=b"another"))
    shuffled = replace(SHOWN, sample_id="q/2", images=shown[::-1])
    assert cluster_of(replace(SHOWN, images=shown), ASKED) == cluster_of(shuffled, ASKED)


def test_a_picture_shared_by_rollouts_is_identified_by_its_file() -> None:
    shared = Picture(data=b"large", path="../inputs/0123abcd")
    assert cluster_of(replace(SHOWN, images=(shared,)), ASKED) == "0123abcd"


def test_a_question_without_an_available_picture_is_its_own_cluster() -> None:
    for images in ((), (Picture(path="photo.png"),)):
        assert cluster_of(replace(SHOWN, images=images), ASKED) == "q/1"


def test_worlds_with_the_same_start_are_separate_unless_they_share_pictures() -> None:
    world = replace(ASKED, environment="maze")
    assert [cluster_of(replace(SHOWN, sample_id=name), world) for name in ("q/1", "q/2")] == ["q/1", "q/2"]
    pictured = replace(world, prompt=(Message("user", f"{IMAGE}?"),), images=(Picture(data=b"photo"),))
    opened = replace(SHOWN, images=(*SHOWN.images, Picture(data=b"opening")))
    other = replace(opened, sample_id="q/2", images=(*SHOWN.images, Picture(data=b"another opening")))
    assert cluster_of(opened, pictured) == cluster_of(other, pictured) != "q/1"


def test_versions_of_a_problem_are_one_cluster_whatever_their_pictures() -> None:
    other = replace(SHOWN, images=(Picture(data=b"another"),))
    text_only = replace(SHOWN, images=())
    first, second = (replace(ASKED, extra={"problem": number}) for number in ("7", "8"))
    assert len({cluster_of(one, first) for one in (SHOWN, other, text_only)}) == 1
    assert cluster_of(SHOWN, first) != cluster_of(SHOWN, second)
    asked = replace(ASKED, extra={"problem": "How many?"})
    assert cluster_of(SHOWN, asked) != cluster_of(other, asked)
