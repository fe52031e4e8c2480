"""The scripts as typed methods, by what they are about. `store.py` puts them together."""
