"""Where the memory goes."""
