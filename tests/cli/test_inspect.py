"""The command line of the inspection: one table and one figure."""

CONFIG = "--config=omniglot:steps=5"


def test_it_prints_a_table_and_writes_the_figure(call, tmp_path, monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))  # Without the data.
  out = tmp_path / "new" / "folder"
  done = call("inspect", CONFIG, f"--out={out}")
  assert done.returncode == 0, done.stderr
  assert done.stdout.splitlines()[-1] == f"wrote {out}/inspect.png"
  assert [path.name for path in out.iterdir()] == ["inspect.png"]
  for level in ("participant", "class", "image"):
    assert f"\n{level}" in done.stdout


def test_a_folder_that_cannot_be_written_is_one_sentence(call):
  done = call("inspect", CONFIG, f"--out={__file__}")
  assert done.returncode == 1 and not done.stdout
  assert len(done.stderr.strip().splitlines()) == 1
