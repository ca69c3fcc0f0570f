"""Files of others, damaged at random: a harmless load or one sentence.

Nothing that is read may write a file, start a program or take long.
"""

from collections.abc import Callable
import contextlib
import io
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
from typing import Any, NamedTuple
import warnings
import zipfile

import numpy as np
from PIL import Image
import pytest

from episodic_dp import accounting
from episodic_dp import models
from episodic_dp.accounting import statement
from episodic_dp.analysis import costs
from episodic_dp.cli import app
from episodic_dp.data.own_data import load as own_data
from episodic_dp.data.own_data import readers
from episodic_dp.data.own_data import rows
from episodic_dp.export import folder as folder_lib
from episodic_dp.export import Predictor
from episodic_dp.export import writing
from episodic_dp.pvi import tables
from episodic_dp.run import Run
from episodic_dp.training import checkpoint
from episodic_dp.training import workdir
from tests.cli import tiny_runs
from tests.data import own_images
from tests.data import test_backbone
from tests.export.conftest import save_run

MANY = 500
SECONDS = 20  # One file, on a busy machine.
LONGEST = 1500  # Characters of a message.
FORMATS = ("png", "jpg", "tif", "webp", "gif", "bmp", "ppm", "jp2")
STRANGE = (
    None, True, -1, 0, 7, 2**31, 10**30, 0.5, -0.0, 1e308, 1e-308, "", "inf",
    "a\nb", "\0", "../../x", "x" * 10_000, [], {}, [[]], {"": {}}, [1] * 1000,
)

Read = Callable[[pathlib.Path], Any]


class Late(BaseException):
  """No reader may take this for an error of its file."""


class Case(NamedTuple):
  """A folder that is whole, its file to damage, and how it is read."""

  make: Callable[[pathlib.Path], pathlib.Path]
  read: Read
  seal: Read = str  # Called between the damage and the read.


# Damages ----------------------------------------------------------------------


def flipped(content: bytes, rng: random.Random) -> bytes:
  found = bytearray(content)
  for _ in range(rng.choice((1, 1, 3, 20))):
    found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
  return bytes(found)


def cut(content: bytes, rng: random.Random) -> bytes:
  return content[: rng.randrange(len(content))]


def repeated(content: bytes, rng: random.Random) -> bytes:
  start, length = rng.randrange(len(content)), rng.randrange(1, 64)
  block = content[start : start + length]
  return content[:start] + block * rng.choice((2, 3, 1000)) + content[start:]


