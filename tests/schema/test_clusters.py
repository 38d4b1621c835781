"""Which rollouts and questions belong together."""

from dataclasses import replace

from vtune.schema.clusters import cluster_of
from vtune.schema.message import Picture
from vtune.schema.trajectory import Trajectory

SHOWN = Trajectory(sample_id="q/1", source="s", images=(Picture(data=b"photo"),))


def test_questions_about_the_same_picture_are_one_cluster_and_others_are_not() -> None:
    rotated = replace(SHOWN, sample_id="q/2", rollout=3)
    cropped = replace(SHOWN, images=(*SHOWN.images, Picture(data=b"crop", origin="call:0")))
    other = replace(SHOWN, images=(Picture(data=b"another"),))
    two = replace(SHOWN, images=(Picture(data=b"photo"), Picture(data=b"another")))
    assert cluster_of(SHOWN) == cluster_of(rotated) == cluster_of(cropped)
    assert len({cluster_of(one) for one in (SHOWN, other, two)}) == 3


def test_a_picture_that_rollouts_share_is_known_by_its_file() -> None:
    shared = Picture(data=b"large", path="../inputs/0123abcd")
    assert cluster_of(replace(SHOWN, images=(shared,))) == "0123abcd"


def test_what_has_no_picture_at_hand_stands_for_itself() -> None:
    for images in ((), (Picture(path="photo.png"),)):
        assert cluster_of(replace(SHOWN, images=images)) == "q/1"
