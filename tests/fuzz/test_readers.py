"""Every reader of files, given damaged ones: a sentence, or what is whole.

And no code of a file runs, no file outside is touched, and what claims to be
huge is refused before memory is taken.
"""

import io
import json
import pathlib
import resource
import struct
from types import SimpleNamespace
import warnings
import zipfile
import zlib

import numpy as np
from PIL import Image
import pytest

from episodic_dp import accounting
from episodic_dp import data
from episodic_dp import errors
from episodic_dp import models
from episodic_dp import plan
from episodic_dp import training
from episodic_dp.analysis import measure
from episodic_dp.cli import verify
from episodic_dp.config import build
from episodic_dp.config import learners as config_learners
from episodic_dp.config import RunConfig
from episodic_dp.config.presets import glyphs
from episodic_dp.data import cache
from episodic_dp.data import cifar_fs
from episodic_dp.data import mini_imagenet
from episodic_dp.data import omniglot
from episodic_dp.data.own_data import readers
from episodic_dp.models import start
from episodic_dp.output import files as output_files
from episodic_dp.training import checkpoint
from episodic_dp.training import keys
from episodic_dp.training import metrics
from episodic_dp.training import same_run
from episodic_dp.training import workdir
from experiments import runs
from tests.data import own_images
from tests.fuzz import damage

FEW = pytest.param(60, id="few")
MANY = pytest.param(1000, id="many", marks=pytest.mark.slow)
counts = pytest.mark.parametrize("count", [FEW, MANY])


@pytest.fixture
def marker(tmp_path):
  return damage.Marker(tmp_path / "code-ran")


def attack(path, count, call, marker=None, seed=0):
  """Writes damaged versions in place of a file; the answers.

  Args:
    path: a whole file, which is there again in the end.
    count: how many versions.
    call: reads it.
    marker: of the pickles that are tried, too.
    seed: of the damage.
  """
  whole, answers = path.read_bytes(), []
  versions = [
      version
      for version in damage.damaged(whole, np.random.default_rng(seed), count)
      if version != whole  # A byte may be put in its own place.
  ]
  if marker is not None:
    versions += damage.pickles(marker)
  for number, version in enumerate(versions):
    path.write_bytes(version)
    try:
      answers.append(damage.answer(call))
    except AssertionError as e:
      raise AssertionError(f"version {number} of {path.name}: {e}") from e
    assert path.read_bytes() == version  # What was found is not overwritten.
  path.write_bytes(whole)
  assert marker is None or not marker.ran
  return answers


def told(answers) -> int:
  return sum(answer is not None for answer in answers)


@pytest.fixture
def little_memory():
  """Whoever takes 8 GB more than is held now is told so at once."""
  before = resource.getrlimit(resource.RLIMIT_AS)
  with open("/proc/self/statm", encoding="ascii") as f:
    held = int(f.read().split()[0]) * resource.getpagesize()
  resource.setrlimit(resource.RLIMIT_AS, (held + 2**33, before[1]))
  yield
  resource.setrlimit(resource.RLIMIT_AS, before)


# Images -----------------------------------------------------------------------


@pytest.fixture
def own(tmp_path):
  """(an NPZ, load), whose cache is new."""
  path = tmp_path / "own.npz"
  np.savez_compressed(path, **own_images.arrays(), units=np.arange(7))

  def load():
    return data.load("own_data", data_dir=path, cache_dir=tmp_path / "cache")

  return path, load


@counts
def test_npz(own, count, marker):
  path, load = own
  load()
  assert told(attack(path, count, load, marker)) > count / 2


def _npy(shape, dtype="|u1", body=b"", **extra):
  header = {"descr": dtype, "fortran_order": False, "shape": shape} | extra
  text = repr(header).encode().ljust(117) + b"\n"
  return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + body


