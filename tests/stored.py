"""What is written as JSON, read back."""

import json


def json_of(path):
  """Return what a file of JSON holds."""
  return json.loads(path.read_text())


def through_json(data):
  """Return plain data as they are after JSON, which has no infinity."""
  return json.loads(json.dumps(data, allow_nan=False))
