"""Small tools without an idea of their own: checks, files, keys, traces, what machine this is."""
