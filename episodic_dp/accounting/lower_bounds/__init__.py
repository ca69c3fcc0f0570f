"""What a run costs at least: exact losses of data sets that the plan allows."""
