"""The gateway: owns every state transition and every timer of the engine; nothing else talks to Redis."""
