"""Doors to other packages, each behind its extra; nothing is imported before it is asked for."""
