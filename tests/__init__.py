"""The tests. Gateways that are killed make gRPC log lines of its own, which say nothing about a test."""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
