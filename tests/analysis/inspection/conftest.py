"""One small page on the built-in data, made once for all tests."""

import pytest

from episodic_dp.analysis.inspection import report
from episodic_dp.config import build
from episodic_dp.config import RunConfig
from episodic_dp.config.presets import glyphs

TITLE = "glyphs:participants=40"


@pytest.fixture(scope="session")
def config():
  """A hundredth of the built-in data, with larger rates."""
  c = glyphs.get_config("participants=40,rate=0.1,size=16,steps=20")
  c.data.options.validation_participants = 8
  c.data.options.test_participants = 1
  return c


@pytest.fixture(scope="session")
def splits(config):
  """Its data."""
  return build.load_data(RunConfig.parse(config), data_dir=None)


@pytest.fixture(scope="session")
def make(config, splits):
  """A function from options to content, which loads and counts nothing.

  Guarantees and pictures of the config above are computed once; those of other
  configs, and all of a page that counts draws, as on any page.
  """
  summary = report.summary_lib.summarize(RunConfig.parse(config))
  pictures = report._pictures(summary, ())

  def made(**options):
    c, counts = options.pop("config", config), options.pop("counts", False)
    with pytest.MonkeyPatch.context() as patch:
      patch.setattr(build, "load_data", lambda *_, **__: splits)
      if not counts:
        patch.setattr(
            report.frequencies, "why_not_counted",
            lambda *_: "Draws are not counted.",
        )
        if c is config:
          patch.setattr(report.summary_lib, "summarize", lambda _: summary)
          patch.setattr(report, "_pictures", lambda *_: dict(pictures))
      return report.make(RunConfig.parse(c), TITLE, report.Options(**options))

  return made


@pytest.fixture(scope="session")
def shown(make, tmp_path_factory):
  """The content and the folder of the whole page, three tasks on it."""
  content = make(tasks=3, counts=True)
  folder = tmp_path_factory.mktemp("inspect")
  assert report.write(content, str(folder)) == folder / "index.html"
  return content, folder
