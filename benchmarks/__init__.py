"""What the engine costs, measured: `python -m benchmarks WORKLOAD`. Figures and how they came about: README.md."""
