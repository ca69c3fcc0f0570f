"""Draw clients' factors and the posterior as they converge on a regression.

`python -m experiments.pvi_picture` makes the picture of docs/pvi.md again.
"""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import pvi
from episodic_dp.output import plotting
from episodic_dp.pvi import gaussian
from episodic_dp.pvi import servers

_CLIENTS, _POINTS, _NOISE = 3, 8, 0.4
_DAMPING, _SHOWN = 0.4, (1, 2, 6)


@plotting.styled
def convergence() -> plotting.Figure:
  """Plot three clients, each with a part of a line, and the server.

  Each panel shows (offset, slope) after some damped rounds, as ellipses of two
  standard deviations: the posterior, each client's factor times the prior, and
  the exact posterior.
  """
  rng = np.random.default_rng(4)
  x = np.linspace(-2, 2, _CLIENTS * _POINTS).reshape(_CLIENTS, _POINTS)
  y = 0.5 + 0.8 * x + _NOISE * rng.normal(size=x.shape)
  model = pvi.LinearRegression(2, noise=_NOISE)
  examples = pvi.Examples(
      jnp.stack([jnp.ones_like(x), x], -1), jnp.asarray(y), jnp.ones_like(x)
  )
  everything = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), examples)
  prior = model.prior(1.0)
  exact = gaussian.product(prior, model.exact(everything))
  figure = plotting.figure(3.8, width=plotting.WIDE)
  panels = figure.subplots(1, len(_SHOWN), sharey=True)
  posterior, done = servers.begin(prior, _CLIENTS), 0
  for axes, rounds in zip(panels, _SHOWN):
    posterior, *_ = servers.serve(
        model.visit, posterior, examples,
        jnp.tile(jnp.arange(_CLIENTS), (rounds - done, 1)), damping=_DAMPING,
    )
    done = rounds
    for m in range(_CLIENTS):
      axes.plot(
          *_ellipse(gaussian.product(posterior.prior, posterior.factor(m))),
          color=plotting.COLORS[m + 1], linestyle="-",
          label=f"prior and the factor of client {m + 1}",
      )
    axes.plot(
        *_ellipse(posterior.natural), color=plotting.BLUE, linestyle="-",
        linewidth=2.6, label="posterior of the server",
    )
    axes.plot(*_ellipse(exact), label="exact posterior", **plotting.REFERENCE)
    axes.set_title(f"round {rounds}, damping {_DAMPING:g}")
    axes.set_xlabel("offset")
  panels[0].set_ylabel("slope")
  figure.legend(
      *panels[0].get_legend_handles_labels(), loc="outside lower center",
      ncols=3,
  )
  return figure


def _ellipse(q: gaussian.Full) -> tuple[np.ndarray, np.ndarray]:
  """Return two standard deviations around the mean."""
  turn = np.linspace(0, 2 * np.pi, 100)
  root = np.linalg.cholesky(np.asarray(q.covariance))
  points = np.asarray(q.mean)[:, None] + 2 * root @ np.stack(
      [np.cos(turn), np.sin(turn)]
  )
  return points[0], points[1]


if __name__ == "__main__":
  plotting.save(
      convergence(),
      pathlib.Path(__file__).parent / "results" / "pvi_regression.png",
  )
