"""Documents name commands, presets and targets that exist."""

import pathlib
import re

import pytest

from episodic_dp.cli import commands
from episodic_dp.config import presets
from experiments import targets

ROOT = pathlib.Path(__file__).parent.parent
DOCUMENTS = [ROOT / f"{x}.md" for x in ("README", "WORKSPACE", "CONTRIBUTING")]
DOCUMENTS += sorted((ROOT / "docs").rglob("*.md"))
NAMES = (
    (r"episodic-dp +([a-z][a-z-]*)", commands.COMMANDS),
    (r"--config=([a-z]\w*)", (*presets.NAMES, *presets.PVI_NAMES)),
    (r"--target=([a-z]\w*)", (*targets.NAMES, "local", "slurm", "tpu",
                              "kubernetes")),
    (r"(?:^|`)make ([a-z][a-z-]+)", re.findall(
        r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)),
)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
@pytest.mark.parametrize("pattern, known", NAMES)
def test_names_exist(path, pattern, known):
  text = path.read_text("utf-8").replace("\\\n", " ")
  assert {*re.findall(pattern, text, re.MULTILINE)} <= {*known}
