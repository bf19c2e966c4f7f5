"""The course on the web: a static site from the notebooks as they are committed. Nothing imports this package."""
