"""`python -m website.guide`: build the table of answers, or what is missing of it."""

from __future__ import annotations

import argparse

from website.guide.build import build
from website.guide.models import MODELS, model


def main() -> None:
    """Read the command line and build."""
    parser = argparse.ArgumentParser(prog="python -m website.guide", description=main.__doc__)
    parser.add_argument("models", nargs="*", help="keys or names of models (default: all)")
    parser.add_argument("--anew", action="store_true", help="begin from nothing")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes (default: 2)")
    given = parser.parse_args()
    build([model(name).key for name in given.models] or list(MODELS), anew=given.anew, workers=given.workers)


if __name__ == "__main__":
    main()
