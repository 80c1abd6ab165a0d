"""A fit to look at: HTML for notebooks, figures, and the tables and curves behind them."""
