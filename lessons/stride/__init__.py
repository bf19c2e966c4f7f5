"""Stride."""
