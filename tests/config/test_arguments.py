"""Arguments after the colon of a config file."""

import pytest

from episodic_dp.config import arguments

KNOWN = {"private": True, "width": 8, "rate": 0.5, "name": "a"}


def test_types_follow_the_defaults():
  found = arguments.parse("private=0,width=3,rate=1e-3,name=b", **KNOWN)
  assert found.to_dict() == {
      "private": False, "width": 3, "rate": 0.001, "name": "b"
  }
  assert arguments.parse(None, **KNOWN).to_dict() == KNOWN
  assert arguments.parse("", **KNOWN).to_dict() == KNOWN


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("widht=3", "'widht=3' is not known.*width=8"),
        ("width", "'width' is not known"),
        ("width=wide", "width=wide must be int"),
        ("width=1.5", "width=1.5 must be int"),
        ("private=2", "private=2 must be 0 or 1"),
    ],
)
def test_mistakes_are_named(text, sentence):
  with pytest.raises(ValueError, match=sentence):
    arguments.parse(text, **KNOWN)
