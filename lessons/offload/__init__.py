"""Offload to CPU memory."""
