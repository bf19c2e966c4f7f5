"""Why GPUs help, and when they don't."""
