"""Whether a Hessian has the zeros of a structure, at points and along vectors that suggested nothing.

Globals may meet everything, so only the locals are looked at: b products (3b in a chain) for the blocks
and some random ones, whatever the number of globals.
"""

import numpy as np
from jaxtyping import Float, Int

from ..hessian import COLOURS
from .packing import Candidate
from .products import HessianProducts

# Random vectors at each point, and points: a coupling that shows at every other point is missed by five
# and the one that suggested it in one of 64 cases.
VECTORS, POINTS = 2, 5
# Entries that are not there may be this many times what counts as zero: sums round, too.
SLACK = 30


def fits(hessian: HessianProducts, candidate: Candidate) -> bool:
    """Whether products with random vectors are those of the candidate's blocks, at some new points."""
    return all(hessian.move() and _fits_here(hessian, candidate) for _ in range(POINTS))


def _fits_here(hessian: HessianProducts, candidate: Candidate) -> bool:
    blocks, (n, b) = candidate.blocks, candidate.blocks.shape
    colours = COLOURS if candidate.kind == "chain" else 1
    coloured = np.zeros((colours, b, hessian.dim))
    for colour in range(colours):
        for place in range(b):
            coloured[colour, place, blocks[colour::colours, place]] = 1.0
    found = hessian(coloured.reshape(-1, hessian.dim)).reshape(colours, b, hessian.dim)[:, :, blocks]
    vectors = np.stack([hessian.vector() for _ in range(VECTORS)])
    vectors[:, candidate.globals] = 0.0
    answers = hessian(vectors)[:, blocks]
    for answer, along in zip(answers, vectors[:, blocks], strict=True):
        expected, size = np.zeros((n, b)), np.full((n, b), 1e-30)
        for shift in range(-1, 2) if candidate.kind == "chain" else [0]:
            part = _times(found, along, shift, colours)
            expected, size = expected + part.sum(axis=0), size + np.abs(part).sum(axis=0)
        gap = np.abs(answer - expected)
        if not np.all(gap <= SLACK * hessian.resolution * (size + np.abs(answer))):
            return False
    return True


def _times(
    found: Float[np.ndarray, "colours b n b"],
    along: Float[np.ndarray, "n b"],
    shift: int,
    colours: int,
) -> Float[np.ndarray, "b n b"]:
    """What the column blocks `shift` further on give to each row block, by place in the column block."""
    n, b = along.shape
    rows: Int[np.ndarray, " n"] = np.arange(max(0, -shift), min(n, n - shift))
    part = np.zeros((b, n, b))
    for place in range(b):
        entry = found[(rows + shift) % colours, place, rows]
        part[place, rows] = entry * along[rows + shift, place][:, None]
    return part
