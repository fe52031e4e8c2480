"""Real processes, killed at bad moments. `python -m tests.chaos.kill_rounds --help`; see README.md."""
