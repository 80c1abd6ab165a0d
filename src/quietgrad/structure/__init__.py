"""The structure of a hierarchy: globals, blocks of locals, and linear algebra in O(n) with them."""

from .block_matrix import BlockMatrix
from .block_root import BlockRoot
from .elimination import Eliminated, root_of_inverse, solve
from .finding import Found, structure_of
from .hessian import blocks_of_hessian, product_count
from .structure import Structure

__all__ = [
    "BlockMatrix",
    "BlockRoot",
    "Eliminated",
    "Found",
    "Structure",
    "blocks_of_hessian",
    "product_count",
    "root_of_inverse",
    "solve",
    "structure_of",
]
