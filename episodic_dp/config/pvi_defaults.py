"""Fields of every config of `episodic-dp pvi`, with what they mean."""

import ml_collections
from ml_collections import config_dict


def base() -> ml_collections.ConfigDict:
  """Defaults; a config file overwrites what its experiment sets."""
  c = ml_collections.ConfigDict()
  c.seed = 0  # Public: the order of visits, and what a network draws.
  # An integer makes a run reproducible, and its guarantee void for whoever
  # knows the number.
  c.private_seed = config_dict.placeholder(int)
  # Of every client; None for 10^floor(log10(1 / rows)) of each of Adult, and a
  # tenth of that of your own table.
  c.delta = config_dict.placeholder(float)
  c.target_epsilon = config_dict.placeholder(float)  # Of every client.
  c.rounds = 100
  c.checkpoint_every = c.evaluate_every = 10
  c.model = ml_collections.ConfigDict(
      dict(
          name="logistic",  # Or "network": hidden layers of these widths.
          widths=(),
          prior_variance=1.0,
      )
  )
  c.server = ml_collections.ConfigDict(
      dict(
          order="synchronous",  # sequential, asynchronous
          damping=0.1,
          # Clients that do not answer: "3" never, "3:5-" from round 5 on,
          # "3:5-9" in rounds 5 to 9; several separated by commas.
          absent="",
      )
  )
  c.visit = ml_collections.ConfigDict(
      dict(
          local_steps=25,
          batch_share=0.02,
          least_batch=20,
          clip_norm=2.0,
          noise_multiplier=5.0,
          rate=0.5,  # Of Adagrad, whose state stays with the client.
          scale_rate=0.5,  # The same, of standard deviations.
      )
  )
  return c
