"""Half precision."""
