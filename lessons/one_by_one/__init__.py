"""1×1 convolutions."""
