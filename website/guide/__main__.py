"""`python -m website.guide`: build the table of answers, or what is missing of it."""

from __future__ import annotations

import argparse

from website.guide.build import build
from website.guide.models import MODELS, model
from website.guide.steps import METHODS


def main() -> None:
    """Read the command line and build."""
    parser = argparse.ArgumentParser(prog="python -m website.guide", description=main.__doc__)
    parser.add_argument("models", nargs="*", help="keys or names of models (default: all)")
    parser.add_argument("--method", choices=METHODS, help="of training (default: all)")
    parser.add_argument("--anew", action="store_true", help="trace again what is there")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes (default: 2)")
    given = parser.parse_args()
    keys = [model(name).key for name in given.models] or list(MODELS)
    build(keys, (given.method,) if given.method else METHODS, anew=given.anew, workers=given.workers)


if __name__ == "__main__":
    main()
