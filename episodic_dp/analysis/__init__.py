"""Costs, sweeps, comparisons and pictures around a run."""
