"""A guided tour with real processes: `make demo`."""
