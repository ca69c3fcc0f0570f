"""Flags given wrongly: one sentence, status 1, and nothing is written."""

import pytest

from tests.data import own_images

# DIR is a folder.
_BAD = {
    "trian": "'trian' is not a command",
    "train --workdir=DIR/run": "--config is missing",
    "train --config=glyphs": "--workdir is missing",
    "train": "--config is missing, the flag --workdir is missing",
    "train --config=glyph --workdir=DIR/run": "or one of cifar_fs",
    "train --config=glyphs --workdir=DIR/run --resume=maybe": "--resume",
    "train --config=glyphs --workdir=DIR/run --time_limit=5":
        "--time_limit=5: expected",
    "train --config=glyphs --workdir=DIR/run --num_processes=2 --process_id=0":
        "expected all three",
    "train --config=glyphs --workdir=DIR/run --coordinator=localhost":
        "expected all three",
    "train --config=glyphs --workdir=DIR/run --workdir=": "empty value",
    "train --config=glyphs --workdir=DIR/run --workdir=DIR/broken.py":
        "is not a folder",
    "train --config=omniglot --data_dir=none --workdir=DIR":
        "holds no run, but other files, such as 'broken.py'",
    "pvi --workdir=DIR/run --config=adult --workdir=DIR/broken.py/a":
        "broken.py is not a folder",
    "pvi --workdir=DIR/run": "--config is missing",
    "pvi --workdir=DIR/run --config=adult": "adult.data of UCI Adult is not in",
    "pvi --workdir=DIR/run --config=glyphs": "expected a file, or one of adult",
    "pvi --workdir=DIR/run --config=adult --data_dir=none":
        "is not in data_dir=none",
    "pvi --workdir=DIR/run --config=own_table": "without data_dir (in a",
    "pvi --workdir=DIR/run --config=own_table --data_dir=DIR/t.csv":
        "is no folder",
    "pvi --workdir=DIR/run --config=adult:split=uneven":
        "config argument split='uneven'",
    "pvi --workdir=DIR/run --config=adult --config.visit.rate=0.0":
        "config.visit.rate",
    "train --config=own_data --data_dir=DIR/own --workdir=DIR/own/run":
        "would change --data_dir=",
    "train --config=own_data --data_dir=DIR/own --workdir=DIR/run "
    "--export=DIR/own/model":
        "would change --data_dir=",
    "inspect --config=own_data --data_dir=DIR/own --out=DIR/own":
        "would change --data_dir=",
    "data --name=glyphs --out=DIR/run --options=participants=0":
        "error: glyphs.participants=0: expected",
    "evaluate --workdir=DIR/run --config.steps=3": "no field of a",
    "evaluate --workdir=DIR/run": "config.json does not exist",
    "account": "give --config=NAME",
    "account --config=none": "--config=none: expected a file",
    "account --config=glyphs:widht=3": "argument 'widht=3' is not known",
    "account --config=DIR/broken.py": "invalid syntax",
    "account --config=DIR/empty.py": "has no function get_config: define",
    "account --config=DIR/run.py": "has no function get_config: define",
    "account --config=DIR/text.py": "'text': write it after a colon",
    "account --config=DIR/named.py": "'rate': write it after a colon",
    "account --config=glyphs --config.stpes=3":
        "config.stpes=3: expected one of the",
    "account --config=glyphs --config.zzzz.y=3":
        "config.zzzz={'y': 3}: expected one of",
    "account --config=glyphs --config.augmentation.flip=maybe": "flip='maybe'",
    "account --config=glyphs --workdr=x": "'workdr'",
    "account --config=glyphs --steps=3":
        "'steps': a field of a config is --config.FIELD",
    "account --config=glyphs --epsilon=2": "episodic-dp calibrate --epsilon",
    "account --config=glyphs more": "argument 'more' is not a flag",
    "account --config=glyphs --config.mechanism.clip_norm=-1": "clip_norm",
    "account --config=glyphs --config.delta=2.0": "config.delta=2.0",
    "account --config=glyphs --delta=3.0": "config.delta=3.0",
    "account --config=glyphs --format=xml": "xml",
    "account --config=glyphs --sweep=magic": "value should be one of <delta>",
    "account --config=glyphs --config.plan.stages=('Foo(1)',)": "Foo(1)",
    "account --config=glyphs --group=0": "group",
    "account --config=glyphs --ledger=DIR/a": "--ledger=DIR,DIR",
    "account --ledger=DIR/a,DIR/b --config.steps=3":
        "--config.FIELD goes without --ledger",
    "account --ledger=s3://runs/a,b": "s3://runs/a cannot be read (state",
    "verify": "give one privacy statement",
    "verify x.json y.json": "argument 'y.json' is not a flag",
    "verify nowhere.json": "nowhere.json: it cannot be read",
    "verify DIR": "/guarantee.json: it cannot be read (No such file",
    "verify https://x.org/g.json": "https://x.org/g.json: statements are",
    "verify .": "give a work directory with a guarantee.json",
    "calibrate --config=glyphs": "--epsilon",
    "calibrate --config=glyphs --epsilon=0":
        "epsilon=0.0: expected a finite number above 0",
    "calibrate --config=glyphs --epsilon=inf":
        "epsilon=inf: expected a finite number",
    "calibrate --config=glyphs:private=0 --epsilon=1": "clip_norm=1)",
    "calibrate --config=glyphs --epsilon=1 --level=hospital": "'hospital'",
    "calibrate --config=glyphs --epsilon=1 --neighbours=two":
        "add-or-remove|replace-one",
    "calibrate --config=glyphs --epsilon=1 --delta=0.9": "no noise is needed",
    "train --config=glyphs --workdir=DIR/run --neighbours=replace-one":
        "goes with --epsilon",
    "calibrate --config=glyphs --epsilon=1e-4 --solve=steps":
        "by the first step",
    "plan --config=glyphs": "--epsilon",
    "plan --config=glyphs --epsilon=-1": "epsilon=-1.0: expected",
    "plan --config=glyphs --epsilon=1 --level=hospital": "'hospital'",
    "plan --config=glyphs_supervised --epsilon=1": "dp calibrate",
    "plan --config=glyphs_sample_level --epsilon=1": "dp calibrate",
    "plan --config=glyphs --epsilon=1 --config.mechanism.clip_by=layer":
        "mechanism.clip_by=global",
}


@pytest.mark.parametrize("line", _BAD)
def test_a_bad_flag_is_one_sentence(call, tmp_path, line):
  (tmp_path / "broken.py").write_text("def get_config(:\n")
  (tmp_path / "empty.py").touch()
  (tmp_path / "run.py").write_text("get_config = {}")
  (tmp_path / "named.py").write_text("def get_config(*, rate): pass")
  (tmp_path / "text.py").write_text("def get_config(text): pass")
  if "own_data" in line:
    own_images.tree(tmp_path / "own", {f"class{k}": 2 for k in range(60)})
  done = call(*(word.replace("DIR", str(tmp_path)) for word in line.split()))
  last = done.stderr.strip().splitlines()[-1]
  assert done.returncode == 1 and "Traceback" not in done.stderr
  assert last.startswith("error: ") and _BAD[line] in last
  assert not done.stdout and not (tmp_path / "run").exists()
