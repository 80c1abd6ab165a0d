"""Keys as words, streams of a key by name, and normal draws as `jax.random` makes them, bit for bit.

On CPUs jax rolls the rounds of its generator (Threefry-2x32; Salmon et al. 2011) into a loop over whole
arrays, which compiles sooner and runs at less than half the speed; drawing is a large part of a cheap
model's step.
"""

import math
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key, UInt32

from .device import on_device

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
GROUPS = 5  # of four rounds each


def normal(shape: tuple[int, ...], dtype: Any, *, key: Key[Array, ""]) -> Float[Array, "..."]:
    """Independent standard normal draws."""
    if jnp.dtype(dtype) != jnp.float32:
        return jr.normal(key, shape, dtype)
    least = np.nextafter(np.float32(-1), np.float32(0))
    word = bits(shape, key=key)
    # The 23 leading digits, as the fraction of a number in [1, 2).
    digits = (word >> 9) | jnp.uint32(0x3F800000)
    fraction = jax.lax.bitcast_convert_type(digits, jnp.float32) - 1
    u = jnp.maximum(least, fraction * (1 - least) + least)
    e = np.float32(math.sqrt(2)) * jax.lax.erf_inv(u)
    # XLA copies cheap operations into everything that uses them, which would draw again for each use.
    # It never copies a division, so divide by a one that it cannot see through (LLVM then can).
    return e / (1 + ((word >> 31) >> 1).astype(jnp.float32))


def key_words(key: Array) -> list[int]:
    """The words of a random key, typed or raw, without compiling anything."""
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return [int(word) for word in np.asarray(jr.key_data(key) if typed else key).ravel()]


def key_of(words: UInt32[Array, "2"]) -> Key[Array, ""]:
    """The key with these two words."""
    return jr.wrap_key_data(words, impl="threefry2x32")


def bits(shape: tuple[int, ...], *, key: Key[Array, ""]) -> UInt32[Array, "..."]:
    """32 random binary digits each, the same as `jax.random.bits`."""
    unrolls = jr.key_impl(key) == "threefry2x32" and jax.config.jax_threefry_partitionable  # pyright: ignore
    if not unrolls or math.prod(shape) >= 2**32:
        return jr.bits(key, shape, jnp.uint32)
    first, second = jr.key_data(key)
    schedule = (first, second, first ^ second ^ jnp.uint32(PARITY))
    x, y = jnp.broadcast_to(first, shape), _counts(shape) + second
    for group in range(GROUPS):
        for rotation in ROTATIONS[group % 2]:
            x = x + y
            y = ((y << rotation) | (y >> (32 - rotation))) ^ x
        x = x + schedule[(group + 1) % 3]
        y = y + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return x ^ y


def _counts(shape: tuple[int, ...]) -> UInt32[Array, "..."]:
    """0, 1, 2, ... in the order of memory."""
    counts, stride = jnp.zeros(shape, jnp.uint32), 1
    for axis in reversed(range(len(shape))):
        place = jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
        counts, stride = counts + place * jnp.uint32(stride), stride * shape[axis]
    return counts


class Streams:
    """Random numbers that depend on the key and a name alone.

    Worked out on the host: splitting a key eagerly would compile programs.
    """

    def __init__(self, key: Key[Array, ""]):
        self._key = key_words(key)

    def seed(self, stream: str) -> UInt32[Array, "2"]:
        """The two words of the key of a stream."""
        return on_device(self.rng(stream).integers(0, 2**32, 2, np.uint32))

    def rng(self, stream: str, *numbers: int) -> np.random.Generator:
        """The host's random numbers of a stream, or of one step of it."""
        return np.random.default_rng([*self._key, zlib.crc32(stream.encode()), *numbers])
