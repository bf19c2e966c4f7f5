"""Accuracy and speed against named peers; `python -m benchmarks` prints tables. Speed is never asserted in a test."""