@pytest.mark.parametrize(
    "images, labels",
    [
        ((10**15, 2, 2), (10**15,)),
        ((6, 2, 2), (10**15,)),
        ((2**40, 6, 6), (24,)),
        ((-1, 6, 6), (24,)),
        ((24, 2**40, 6), (24,)),
        ((24, 6, 6, 10**15), (24,)),
        ("boo", (24,)),
        ((24, 6.5, 6), (24,)),
    ],
)
def test_npz_of_huge_headers_takes_no_memory(
    images, labels, own, little_memory
):
  path, load = own
  with zipfile.ZipFile(path, "w") as z:
    z.writestr("images.npy", _npy(images, body=bytes(864)))
    z.writestr("class.npy", _npy(labels, "<i8", bytes(192)))
  sentence = damage.answer(load)
  assert sentence is not None and str(path) in sentence


def test_npz_that_unpacks_to_much_more_than_it_holds(own, little_memory):
  """A bomb: 2 GB of zeros in 2 MB, of which the header claims 10^12."""
  path, load = own
  with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
    for name, dtype, shape in (
        ("images", "|u1", (10**9, 32, 32)),
        ("class", "<i8", (10**9,)),
    ):
      with z.open(f"{name}.npy", "w", force_zip64=True) as f:
        f.write(_npy(shape, dtype))
        for _ in range(32):
          f.write(bytes(2**20))
  sentence = damage.answer(load)
  assert sentence is not None and str(path) in sentence


def test_npz_of_objects_runs_no_code(own, marker):
  path, load = own
  arrays = own_images.arrays()
  for name in (*arrays, "units"):
    spoiled = np.empty(len(arrays["class"]), object)
    spoiled[:] = marker
    np.savez(path, **(arrays | {name: spoiled}))
    assert damage.answer(load) is not None
  np.savez(path, **arrays, extra=np.array([marker]))
  assert damage.answer(load) is not None
  assert not marker.ran
  # The files do hold the code: whoever allows pickles runs it.
  with np.load(path, allow_pickle=True) as found:
    assert found["extra"] is not None and marker.ran


def test_npz_of_names_that_lead_elsewhere(own, tmp_path):
  path, load = own
  buffer = io.BytesIO()
  np.save(buffer, np.zeros(3))
  with zipfile.ZipFile(path, "a") as z:
    for name in ("../../outside.npy", "/outside.npy", "images/../x.npy"):
      z.writestr(name, buffer.getvalue())
  before = sorted(p for p in tmp_path.parent.rglob("outside*"))
  assert damage.answer(load) is not None
  assert sorted(p for p in tmp_path.parent.rglob("outside*")) == before == []


@counts
def test_folder_of_images(tmp_path, count, marker):
  root = own_images.tree(tmp_path / "mine", {f"c{k}": 1 for k in range(5)})
  path = root / "c2" / "000.png"
  cache = tmp_path / "cache"

  def load():
    data.load("own_data", data_dir=root, cache_dir=cache, size=6)

  answers = attack(path, count, load, marker)
  assert told(answers) > count / 2
  assert all(str(path) in answer for answer in answers if answer)


@pytest.fixture
def write_any(tmp_path):
  """suffix -> a file of that format."""
  pixels = own_images.pixels(0)

  def write(suffix):
    path = tmp_path / f"a.{suffix}"
    if suffix == "dcm":
      return own_images.dicom(path, pixels.astype("u2"))
    if suffix == "tif":
      Image.fromarray(pixels.astype("u2") * 257).save(path)
    else:
      np.save(path, pixels / 7)
    return path

  return write


@counts
@pytest.mark.parametrize("suffix", ["dcm", "tif", "npy"])
def test_files_of_any_format(write_any, count, suffix, marker):
  path = write_any(suffix)

  def read():
    assert np.isfinite(readers.read(path).values).all()

  read()
  with warnings.catch_warnings(action="ignore"):  # Of heads that are odd.
    answers = attack(path, count, read, marker)
  assert told(answers) > count / 8
  assert all(str(path) in answer for answer in answers if answer)


def test_a_picture_that_claims_to_be_huge(tmp_path, little_memory):
  root = own_images.tree(tmp_path / "mine", {f"c{k}": 1 for k in range(5)})
  path = root / "c1" / "000.png"
  content = bytearray(path.read_bytes())
  content[16:24] = struct.pack(">II", 60_000, 60_000)
  content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
  path.write_bytes(content)
  sentence = damage.answer(
      lambda: data.load("own_data", data_dir=root, cache_dir=tmp_path / "c")
  )
  assert sentence is not None and str(path) in sentence


