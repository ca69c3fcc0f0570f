"""Clients' factors and the posterior, as they converge on a regression."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from episodic_dp import pvi
from episodic_dp.output import plotting
from episodic_dp.pvi import factors
from episodic_dp.pvi import gaussian
from episodic_dp.pvi import servers

_CLIENTS, _POINTS, _NOISE = 3, 8, 0.4
_DAMPING, _SHOWN = 0.4, (1, 2, 6)


@plotting.styled
def convergence() -> plotting.Figure:
  """Three clients, each of which sees a part of a line, and the server.

  Above: the posterior of (offset, slope) after some damped rounds, as ellipses
  of two standard deviations, with each client's factor times the prior and the
  exact posterior. Below: what the posterior says of the line.
  """
  rng = np.random.default_rng(4)
  x = np.linspace(-2, 2, _CLIENTS * _POINTS).reshape(_CLIENTS, _POINTS)
  y = 0.5 + 0.8 * x + _NOISE * rng.normal(size=x.shape)
  inputs = jnp.asarray(np.stack([np.ones_like(x), x], -1))
  model = pvi.LinearRegression(2, noise=_NOISE)
  examples = pvi.Examples(inputs, jnp.asarray(y), jnp.ones_like(x))
  everything = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), examples)
  prior = model.prior(1.0)
  exact = gaussian.product(prior, model.exact(everything))
  figure = plotting.figure(6.2, width=plotting.WIDE)
  panels = figure.subplots(2, len(_SHOWN), sharex="row", sharey="row")
  posterior, done = factors.begin(prior, _CLIENTS), 0
  for column, rounds in enumerate(_SHOWN):
    while done < rounds:
      posterior, _ = servers.synchronous(
          model.visit, posterior, examples, damping=_DAMPING
      )
      done += 1
    _draw_parameters(panels[0, column], posterior, exact)
    _draw_line(panels[1, column], model, posterior, x, y)
    panels[0, column].set_title(
        f"after {rounds} round{'s' * (rounds > 1)} of damping {_DAMPING:g}"
    )
  panels[0, 0].set_ylabel("slope")
  panels[1, 0].set_ylabel("y")
  handles = panels[0, 0].get_legend_handles_labels()
  figure.legend(*handles, loc="outside lower center", ncols=3)
  return figure


def _draw_parameters(
    axes: Any, posterior: factors.Posterior, exact: gaussian.Full
) -> None:
  """Ellipses of prior times factor, of the posterior and of the exact one."""
  for m in range(posterior.clients):
    one = gaussian.product(posterior.prior, posterior.factor(m).natural)
    axes.plot(
        *_ellipse(one), color=plotting.COLORS[m + 1], linestyle="-",
        linewidth=1.2, label=f"prior and the factor of client {m + 1}",
    )  # fmt: skip
  axes.plot(
      *_ellipse(posterior.natural), color=plotting.BLUE, linestyle="-",
      linewidth=2.6, label="posterior of the server",
  )  # fmt: skip
  axes.plot(
      *_ellipse(exact), color=plotting.INK, linestyle=":", linewidth=1.6,
      label="exact posterior",
  )  # fmt: skip
  axes.set_xlabel("offset")


def _draw_line(
    axes: Any,
    model: pvi.LinearRegression,
    posterior: factors.Posterior,
    x: np.ndarray,
    y: np.ndarray,
) -> None:
  """The clients' points, and the band that holds 95 % of what is predicted."""
  at = np.linspace(-2.6, 2.6, 50)
  inputs = jnp.asarray(np.stack([np.ones_like(at), at], -1))
  mean, spread = map(np.asarray, model.predictive(posterior.natural, inputs))
  axes.fill_between(
      at, mean - 1.96 * spread, mean + 1.96 * spread, color=plotting.SKY,
      alpha=0.3, linewidth=0,
  )  # fmt: skip
  axes.plot(at, mean, color=plotting.BLUE, linestyle="-")
  for m in range(len(x)):
    axes.plot(
        x[m], y[m], plotting.MARKERS[m], color=plotting.COLORS[m + 1]
    )
  axes.set_xlabel("x")


def _ellipse(q: gaussian.Full) -> tuple[np.ndarray, np.ndarray]:
  """Two standard deviations around the mean."""
  turn = np.linspace(0, 2 * np.pi, 100)
  root = np.linalg.cholesky(np.asarray(q.covariance))
  points = np.asarray(q.mean)[:, None] + 2 * root @ np.stack(
      [np.cos(turn), np.sin(turn)]
  )
  return points[0], points[1]
