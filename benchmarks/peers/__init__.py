"""Other engines on Redis that do the work of `backlog`. They run in an environment of their own, `.venv-peers`."""
