"""A question: what it checks, what its graded cell prints, and what both say. See docs/architecture.md."""
