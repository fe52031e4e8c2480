"""gRPC: parse a message, call the engine, render the answer. Nothing else knows gRPC, and no rule lives here."""
