"""Recompute instead of store."""
