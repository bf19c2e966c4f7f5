"""Fine-tuning and serving on one card."""
