"""Arguments after the colon of a config file."""

import pytest

from episodic_dp.config import arguments

KNOWN = {
    "private": True, "width": 8, "rate": 0.5, "name": "a", "copies": 0,
    "noise": 1.0,
}  # fmt: skip


def test_types_follow_the_defaults():
  text = "private=0,width=1,rate=1e-3,name=b,copies=0,noise=0"
  assert arguments.parse(text, **KNOWN).to_dict() == {
      "private": False, "width": 1, "rate": 0.001, "name": "b", "copies": 0,
      "noise": 0.0,
  }  # fmt: skip
  assert arguments.parse(None, **KNOWN).to_dict() == KNOWN
  assert arguments.parse("", **KNOWN).to_dict() == KNOWN


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("widht=3", "'widht=3' is not known.*width=8"),
        ("width", "'width' is not known"),
        ("width=wide", "width=wide must be a whole number"),
        ("width=1.5", "width=1.5 must be a whole number"),
        ("width=0", "width=0 must be .* at least 1, such as width=8"),
        ("copies=-1", "copies=-1 must be a whole number of at least 0"),
        ("rate=0", "rate=0 must be above 0 and at most 1, such as rate=0.5"),
        ("rate=1.5", "rate=1.5 must be above 0"),
        ("rate=nan", "rate=nan must be above 0"),
        ("noise=much", "noise=much must be a number, such as noise=1.0"),
        ("private=2", "private=2 must be 0 or 1"),
    ],
)
def test_mistakes_are_named(text, sentence):
  with pytest.raises(ValueError, match=sentence):
    arguments.parse(text, **KNOWN)
