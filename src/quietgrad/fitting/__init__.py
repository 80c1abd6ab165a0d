"""The public calls around a method: one fit, restarts, many data sets, and a loop of one's own."""

from .single import check, fit, method, problem_of, run

__all__ = ["check", "fit", "method", "problem_of", "run"]
