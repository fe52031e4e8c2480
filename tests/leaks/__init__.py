"""Whether anything grows that should not: `python -m tests.leaks --help`; see README.md."""
