"""Streams of random numbers of a fit, told apart by name: they depend on nothing but the key."""

import zlib

import numpy as np
from jaxtyping import Array, Key, UInt32

from .._util.device import on_device
from .._util.random import key_words


class Streams:
    """The streams of a key. Worked out on the host: splitting a key eagerly would compile programs."""

    def __init__(self, key: Key[Array, ""]):
        self._key = key_words(key)

    def words(self, stream: str) -> UInt32[Array, "2"]:
        """The two words of the key of a stream."""
        return on_device(self.rng(stream).integers(0, 2**32, 2, np.uint32))

    def rng(self, stream: str, *numbers: int) -> np.random.Generator:
        """The host's random numbers of a stream, or of one step of it."""
        return np.random.default_rng([*self._key, zlib.crc32(stream.encode()), *numbers])
