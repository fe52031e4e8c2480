"""A few rounds of each scenario that plays faults: what `make rounds` runs, one after the other."""
