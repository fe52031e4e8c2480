"""What a user writes to have payloads encrypted or compressed before they leave the process."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class PayloadCodec(Protocol):
    """Encodes what clients and workers send, and decodes what they get: `Client(codec=...)`, `Worker(codec=...)`.

    `name` goes with each payload, readable by everyone, and says what it takes to read it: another one is another
    codec, so keys that change are told apart within the bytes. Both methods are called on the loop of the client or
    worker, so they must not block, and may be called in several threads at once. What they raise becomes CodecError.

        class Encrypted:
            name = "fernet"

            def __init__(self, *keys: bytes) -> None:
                self._fernet = MultiFernet([Fernet(key) for key in keys])

            def encode(self, data: bytes) -> bytes:
                return self._fernet.encrypt(data)

            def decode(self, data: bytes) -> bytes:
                return self._fernet.decrypt(data)
    """

    @property
    def name(self) -> str:
        """What it is called in the payloads that it has encoded."""

    def encode(self, data: bytes) -> bytes:
        """The bytes to be sent for these."""

    def decode(self, data: bytes) -> bytes:
        """The bytes that were encoded."""