@counts
def test_caches_that_are_damaged_are_made_again(tmp_path, count, marker):
  """What a run has prepared is read again only where it is whole."""
  rng = np.random.default_rng(0)
  arrays = {"a": np.arange(60).reshape(3, 20), "b": np.arange(7.0)}
  path, image = tmp_path / "x.npz", tmp_path / "x.npy"
  cache.save_arrays(path, **arrays)
  pixels = rng.integers(0, 256, (5, 4, 4, 1), np.uint8)
  with cache.new_mapped_array(image, pixels.shape) as found:
    found[:] = pixels

  def read():
    found = cache.read_arrays(path)
    if found is not None and found.keys() == arrays.keys():
      for name, array in arrays.items():  # Every member has a checksum.
        np.testing.assert_array_equal(found[name], array)

  def read_mapped():
    found = cache.map_array(image, 5, pixels.shape[1:])
    assert found is None or found.shape == pixels.shape

  answers = attack(path, count, read, marker)
  answers += attack(image, count, read_mapped, marker)
  assert told(answers) == 0


@pytest.mark.parametrize("shape", [(10**15,), (2**62, 2**62), (-1, 4, 4, 1)])
def test_mapped_files_of_huge_headers(tmp_path, shape, little_memory):
  path = tmp_path / "x.npy"
  path.write_bytes(_npy(shape, body=bytes(80)))
  assert cache.map_array(path, 5, (4, 4, 1)) is None
  zipped = tmp_path / "x.npz"
  with zipfile.ZipFile(zipped, "w") as z:
    z.writestr("a.npy", path.read_bytes())
  assert cache.read_arrays(zipped) is None


_ARCHIVES = {
    "omniglot": ("images_background.zip", "images_evaluation.zip"),
    "cifar_fs": ("cifar-100-binary.tar.gz", "cifar-100-python.tar.gz"),
    "mini_imagenet": ("train.tar", "mini-imagenet-cache-train.pkl", "data.zip"),
}


@pytest.mark.parametrize("name", _ARCHIVES)
def test_archives_are_known_by_their_checksum_before_they_are_opened(
    name, tmp_path, marker
):
  """A pickle, a zip that leads elsewhere: refused, unread."""
  buffer = io.BytesIO()
  with zipfile.ZipFile(buffer, "w") as z:
    z.writestr("../../outside", b"x")
  for content in (*damage.pickles(marker), buffer.getvalue(), b""):
    for file in _all_files(name):
      (tmp_path / file).write_bytes(content)
    sentence = damage.answer(
        lambda: data.load(
            name, data_dir=tmp_path, cache_dir=tmp_path / "cache"
        )
    )
    assert sentence is not None and "sha256" in sentence
  assert not marker.ran
  assert not list(tmp_path.parent.rglob("outside"))


def _all_files(name):
  originals = {
      "cifar_fs": {"only": cifar_fs.ORIGINALS},
      "mini_imagenet": mini_imagenet.ORIGINALS,
      "omniglot": {"only": omniglot.ORIGINALS},
  }[name]
  return [
      *_ARCHIVES[name],
      *(
          archive.file
          for choice in originals.values()
          for archives_of in choice.sources.values()
          for archive in archives_of.values()
      ),
  ]


def test_pickled_archives_run_no_code_even_if_their_checksum_were_right(marker):
  for content in damage.pickles(marker):
    with pytest.raises(Exception) as error:
      cifar_fs.plain_pickle(content)
    assert "the pickle asks for" in str(error.value) or not marker.ran
  assert not marker.ran


# What a run leaves ------------------------------------------------------------


@counts
@pytest.mark.parametrize("suffix", start.SUFFIXES)
def test_weights(tmp_path, count, suffix, marker):
  path = tmp_path / f"start{suffix}"
  array = np.arange(6, dtype=np.float32).reshape(2, 3)
  models.write_weights(path, {"hidden": {"kernel": array}, "head": array})
  shapes = {"hidden": {"kernel": array}, "head": array}

  def read():
    start._fitted(
        models.read_weights(path), shapes, "start", "head"
    )

  read()
  assert told(attack(path, count, read, marker)) > count / 2


