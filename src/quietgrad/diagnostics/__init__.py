"""Whether to believe a fit: what it says of itself, and what importance weights say of it."""
