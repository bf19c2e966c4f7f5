"""Many GPUs."""
