"""Which hardware, or none."""
