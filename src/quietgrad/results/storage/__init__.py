"""Values on disk: a codec to JSON and arrays, and a file with a digest. Nothing is pickled."""
