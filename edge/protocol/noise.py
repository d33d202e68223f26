"""Gumbel noise that is a function of seed, position, token and choice: the same numbers on every machine.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11) hashes a counter under a key;
nothing is drawn in sequence, so whatever order rows are verified in, and whoever computes them, the noise is the same.
The layout of key and counter, and which bits become u, are part of the protocol: docs/sampling.md.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Lane = int | NDArray[np.uint64]
"""A 32-bit word, or many of them in 64-bit integers (so that a product of two fits)."""

LARGEST: Final = -math.log(-math.log1p(-(2.0**-53)))
"""No noise is larger (about 36.7): u is at most 1 − 2⁻⁵³."""
SMALLEST: Final = -math.log(53 * math.log(2))
"""No noise is smaller (about −3.6): u is at least 2⁻⁵³."""

_M0: Final = 0xD2511F53
_M1: Final = 0xCD9E8D57
_W0: Final = 0x9E3779B9
_W1: Final = 0xBB67AE85
_MASK: Final = 0xFFFFFFFF
_FEW: Final = 8  # below this, Python's integers are faster than numpy's calls
_CHUNK: Final = 8192  # tokens whose intermediate words stay in a core's cache


def philox4x32(counter: tuple[Lane, Lane, Lane, Lane], key: tuple[int, int]) -> tuple[Lane, Lane, Lane, Lane]:
    """Ten rounds of Philox4x32. Lanes that are plain integers are computed once for all tokens, not once each."""
    c0: Any
    c1: Any
    c2: Any
    c3: Any
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = (p1 >> 32) ^ (c1 ^ k0), p1 & _MASK, (p0 >> 32) ^ (c3 ^ k1), p0 & _MASK
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    return c0, c1, c2, c3


def words(
    seed: int, position: int, choice: int, tokens: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The first two words of each token's block: x0 and x1, both of shape (n,) as `tokens`, 32 bits each."""
    key = (seed & _MASK, seed >> 32)
    if len(tokens) <= _FEW:
        blocks = [philox4x32((position, token, choice, 0), key) for token in tokens.tolist()]
        return (
            np.array([block[0] for block in blocks], np.uint64),
            np.array([block[1] for block in blocks], np.uint64),
        )
    x0, x1 = np.empty(len(tokens), np.uint64), np.empty(len(tokens), np.uint64)
    for begin in range(0, len(tokens), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        x0[part], x1[part], _, _ = philox4x32((position, tokens[part].astype(np.uint64), choice, 0), key)
    return x0, x1


def gumbel(x0: NDArray[np.uint64], x1: NDArray[np.uint64]) -> NDArray[np.float64]:
    """g = −log(−log u), u = (b + ½)·2⁻⁵², b = x0's 32 bits above the upper 20 of x1. b + ½ has 53 bits: u is exact."""
    bits = (x0 << np.uint64(20)) | (x1 >> np.uint64(12))
    uniform = (bits.astype(np.float64) + 0.5) * 2.0**-52
    return -np.log(-np.log(uniform))


def noise(seed: int, position: int, choice: int, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """Gumbel noise of each token id at an output position; float64, shape (n,).

    `tokens` has shape (n,). seed in [0, 2⁶³), position and ids in [0, 2³²), choice in [0, 2³¹).
    """
    return gumbel(*words(seed, position, choice, tokens))


def noise_grid(seed: int, positions: range, choice: int, vocabulary: int) -> NDArray[np.float64]:
    """Noise of all tokens of a small vocabulary at several positions, (len(positions), vocabulary).

    Most of what a few hundred tokens cost is numpy's calls, so many positions cost about as much as one.
    """
    counter = np.array(positions, np.uint64).repeat(vocabulary), np.tile(np.arange(vocabulary), len(positions))
    x0, x1, _, _ = philox4x32((counter[0], counter[1].astype(np.uint64), choice, 0), (seed & _MASK, seed >> 32))
    return gumbel(np.asarray(x0), np.asarray(x1)).reshape(len(positions), vocabulary)
