"""Checkpoints of a fit: what it has done so far, on disk, so that the same call goes on from there."""

from .checkpoint import Checkpoint, NullCheckpoint, Slot
from .identity import identity
from .opening import open_checkpoint

__all__ = ["Checkpoint", "Slot", "NullCheckpoint", "identity", "open_checkpoint"]
