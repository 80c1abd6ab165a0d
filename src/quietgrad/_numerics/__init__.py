"""Numerical tools that know nothing of targets and families: L-BFGS, LAPACK, small matrices, threads."""
