"""Transformers: the same step, other maps."""
