"""The model: what the store's documents say, as plain Python on plain data. `verbs.py` has all verbs."""
