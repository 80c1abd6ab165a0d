"""Semi-implicit families: a normal whose mean and scale are a network of a random input."""

from .generator import Generator
from .particles import ParticleMixture
from .proposal import Proposal
from .semi_implicit import SemiImplicit

__all__ = ["Generator", "ParticleMixture", "Proposal", "SemiImplicit"]
