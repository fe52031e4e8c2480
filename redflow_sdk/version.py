"""The version of the distribution."""

VERSION = "0.1.0"
"""That of the SDK and of the gateway it comes with, such as `0.1.0`."""
