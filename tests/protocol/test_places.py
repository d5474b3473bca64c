"""Places in the code: one form from the hooks to people, and the texts of journals of 0.2.0."""

from __future__ import annotations

import json

import pytest

from monitor.model.steps.stack_samples import StackSamples
from monitor.sources.decode import decode, place_of
from trainhooks.protocol.encoding import encoder, to_dict
from trainhooks.protocol.events import Event, Frames
from trainhooks.protocol.limits import MAX_NAME
from trainhooks.protocol.places import Line, Place

SAVE = Place("train.py", 41, "save", "json.dump", "JSON")
INSIDE = Place("train.py", 83, "<module>", "", "", Line("accelerate/accelerator.py", 2861, "backward", "loss.backward"))
LONG = "a_function_whose_name_leaves_little_room_for_anything_else_" + "x" * 26

TEXTS = [
    ("train.py:41 (json.dump) in save", SAVE._replace(activity="")),
    ("throttle.py:108 in train", Place("throttle.py", 108, "train")),
    ("a b/c:d.py:3 (.item) in <lambda>", Place("a b/c:d.py", 3, "<lambda>", ".item")),
    ("accelerate/accelerator.py:2861 (loss.backward) in backward, from train.py:83 in <module>", INSIDE),
    ("t.py:9 in b, from train.py:83 in f", Place("train.py", 83, "f", library=Line("t.py", 9, "b"))),
]
CUT = [  # by 0.2.0, so that the program's own part stays whole
    "sdpa_attention.py:158 (torch.nn.functional.scaled_, from programs/dpo.py:33 (model) in answer",
    "integrations/sdpa_atten, from train.py:7 in f",
    "train.py:12 (a.b) in",
    "train.py:007 in f",
    "overflow",
    "",
]


def told(event: Event) -> bytes:
    return encoder()(to_dict(event))


@pytest.mark.parametrize(("text", "place"), TEXTS)
def test_a_text_of_an_old_journal_is_the_place_that_the_hooks_send_today(text: str, place: Place) -> None:
    assert place_of(text, "") == place and str(place) == text


@pytest.mark.parametrize("text", CUT)
def test_a_text_that_was_cut_is_shown_as_it_is(text: str) -> None:
    place = place_of(text, "plot")
    assert str(place) == text and place.activity == "plot"
    assert place.users == place_of(text.rpartition(", from ")[2], "").users, "the program's own part is known"


def test_rows_of_an_old_and_of_a_new_producer_are_alike() -> None:
    head = {"kind": "frames", "producer": "p", "seq": 1, "t": 2.5, "begin": 1.5}
    rows = [["other", str(SAVE), 3], ["forward", str(INSIDE), 2]]
    old = decode(json.dumps({**head, "rows": rows, "activities": ["JSON", ""]}).encode())
    new = decode(told(Frames("p", 1, 2.5, rows=[("other", SAVE, 3), ("forward", INSIDE, 2)], begin=1.5)))
    assert old == new == Frames("p", 1, 2.5, rows=[("other", SAVE, 3), ("forward", INSIDE, 2)], begin=1.5)
    samples = StackSamples()
    for event in (old, new):
        samples.take(event)  # type: ignore[arg-type]
    assert list(samples.looks.values()) == [6, 4]


def test_what_a_place_lacks_takes_no_room() -> None:
    assert Place("train.py", 41, "f").written() == ["train.py", 41, "f"]
    assert SAVE.written() == ["train.py", 41, "save", "json.dump", "JSON"]
    assert INSIDE.written()[4:] == ["", ["accelerate/accelerator.py", 2861, "backward", "loss.backward"]]
    assert Place("overflow", 0).written() == ["overflow", 0]


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (Place("train.py", 7, LONG, "x" * 40), f"train.py:7 ({'x' * 40}) in {LONG}"[:MAX_NAME]),
        (INSIDE._replace(function=LONG), f"accelerate/accel:2861, from train.py:83 in {LONG}"),
        (INSIDE._replace(function="x" * 105), f"train.py:83 in {'x' * 105}"),
        (Place("x" * 300, 7, "f", "g"), "x" * 126 + ":7"),
    ],
)
def test_the_programs_own_line_comes_first_where_room_is_short(place: Place, text: str) -> None:
    assert str(place.fitted()) == text and len(text) <= MAX_NAME
    row = decode(told(Frames("p", 1, 2.5, rows=[("other", place, 3)])))
    assert isinstance(row, Frames) and len(str(row.rows[0][1])) <= MAX_NAME, "a foreign writer may not know"


@pytest.mark.parametrize(
    "place",
    ['["f"]', '["f",1,2]', '["f",1.5]', '"f"', "7", '["f",1,"","","",["g",1,"","",["h",1]]]', "[" * 900 + "]" * 900],
)
def test_what_is_no_place_hurts_nothing(place: str) -> None:
    event = decode(f'{{"kind":"frames","producer":"p","seq":1,"t":1.0,"rows":[["other",{place},3]]}}'.encode())
    assert event is None or isinstance(event, Frames)


def test_hostile_places_are_clean_and_short() -> None:
    place = Place("\x1b[31mtrain.py\u202e" * 90, 2**60, "f\n" * 200, "\x00", "a" * 999, Line("l" * 500, -3, "\x07g"))
    event = decode(told(Frames("p", 1, 2.5, rows=[("other", place, 3)])))
    assert isinstance(event, Frames)
    ((_, found, _),) = event.rows
    assert str(found).isprintable() and len(str(found)) <= MAX_NAME and len(found.activity) <= MAX_NAME
