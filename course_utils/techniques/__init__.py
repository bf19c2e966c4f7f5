"""Ways to fit a step on a card, each computed from its trace, and the verdict whether it fits."""
