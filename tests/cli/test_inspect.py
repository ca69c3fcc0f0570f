"""The command line of the inspection: one line, or one sentence."""

import pytest

# Too many participants to count draws: the page is made without JAX.
CONFIG = "--config=glyphs:participants=2000000,steps=5"


def test_it_prints_the_path_of_the_page_and_nothing_else(call, tmp_path):
  out = tmp_path / "new" / "folder"
  done = call("inspect", CONFIG, "--nodata", f"--out={out}")
  assert done.returncode == 0, done.stderr
  assert done.stdout == f"{out}/index.html\n"
  # On a busy machine a phase may take the second after which it speaks.
  for line in done.stderr.splitlines():
    assert line.startswith(("computing the guarantees", "drawing the"))
  text = (out / "index.html").read_text("utf-8")
  assert "<title>glyphs:participants=2000000,steps=5</title>" in text
  assert "would take too long" in text and str(tmp_path) not in text


@pytest.mark.parametrize(
    "arguments,part",
    [
        (
            ("--out=x", "--nodata", "--show_private_training_images"),
            "contradict each other",
        ),
        ((f"--out={__file__}",), "cannot be written"),
    ],
)
def test_mistakes_end_in_one_sentence(call, arguments, part):
  done = call("inspect", CONFIG, *arguments)
  assert done.returncode == 1 and not done.stdout
  assert part in done.stderr and "Traceback" not in done.stderr
  assert len(done.stderr.strip().splitlines()) == 1


def test_help_teaches(call):
  done = call("inspect", "--help")
  for part in ("--config", "--nodata", "public", "private", "index.html"):
    assert part in done.stdout
