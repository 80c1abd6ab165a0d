"""Checkpoints of a fit: what it has done so far, on disk, so that the same call goes on from there."""

from .book import Book, Mark, NoBook
from .identity import identity
from .open_book import open_book

__all__ = ["Book", "Mark", "NoBook", "identity", "open_book"]
