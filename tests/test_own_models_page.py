"""docs/own_models.md: its code runs, and prints what it shows."""

import pathlib
import re

import jax
import jax.numpy as jnp
import pytest

from episodic_dp.config import networks
from episodic_dp.config import RunConfig
from episodic_dp.config import sections
from episodic_dp.config.presets import glyphs

PAGE = pathlib.Path(__file__).parent.parent / "docs" / "own_models.md"


@pytest.mark.slow  # Compiles the initialisation of a network.
def test_its_code_runs_and_prints_what_it_shows(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(tmp_path)
  text = PAGE.read_text()
  own, module, random, start = re.findall(
      r"```python\n(.*?)```", text, re.DOTALL
  )
  (shown,) = re.findall(r"```\n\n```\n(all .*?)```", text, re.DOTALL)
  scope: dict = {"__name__": "page"}
  for code in (own, random, start):
    exec(compile(code, "own_models", "exec"), scope)
  assert capsys.readouterr().out == shown
  x = jax.ShapeDtypeStruct((3, *scope["SHAPE"]), jnp.float32)
  for model in (*scope["networks"], scope["dropping"]):
    params = jax.eval_shape(model.init, jax.random.key(0))
    assert jax.eval_shape(model.apply, params, x).shape == (3, 5)
    assert any(name.endswith("head") or "/" in name for name in params)
  assert scope["dropping"].random is not None
  # The file, by the name that the command gives.
  assert module.startswith("# my_module.py\n")
  (tmp_path / "my_module.py").write_text(module)
  (name,) = re.findall(r"--config.model.name=(\w+:\w+)", text)
  config = RunConfig.parse(glyphs.get_config()).with_changes(
      {"model.name": name}
  )
  networks.check(config.model)
  assert networks.make_model(config, (8, 8, 1)).way == 5


@pytest.mark.parametrize("name", sections.NETWORKS)
def test_it_names_every_network_and_what_it_reads(name):
  (row,) = re.findall(rf"^\| `{name}`.*$", PAGE.read_text(), re.MULTILINE)
  read = re.findall(r"`(\w+)`", row.rpartition(" | ")[2])
  assert tuple(read) == sections.NETWORKS[name]
