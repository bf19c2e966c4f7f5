"""From a learner's notebook to marks, each step a module; docs/architecture.md has them in their order."""
