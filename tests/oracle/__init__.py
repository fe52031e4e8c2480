"""The oracle: random calls against the real store, compared with a model of what its documents say."""
