"""Studies: a grid of cells, run, stored and judged."""
