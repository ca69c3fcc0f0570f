"""Costs, sweeps, comparisons and plots of runs."""