@counts
def test_key(tmp_path, count, marker):
  keys.create(tmp_path, {"data": "5a"}, {"jax": "0.0"})
  answers = attack(
      keys.path(tmp_path), count, lambda: keys.load(tmp_path), marker
  )
  assert told(answers) == len(answers)  # Each of them.


@counts
def test_metrics(tmp_path, count, marker):
  path = tmp_path / metrics.FILE
  lines = metrics.Lines(path, keep=0)
  for step in range(1, 9):
    lines.add({"step": step, "epsilon": 0.1 * step, "update_norm": 1.5})
  lines.close()

  def read():
    for line in metrics.read(path):
      assert isinstance(line["step"], int)

  answers = attack(path, count, read, marker)
  assert len(answers) > 0.9 * count  # Some damage changes nothing.


@counts
def test_config(tmp_path, count, marker):
  path = tmp_path / workdir.CONFIG
  config = {"steps": 3, "plan": {"stages": ["All()"]}, "name": "x" * 40}
  output_files.write_json(path, config)
  answers = attack(path, count, lambda: workdir.read_config(tmp_path), marker)
  assert told(answers) > count / 3
  answers = attack(
      path, count,
      lambda: same_run.check_config(tmp_path, config, clean=False), seed=1,
  )  # fmt: skip
  assert told(answers) > count / 3


class _Enough(Exception):
  """What was read is good enough to go on."""


@pytest.mark.slow
def test_config_of_a_run_that_is_measured(tmp_path, monkeypatch, marker):
  """Fields that are gone or of another kind, before any data are loaded."""
  config = glyphs.get_config("participants=4,rate=0.3,size=16,steps=2")
  plain = json.loads(json.dumps(RunConfig.parse(config).as_json()))

  def load_data(config, **where):
    del where
    config_learners.make_evaluation_learner(
        config, config_learners.make_learner(config, (16, 16, 1)), (16, 16, 1)
    )
    raise _Enough

  monkeypatch.setattr(build, "load_data", load_data)
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(
      checkpoint, "Checkpoints",
      lambda *_, **__: SimpleNamespace(latest=lambda: 2),
  )  # fmt: skip
  rng, answers, count = np.random.default_rng(4), [], 300

  def read():
    try:
      measure.measure(str(tmp_path))
    except _Enough:
      pass

  for _ in range(count):
    output_files.write_json(
        tmp_path / workdir.CONFIG, damage.tampered(plain, rng)
    )
    answers.append(damage.answer(read))
  assert count / 4 < told(answers) < count
  assert not (tmp_path / "ran").exists() and not marker.ran


def _statement():
  h = plan.Hierarchy.from_sizes([[4, 2, 3], [4, 5]], levels=("a", "b", "c"))
  p = plan.SamplingPlan((plan.Poisson(0.5), plan.FixedSize(1), plan.All()))
  m = plan.Mechanism(clip_unit="a", noise_multiplier=2.0)
  ledger = accounting.Ledger().add(plan.Release(h, p, m), 3)
  return accounting.run_statement(
      ledger, delta=1e-5, fixed_seed=False, planned_steps=3
  )


@counts
def test_statement(tmp_path, count, marker, capsys, monkeypatch):
  monkeypatch.chdir(tmp_path)
  path = tmp_path / "guarantee.json"
  statement = _statement()
  output_files.write_json(path, statement)
  verify.run(str(path))
  call = lambda: verify.run(str(path))  # noqa: E731
  # Every verification accounts anew: fewer of them.
  answers = attack(path, count // 3, call, marker)
  assert told(answers) > count / 6
  rng = np.random.default_rng(2)
  for _ in range(count // 2):
    output_files.write_json(path, damage.tampered(statement, rng))
    damage.answer(call)
  assert not (tmp_path / "ran").exists()
  assert "Traceback" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "1" * 5000, "\ufeff{}", "NaN"]
)
def test_json_that_breaks_parsers(text, tmp_path):
  for name in (workdir.CONFIG, "guarantee.json", metrics.FILE):
    (tmp_path / name).write_text(text, encoding="utf-8")
  assert damage.answer(lambda: workdir.read_config(tmp_path)) is not None
  path = tmp_path / "guarantee.json"
  assert damage.answer(lambda: verify.run(str(path))) is not None
  assert metrics.read(tmp_path / metrics.FILE) == []
  run = runs.Run(name="r", config="glyphs")
  (tmp_path / "r").mkdir()
  (tmp_path / "r" / runs.OUTCOME).write_text(text, encoding="utf-8")
  assert damage.answer(lambda: runs.load(run, tmp_path)) is not None


