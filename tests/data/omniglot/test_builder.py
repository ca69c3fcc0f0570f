"""Only the original drawings are taken, and only the published files."""

import io

from PIL import Image
import pytest

from episodic_dp.data.omniglot import builder
from episodic_dp.data.omniglot import source


def test_grey_drawings_are_refused():
  buffer = io.BytesIO()
  Image.new("L", (105, 105), 7).save(buffer, "PNG")
  with pytest.raises(ValueError, match=r"grey values \[7\]"):
    builder.decode(buffer.getvalue())


def test_checksums_for_downloads_are_the_accepted_ones():
  infos = builder.Omniglot28.url_infos
  for archive in source.ORIGINALS.sources["zips"].values():
    info = infos[archive.url]
    assert info.checksum == archive.sha256[0]
    assert info.filename == archive.file == archive.url.rsplit("/", 1)[1]
