"""Flags given wrongly: one sentence, status 1, and nothing is written."""

import pytest

from tests.data import own_images

_TRAIN = ("train", "--config=glyphs", "--workdir=DIR/run")
_ACCOUNT = ("account", "--config=glyphs")
_LEDGER = ("account", "--ledger=DIR/a,DIR/b")
_SOLVE = ("calibrate", "--config=glyphs")
_PLAN = ("plan", "--config=glyphs", "--epsilon=1")
_PVI = ("pvi", "--workdir=DIR/run")
_ADULT = (*_PVI, "--config=adult")
_BAD = {
    ("trian",): "'trian' is not a command",
    ("train", "--workdir=DIR/run"): "--config is missing",
    ("train", "--config=glyphs"): "--workdir is missing",
    ("train",): "--config is missing, the flag --workdir is missing",
    ("train", "--config=glyph", "--workdir=DIR/run"): "or one of cifar_fs",
    (*_TRAIN, "--resume=maybe"): "--resume",
    (*_TRAIN, "--time_limit=5"): "--time_limit=5: expected",
    (*_TRAIN, "--num_processes=2", "--process_id=0"): "expected all three",
    (*_TRAIN, "--coordinator=localhost"): "expected all three",
    (*_TRAIN, "--workdir="): "empty value",
    (*_TRAIN, "--workdir=DIR/broken.py"): "is not a folder",
    ("train", "--config=omniglot", "--data_dir=none", "--workdir=DIR"):
        "holds no run, but other files, such as 'broken.py'",
    (*_ADULT, "--workdir=DIR/broken.py/a"): "broken.py is not a folder",
    _PVI: "--config is missing",
    _ADULT: "adult.data of UCI Adult is not in",
    (*_PVI, "--config=glyphs"): "expected a file, or one of adult",
    (*_ADULT, "--data_dir=none"): "is not in data_dir=none",
    (*_PVI, "--config=own_table"): "without data_dir (in a",
    (*_PVI, "--config=own_table", "--data_dir=DIR/t.csv"): "is no folder",
    (*_PVI, "--config=adult:split=uneven"): "config argument split='uneven'",
    (*_ADULT, "--config.visit.rate=0.0"): "config.visit.rate",
    ("train", "--config=own_data", "--data_dir=DIR/own",
     "--workdir=DIR/own/run"): "would change --data_dir=",
    ("train", "--config=own_data", "--data_dir=DIR/own", "--workdir=DIR/run",
     "--export=DIR/own/model"): "would change --data_dir=",
    ("inspect", "--config=own_data", "--data_dir=DIR/own", "--out=DIR/own"):
        "would change --data_dir=",
    ("data", "--name=glyphs", "--out=DIR/run", "--options=participants=0"):
        "error: glyphs.participants=0: expected",
    ("evaluate", "--workdir=DIR/run", "--config.steps=3"): "no field of a",
    ("evaluate", "--workdir=DIR/run"): "config.json does not exist",
    ("account",): "give --config=NAME",
    ("account", "--config=none"): "--config=none: expected a file",
    ("account", "--config=glyphs:widht=3"): "argument 'widht=3' is not known",
    ("account", "--config=DIR/broken.py"): "invalid syntax",
    ("account", "--config=DIR/empty.py"): "has no function get_config: define",
    ("account", "--config=DIR/run.py"): "has no function get_config: define",
    ("account", "--config=DIR/text.py"): "'text': write it after a colon",
    ("account", "--config=DIR/named.py"): "'rate': write it after a colon",
    (*_ACCOUNT, "--config.stpes=3"): "config.stpes=3: expected one of the",
    (*_ACCOUNT, "--config.zzzz.y=3"): "config.zzzz={'y': 3}: expected one of",
    (*_ACCOUNT, "--config.augmentation.flip=maybe"): "flip='maybe'",
    (*_ACCOUNT, "--workdr=x"): "'workdr'",
    (*_ACCOUNT, "--steps=3"): "'steps': a field of a config is --config.FIELD",
    (*_ACCOUNT, "--epsilon=2"): "episodic-dp calibrate --epsilon",
    (*_ACCOUNT, "more"): "argument 'more' is not a flag",
    (*_ACCOUNT, "--config.mechanism.clip_norm=-1"): "clip_norm",
    (*_ACCOUNT, "--config.delta=2.0"): "config.delta=2.0",
    (*_ACCOUNT, "--delta=3.0"): "config.delta=3.0",
    (*_ACCOUNT, "--format=xml"): "xml",
    (*_ACCOUNT, "--sweep=magic"): "value should be one of <delta>",
    (*_ACCOUNT, "--config.plan.stages=('Foo(1)',)"): "Foo(1)",
    (*_ACCOUNT, "--group=0"): "group",
    (*_ACCOUNT, "--ledger=DIR/a"): "--ledger=DIR,DIR",
    (*_LEDGER, "--config.steps=3"): "--config.FIELD goes without --ledger",
    ("account", "--ledger=s3://runs/a,b"): "s3://runs/a cannot be read (state",
    ("verify",): "give one privacy statement",
    ("verify", "x.json", "y.json"): "argument 'y.json' is not a flag",
    ("verify", "nowhere.json"): "nowhere.json: it cannot be read",
    ("verify", "DIR"): "/guarantee.json: it cannot be read (No such file",
    ("verify", "https://x.org/g.json"): "https://x.org/g.json: statements are",
    ("verify", "."): "give a work directory with a guarantee.json",
    _SOLVE: "--epsilon",
    (*_SOLVE, "--epsilon=0"): "epsilon=0.0: expected a finite number above 0",
    (*_SOLVE, "--epsilon=inf"): "epsilon=inf: expected a finite number",
    ("calibrate", "--config=glyphs:private=0", "--epsilon=1"): "clip_norm=1)",
    (*_SOLVE, "--epsilon=1", "--level=hospital"): "'hospital'",
    (*_SOLVE, "--epsilon=1", "--neighbours=two"): "add-or-remove|replace-one",
    (*_SOLVE, "--epsilon=1", "--delta=0.9"): "no noise is needed",
    (*_TRAIN, "--neighbours=replace-one"): "goes with --epsilon",
    (*_SOLVE, "--epsilon=1e-4", "--solve=steps"): "by the first step",
    ("plan", "--config=glyphs"): "--epsilon",
    ("plan", "--config=glyphs", "--epsilon=-1"): "epsilon=-1.0: expected",
    (*_PLAN, "--level=hospital"): "'hospital'",
    ("plan", "--config=glyphs_supervised", "--epsilon=1"): "dp calibrate",
    ("plan", "--config=glyphs_sample_level", "--epsilon=1"): "dp calibrate",
    (*_PLAN, "--config.mechanism.clip_by=layer"): "mechanism.clip_by=global",
}


@pytest.mark.parametrize("arguments", _BAD, ids=" ".join)
def test_a_bad_flag_is_one_sentence(call, tmp_path, arguments):
  (tmp_path / "broken.py").write_text("def get_config(:\n")
  (tmp_path / "empty.py").touch()
  (tmp_path / "run.py").write_text("get_config = {}")
  (tmp_path / "named.py").write_text("def get_config(*, rate): pass")
  (tmp_path / "text.py").write_text("def get_config(text): pass")
  if any("own_data" in text for text in arguments):
    own_images.tree(tmp_path / "own", {f"class{k}": 2 for k in range(60)})
  done = call(*(a.replace("DIR", str(tmp_path)) for a in arguments))
  last = done.stderr.strip().splitlines()[-1]
  assert done.returncode == 1 and "Traceback" not in done.stderr
  assert last.startswith("error: ") and _BAD[arguments] in last
  assert not done.stdout and not (tmp_path / "run").exists()
