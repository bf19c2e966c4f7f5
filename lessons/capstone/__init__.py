"""Capstone: fit it on one card."""
