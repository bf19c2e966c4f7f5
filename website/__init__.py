"""The course as it is published: a static site and files of slides from the committed notebooks, links to open a copy.

Nothing but the command imports this package.
"""
