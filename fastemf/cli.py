"""The command line: ``fastemf demo``.

Nothing heavy is imported before a command needs it, so that ``--help`` answers at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from fastemf import __version__

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="fastemf",
        description="Expectile matrix factorization of sparse, skewed data.",
    )
    parser.add_argument("--version", action="version", version=f"fastemf {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    demo = commands.add_parser(
        "demo",
        help="fit a generated skewed matrix at three levels and compare",
        description="Generate the paper's skewed matrix, fit three expectile levels to a sample "
        "of its cells, and show how each does on the cells it has not seen.",
    )
    demo.add_argument("--size", type=int, default=1000, help="rows and columns (default 1000)")
    demo.add_argument("--density", type=float, default=0.1, help="share observed (default 0.1)")
    demo.add_argument("--rank", type=int, default=10, help="rank k (default 10)")
    demo.add_argument("--seed", type=int, default=0, help="random seed (default 0)")
    args = parser.parse_args(argv)

    from fastemf.demo import run

    try:
        print(run(args.size, args.density, args.rank, args.seed))
    except (TypeError, ValueError) as error:
        print(f"fastemf: {error}", file=sys.stderr)
        return 2
    return 0