def spliced(content: bytes, rng: random.Random) -> bytes:
  length = rng.randrange(1, max(2, len(content) // 3))
  source, target = (rng.randrange(len(content)) for _ in range(2))
  block = rng.choice((
      content[source : source + length], bytes(length), b"\xff" * length,
      rng.randbytes(length),
  ))
  return content[:target] + block + content[target + len(block) :]


def changed(content: bytes, rng: random.Random) -> bytes:
  """Change a value of JSON, or a cell of a table."""
  try:
    data = json.loads(content)
  except ValueError:
    text = content.decode("latin-1")
    words = text.replace("\n", ",").split(",")
    new = str(rng.choice(STRANGE))
    return text.replace(rng.choice(words) or ",", new, 1).encode()
  node, key = data, None
  while isinstance(node, (dict, list)) and node:
    parent, key = node, rng.choice(
        list(node) if isinstance(node, dict) else range(len(node))
    )
    node = node[key]
    if rng.random() < 0.1:
      break
  if key is None or rng.random() < 0.1:
    data = rng.choice(STRANGE)
  elif rng.random() < 0.1:
    del parent[key]
  elif isinstance(parent, dict) and rng.random() < 0.1:
    parent[f"{key}{rng.choice(STRANGE)}"] = node
  else:
    parent[key] = rng.choice((*STRANGE, node, [node] * 3, {"a": node}))
  return json.dumps(data).encode()


def entry(content: bytes, rng: random.Random) -> bytes:
  """Damage one file of a zip, whose checksum is that of the damaged one."""
  stream = io.BytesIO()
  with zipfile.ZipFile(io.BytesIO(content)) as z:
    held = {name: z.read(name) for name in z.namelist()}
  chosen = rng.choice([*held])
  with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as z:
    for name, one in held.items():
      z.writestr(name, damaged(one, rng) if name == chosen else one)
  return stream.getvalue()


def damaged(content: bytes, rng: random.Random) -> bytes:
  kinds = [flipped, cut, repeated, spliced]
  if content[:2] == b"PK":
    kinds += [entry] * 4
  elif content[:1] in b"{[" or content.isascii():
    kinds += [changed] * 4
  return rng.choice(kinds)(content, rng)


# Files ------------------------------------------------------------------------


def picture(suffix: str) -> Case:
  def make(root: pathlib.Path) -> pathlib.Path:
    place = root / f"x.{suffix}"
    Image.fromarray(own_images.pixels(0, 32)).save(place)
    return place

  return Case(make, readers.read)


def array(root: pathlib.Path) -> pathlib.Path:
  np.save(root / "x.npy", np.random.default_rng(0).normal(size=(4, 5)))
  return root / "x.npy"


def dicom(root: pathlib.Path) -> pathlib.Path:
  values = np.arange(64, dtype=np.uint16).reshape(8, 8)
  return own_images.dicom(root / "x.dcm", values, WindowCenter=8, WindowWidth=9)


def npz(root: pathlib.Path) -> pathlib.Path:
  arrays = own_images.arrays() | {"units": np.asarray([*"012345"])}
  np.savez_compressed(root / "own.npz", **arrays)
  return root / "own.npz"


def table(root: pathlib.Path) -> pathlib.Path:
  own_images.tree(root, {"a": 2, "b": 2, "c": 2, "d": 2})
  lines = [f"{p.parent.name}/{p.name},{p.parent.name}"
           for p in sorted(root.rglob("*.png"))]
  (root / "own.csv").write_text("file,class\n" + "\n".join(lines) + "\n")
  return root / "own.csv"


def read_own(path: pathlib.Path) -> None:
  found = own_data.survey(path, rows.OwnData())
  read = found.listing.reader()
  for classes in found.parts.values():
    read(next(c for c in classes if c.records).records[0])


def weights(suffix: str) -> Callable[[pathlib.Path], pathlib.Path]:
  def make(root: pathlib.Path) -> pathlib.Path:
    kernel = np.arange(12, dtype=np.float32).reshape(3, 4)
    models.write_weights(root / f"w{suffix}", {"a": {"kernel": kernel}})
    return root / f"w{suffix}"

  return make


def run(root: pathlib.Path, learner: str = "protonet") -> pathlib.Path:
  config = tiny_runs.maml_config().replace(
      {"learner.name": learner}
  )
  save_run(config, root / "run", tiny_runs.splits())
  return root / "run"


def exported(name: str) -> Case:
  def make(root: pathlib.Path) -> pathlib.Path:
    writing.write(run(root), root / "model")
    return root / "model" / name

  def seal(path: pathlib.Path) -> None:
    if name != folder_lib.DIGESTS:
      (path.parent / folder_lib.DIGESTS).unlink()
      folder_lib.seal(path.parent)

  return Case(make, lambda path: Predictor.load(path.parent), seal)


def adapted(name: str) -> Case:
  def make(root: pathlib.Path) -> pathlib.Path:
    writing.write(run(root), root / "model")
    model = Predictor.load(root / "model")
    shape = (8, *model.description.preprocessing.shape)
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    model.adapt(images, [*"aabbccdd"], epsilon=5.0).save(root / "adapted")
    return root / "adapted" / name

  return exported(name)._replace(make=make)


def backbone(root: pathlib.Path) -> pathlib.Path:
  (root / "b.onnx").write_bytes(test_backbone.content_of())
  return root / "b.onnx"


def read_backbone(path: pathlib.Path) -> None:
  found = test_backbone.opened(path.read_bytes())
  found.features(np.zeros(found.shape, np.uint8))


def small_statement(root: pathlib.Path) -> pathlib.Path:
  release = tiny_runs.maml_config().release
  ledger = accounting.Ledger().add(release, 3, continued=False)
  found = accounting.run_statement(ledger, delta=1e-5)
  (root / "guarantee.json").write_text(json.dumps(found))
  return root / "guarantee.json"


def saved(root: pathlib.Path) -> pathlib.Path:
  checkpoints = checkpoint.Checkpoints(root)
  arrays = {"w": np.arange(9, dtype=np.float32)}
  checkpoints.save(2, arrays, {"step": 0}, quality=0.5, ledger={"a": [1, 2]})
  return root / "checkpoints" / "2.npz"


def restore(path: pathlib.Path) -> None:
  checkpoints = checkpoint.Checkpoints(path.parents[1])
  checkpoints.best()
  checkpoints.arrays(2)
  checkpoints.restore(2, {"w": np.zeros(9, np.float32)}, {"step": 0})


SCHEMA = {
    "columns": {
        "age": {"centre": 40, "scale": 10},
        "gain": {"scale": 2, "log": True},
        "work": ["a", "b"],
    },
    "label": "class", "classes": ["no", "yes"],
    "client": "site", "clients": ["x", "y"],
}


def schema(root: pathlib.Path) -> pathlib.Path:
  (root / "schema.json").write_text(json.dumps(SCHEMA))
  return root / "schema.json"


def pvi_table(root: pathlib.Path) -> pathlib.Path:
  schema(root)
  lines = ["age,gain,work,class,site", "30,1,a,no,x", "50,2.5,b,yes,y"]
  (root / "own.csv").write_text("\n".join([*lines, *lines[1:]]) + "\n")
  return root / "own.csv"


def read_pvi(path: pathlib.Path) -> None:
  tables.read(path, tables.read_schema(path.parent / "schema.json"))


CASES = {
    **{name: picture(name) for name in FORMATS},
    "npy": Case(array, readers.read),
    "dcm": Case(dicom, readers.read),
    "npz": Case(npz, read_own),
    "csv": Case(table, read_own),
    "weights.npz": Case(weights(".npz"), models.read_weights),
    "weights.safetensors": Case(weights(".safetensors"), models.read_weights),
    "model.json": exported(folder_lib.MODEL),
    "model.safetensors": exported("weights.safetensors"),
    "digests.json": exported(folder_lib.DIGESTS),
    "privacy_statement.json": exported(folder_lib.STATEMENT),
    **{name: adapted(name) for name in (
        folder_lib.ADAPTATION, folder_lib.PROTOTYPES,
    )},
    "backbone": Case(backbone, read_backbone),
    "statement": Case(
        small_statement, lambda p: statement.verify_file(p).rows()
    ),
    "ledger": Case(
        small_statement, lambda p: costs.account_runs([str(p)], delta=None)
    ),
    "checkpoint": Case(saved, restore),
    "config.json": Case(
        lambda root: run(root) / workdir.CONFIG,
        lambda p: Run.parse(workdir.read_config(p.parent)).resolved(),
    ),
    "schema": Case(schema, tables.read_schema),
    "pvi table": Case(pvi_table, read_pvi),
}


# What is watched --------------------------------------------------------------

_WATCHED: list[tuple[str, str]] = []
_watching = False


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
  if not _watching:
    return
  if event == "open":
    path, _, flags = arguments
    if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
      _WATCHED.append((event, str(path)))
  elif event.startswith(("subprocess", "os.system", "os.exec", "os.posix_sp",
                         "os.fork", "socket.connect", "os.remove", "os.rename",
                         "os.mkdir", "shutil")):
    _WATCHED.append((event, str(arguments)[:200]))


@contextlib.contextmanager
def harmless():
  """Fail if the body writes, starts a program or takes long."""
  global _watching

  def late(*_: Any) -> None:
    raise Late

  _WATCHED.clear()
  old = signal.signal(signal.SIGALRM, late)
  signal.setitimer(signal.ITIMER_REAL, SECONDS)
  _watching = True
  try:
    yield
  finally:
    _watching = False
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)
  cache = os.environ["JAX_COMPILATION_CACHE_DIR"]
  assert not [one for one in _WATCHED if cache not in one[1]]


sys.addaudithook(_hook)  # It stays, and only looks inside `harmless`.


def test_what_is_watched_is_seen(tmp_path):
  with pytest.raises(AssertionError), harmless():
    (tmp_path / "x").write_text("")
  with pytest.raises(AssertionError), harmless():
    subprocess.run(["true"], check=True)
  with pytest.raises(Late), harmless():
    signal.raise_signal(signal.SIGALRM)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_damaged_file_is_harmless(name, tmp_path):
  case = CASES[name]
  path = case.make(tmp_path)
  whole, wrong = path.read_bytes(), []
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    case.read(path)
    for seed in range(MANY):
      content = damaged(whole, random.Random(f"{name}/{seed}"))
      path.write_bytes(content)
      case.seal(path)
      try:
        with harmless():
          case.read(path)
      except Exception as e:
        text = app.sentence(e)
        if not text or "\n" in text or len(text) > LONGEST:
          wrong.append((seed, repr(e)[:200], text and len(text)))
  assert not wrong, f"{len(wrong)}: {wrong[:9]}"
