"""The structure of a hierarchy: globals, blocks of locals, and linear algebra in O(n) with them."""

from .block_matrix import BlockMatrix
from .block_root import BlockRoot
from .elimination import Eliminated, root_of_inverse, solve
from .finding import Found, blocks_of_plates, has, structure_of
from .hessian import blocks_of_hessian, product_count
from .sparsity import Pattern, pattern_of
from .structure import Structure

__all__ = [
    "BlockMatrix",
    "BlockRoot",
    "Eliminated",
    "Found",
    "Pattern",
    "Structure",
    "blocks_of_hessian",
    "blocks_of_plates",
    "has",
    "pattern_of",
    "product_count",
    "root_of_inverse",
    "solve",
    "structure_of",
]