@counts
def test_outcome_of_a_comparison(tmp_path, count, marker):
  run = runs.Run(name="r", config="glyphs")
  path = tmp_path / "r" / runs.OUTCOME
  path.parent.mkdir()
  output_files.write_json(path, {"command": run.command(), "steps": 3})
  answers = attack(path, count, lambda: runs.load(run, tmp_path), marker)
  assert told(answers) > count / 3


@counts
def test_ledger(count):
  """Damage that JSON survives is found by what it says."""
  data_of = _statement()
  rng = np.random.default_rng(3)
  h = plan.Hierarchy.regular((40, 5), levels=("a", "b"))
  p = plan.SamplingPlan((plan.Poisson(0.5), plan.All()))
  m = plan.Mechanism(clip_unit="a", noise_multiplier=2.0)
  whole = accounting.Ledger().add(plan.Release(h, p, m), 3).as_dict()
  assert data_of and accounting.Ledger.from_dict(whole).steps == 3
  answers = []
  for _ in range(5 * count):
    wrong = json.loads(json.dumps(damage.tampered(whole, rng)))
    read = lambda wrong=wrong: accounting.Ledger.from_dict(wrong)  # noqa: E731
    answers.append(damage.answer(read))
  assert told(answers) > count


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
  """A work directory with two checkpoints, and what the last one holds."""
  folder = tmp_path_factory.mktemp("saved")
  params = {"w": np.arange(40, dtype=np.float32)}
  rest = {"step": np.int32(2), "m": np.ones((3, 3), np.float32)}
  checkpoints = training.Checkpoints(folder)
  for step in (1, 2):
    checkpoints.save(
        step, params, rest, ledger={"entries": [1, 2]}, quality=0.5
    )
  checkpoints.close()
  return folder, params, rest


@counts
def test_checkpoints(saved, count, tmp_path_factory):
  """Every file of one, in turn: whole arrays or a sentence, and no code."""
  folder, params, rest = saved
  marker = damage.Marker(tmp_path_factory.mktemp("marker") / "code-ran")
  found = sorted(p for p in (folder / "checkpoints" / "2").rglob("*"))
  found = [path for path in found if path.is_file()]
  assert len(found) > 5

  def restore():
    checkpoints = training.Checkpoints(folder, read_only=True)
    try:
      if 2 in checkpoints.steps():
        arrays, others = checkpoints.restore(2, params, rest)
        np.testing.assert_array_equal(arrays["w"], params["w"])
        np.testing.assert_array_equal(others["m"], rest["m"])
        checkpoints.best()
        spent = checkpoints.ledger(2)
        assert spent in (None, {"entries": [1, 2]})
    finally:
      checkpoints.close()

  answers, each = [], max(2, count // 20)
  for number, path in enumerate(found):
    use = marker if number % 3 == 0 or count > 100 else None
    answers += attack(path, each, restore, use, seed=number)
  assert told(answers) > len(found)
  restore()
  assert not marker.ran


def test_sentences_are_told_from_tracebacks(tmp_path):
  """What a test of this file that cannot fail would let pass."""
  def ours():
    raise errors.RunError("the file is damaged: write it again, please")

  with pytest.raises(AssertionError) as error:
    damage.answer(lambda: [][1])
  assert "a traceback of IndexError" in str(error.value)
  with pytest.raises(AssertionError) as error:
    damage.answer(lambda: np.load(tmp_path / "none.npy"))
  assert "a traceback of FileNotFoundError" in str(error.value)
  with pytest.raises(AssertionError) as error:
    damage.answer(ours)  # Raised here, not in the library.
  assert "a traceback of RunError" in str(error.value)
  assert damage.answer(lambda: workdir.read_config(tmp_path)) is not None
  assert pathlib.Path(tmp_path).exists()
