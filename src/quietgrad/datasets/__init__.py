"""The data of the paper's models (looked up or downloaded, then checked) and some at hand.

Everything here is numpy; `quietgrad.datasets.tasks` turns it into targets.
"""

from .files import DataNotFoundError, RawFile
from .tables import Counts, Split, Table

__all__ = ["Counts", "DataNotFoundError", "RawFile", "Split", "Table"]
