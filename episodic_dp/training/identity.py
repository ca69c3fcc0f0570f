"""What determines the steps of a run, as digests: its identity.

Two runs of one identity take the same steps under the same key. Runs of another
must not share a key, or the difference of two releases is without noise. The
digests are of what runs, not of what a configuration says about it: a run that
Python describes has no configuration.
"""

from concurrent import futures
import dataclasses
import hashlib
import json

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import plan as plan_lib
from episodic_dp import private
from episodic_dp.private import sections
from episodic_dp.training import data_digest
from episodic_dp.training import environment
from episodic_dp.training import spec as spec_lib

RELEASE, DATA, STREAM = "release", "data", "random stream"
SAMPLER, LEARNER, START = "sampler", "learner", "initial parameters"
NOISE, OPTIMIZER = "noise", "optimizer"

# Equal whatever library traces and whatever device computes.
STABLE = (RELEASE, DATA, STREAM)
# Of programs as they were traced.
TRACED = (SAMPLER, LEARNER, START, NOISE, OPTIMIZER)
# Post-processing or fresh noise: may change for steps that are still to come.
FUTURE = (NOISE, OPTIMIZER)

_SECTIONS = {
    SAMPLER: sections.SAMPLER, LEARNER: sections.LEARNER,
    NOISE: sections.NOISE, OPTIMIZER: sections.OPTIMIZER,
}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Identity:
  """What determines the steps of a run.

  Attributes:
    parts: name -> digest, for the names in `STABLE` and `TRACED`; as secret as
      the data.
    environment: what the last bits depend on besides (`environment`).
  """

  parts: dict[str, str]
  environment: dict[str, str]

  @property
  def conditions(self) -> dict[str, str]:
    """Under which the traced parts can be compared."""
    return {name: self.environment[name] for name in environment.CONDITIONS}

  def digest(self) -> str:
    """One digest of all parts, to compare processes of one run."""
    return hashlib.sha256(
        json.dumps(self.parts, sort_keys=True).encode()
    ).hexdigest()


def identify(
    spec: spec_lib.TrainingSpec,
    step_fn: spec_lib.StepFunction,
    state: private.State,
) -> Identity:
  """The identity of a run.

  Args:
    spec: the run.
    step_fn: its step, which is traced here, and not again when it is compiled.
    state: an initial one, with any key.
  """
  # The rest stays in this thread, whose settings of JAX are those of the step.
  with futures.ThreadPoolExecutor(1) as pool:
    data = pool.submit(data_digest.data_digest, spec.train)
    found = sections.section_digests(step_fn.traced(state))
    parts = {
        RELEASE: _json_digest(plan_lib.to_dict(spec.release)),
        **{part: found[name] for part, name in _SECTIONS.items()},
        START: _start_digest(spec, state),
        STREAM: stream_digest(),
        DATA: data.result(),
    }
  mesh = spec.compute.device_mesh()
  return Identity(
      parts=parts,
      environment=environment.describe(
          devices=1 if mesh is None else mesh.size,
          microbatch_size=spec.compute.microbatch_size,
          resident=spec.train.resident,
      ),
  )


def stream_digest() -> str:
  """Digest of what a public key draws here and now.

  It differs where another JAX, `jax_threefry_partitionable` or another device
  would draw other samples and other noise from the same key.
  """
  options = None
  if jax.default_backend() == "cpu":  # Whole numbers: the same, sooner.
    options = {"xla_backend_optimization_level": 0}
  drawn = jax.jit(_probe, compiler_options=options)(
      jax.random.key_data(private.secret_key(b"a public"))
  )
  return hashlib.sha256(np.asarray(drawn, "<u4").tobytes()).hexdigest()


def _probe(words: jax.Array) -> jax.Array:
  key = jax.random.wrap_key_data(words, impl="threefry2x32")
  return jax.random.bits(jax.random.fold_in(key, 3), (3, 5), jnp.uint32)


def _start_digest(
    spec: spec_lib.TrainingSpec, state: private.State
) -> str:
  """Of how the first parameters and the optimiser's state are made."""
  like = jax.tree.map(
      lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), state.params
  )
  key = jax.ShapeDtypeStruct((), jax.random.key(0).dtype)
  return _json_digest([
      spec.seed,
      sections.function_digest(spec.learner.init, key),
      sections.function_digest(spec.optimizer.init, like),
  ])


def _json_digest(value: object) -> str:
  text = json.dumps(value, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()
