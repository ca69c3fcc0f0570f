"""All pictures have one style, and other programs keep theirs."""

import io

import matplotlib
from matplotlib import image as image_lib
import pytest

from episodic_dp.output import plotting


@plotting.styled
def drawn():
  figure = plotting.figure(3.0)
  axes = figure.subplots()
  for number in range(7):
    axes.plot([0, 1], [number, 0], label="x", **plotting.series(number))
  axes.set_xscale("log")
  plotting.ticks(axes.xaxis, [0.2, 1])
  plotting.legend_below(axes)
  return figure


def test_the_same_figure_is_the_same_bytes_of_a_fixed_size():
  data = plotting.png(drawn())
  assert data == plotting.png(drawn())
  height, width, _ = image_lib.imread(io.BytesIO(data)).shape
  assert width / height == pytest.approx(plotting.NARROW / 3.0, rel=0.01)


def test_ticks_are_plain_numbers_at_the_values():
  axes = drawn().axes[0]
  assert [t.get_text() for t in axes.get_xticklabels()] == ["0.2", "1"]
  assert not axes.get_xticks(minor=True).size


def test_a_few_steps_have_no_fractions():
  axes = plotting.figure(3).subplots()
  axes.plot([0, 4], [1, 2])
  plotting.over_steps(axes)
  shown = [t for t in axes.get_xticks() if 0 <= t <= axes.get_xlim()[1]]
  assert len(shown) > 2 and all(t == int(t) for t in shown)
  assert axes.get_xlim()[0] == 0


def test_the_style_of_the_process_is_left_alone(tmp_path):
  before = dict(matplotlib.rcParams)
  plotting.save(drawn(), tmp_path / "a.png")
  assert dict(matplotlib.rcParams) == before


def test_pictures_are_written_at_once(tmp_path):
  path = tmp_path / "new" / "a.png"
  plotting.save(drawn(), path, private=True)
  assert path.read_bytes().startswith(b"\x89PNG")
  assert path.stat().st_mode & 0o777 == 0o600
