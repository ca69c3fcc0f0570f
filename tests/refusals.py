"""What is refused ends in one sentence."""

import pytest


def assert_refused(error, match, call, /, *arguments, **options):
  """Require an error of one line that matches; return its text."""
  with pytest.raises(error, match=match) as caught:
    call(*arguments, **options)
  said = str(caught.value)
  assert "\n" not in said
  return said
