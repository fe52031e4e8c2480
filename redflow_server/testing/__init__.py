"""Gateways for the tests of users: a pytest plugin, which brings in neither gRPC nor a gateway before it is used."""
