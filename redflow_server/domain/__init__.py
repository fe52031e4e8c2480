"""Values and rules of the engine, in pure Python: no I/O, no clock, no knowledge of Redis or gRPC."""
