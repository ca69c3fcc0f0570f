"""Flags of the commands that train, given wrongly: one sentence, status 1."""

import pytest

_TRAIN = ("train", "--config=glyphs", "--workdir=DIR/run")
_BAD = {
    ("train", "--workdir=DIR/run"): "--config is missing",
    ("train", "--config=glyphs"): "--workdir is missing",
    ("train", "--config=glyph", "--workdir=DIR/run"): "neither a file nor a",
    (*_TRAIN, "--resume=maybe"): "--resume",
    (*_TRAIN, "--resume=must"): "no run was ever begun",
    (*_TRAIN, "--time_limit=5"): "write it as 90s, 55m",
    (*_TRAIN, "--key_file=DIR/key"): "is for a run on an object store",
    (*_TRAIN, "--keys=0"): "--keys=0",
    (*_TRAIN, "--num_processes=2", "--process_id=0"): "expected all three",
    (*_TRAIN, "--coordinator=localhost"): "expected all three",
    (*_TRAIN, "--config.steps=none"): "steps",
    (*_TRAIN, "--config.stepz=3"): "did you mean",
    (*_TRAIN, "--workdir="): "empty value",
    ("pvi", "--config=glyphs", "--workdir=DIR/run"): "nor a preset",
    ("pvi", "--config=adult", "--workdir=DIR/run"): "adult.data of UCI Adult",
    ("evaluate", "--workdir=DIR/run"): "config.json does not exist",
}


@pytest.mark.parametrize("arguments", _BAD, ids=" ".join)
def test_a_bad_flag_is_one_sentence(call, tmp_path, arguments):
  done = call(*(a.replace("DIR", str(tmp_path)) for a in arguments))
  last = done.stderr.strip().splitlines()[-1]
  assert done.returncode == 1 and "Traceback" not in done.stderr
  assert last.startswith("error: ") and _BAD[arguments] in last
  assert not (tmp_path / "run").exists()
