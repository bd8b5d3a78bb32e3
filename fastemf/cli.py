"""The command line: ``fastemf demo`` and ``fastemf reproduce``.

Nothing heavy is imported before a command needs it, so that ``--help`` answers at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from fastemf import __version__

__all__ = ["main"]

EXPERIMENTS = {
    "synthetic": "low rank plus skewed noise: errors against the truth, by level",
    "wsdream": "web-service response times (WS-DREAM): errors by level and bin",
    "netlatency": "round-trip times between nodes (NetLatency-Data): the same",
    "sensing": "linear measurements: how many recovery takes, how fast it is",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    args = vars(_parser().parse_args(argv))
    run = {"demo": _demo, "reproduce": _reproduce}[args.pop("command")]
    try:
        run(args)
    except (TypeError, ValueError, OSError, ModuleNotFoundError) as error:
        print(f"fastemf: {error}", file=sys.stderr)
        return 2
    return 0


def _demo(args: dict[str, Any]) -> None:
    from fastemf.demo import run

    print(run(args["size"], args["density"], args["rank"], args["seed"]))


def _reproduce(args: dict[str, Any]) -> None:
    from fastemf.experiments.reproduce import reproduce

    report, paths = reproduce(args.pop("name"), args.pop("out"), progress=True, **args)
    print(report)
    print("\nwritten: " + "\n         ".join(str(path) for path in paths))


def _parser() -> argparse.ArgumentParser:
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

    reproduce = commands.add_parser(
        "reproduce",
        help="run an experiment of the paper: figures, numbers, a report",
        description="Run an experiment of the paper and write its figures (PNG), all its numbers "
        "(CSV) and one report with both (HTML). Files of those names are replaced.",
    )
    names = reproduce.add_subparsers(dest="name", required=True, metavar="experiment")
    for name, text in EXPERIMENTS.items():
        _add_experiment(names.add_parser(name, help=text, description=text), name)
    return parser


def _add_experiment(parser: argparse.ArgumentParser, name: str) -> None:
    rank, size = (2, 20) if name == "sensing" else (10, 1000)
    if name in ("wsdream", "netlatency"):
        parser.add_argument("--data", required=True, help="file, folder or zip archive to read")
        parser.add_argument(
            "--bins", type=float, nargs="+", metavar="EDGE",
            help="edges of the bins of true values (default: "
            + ("0 0.3 3.1 20 seconds)" if name == "wsdream" else "0 50 200 3000 milliseconds)"),
        )  # fmt: skip
    else:
        parser.add_argument(
            "--size", type=int, default=size, help=f"rows and columns (default {size})"
        )
    parser.add_argument("--out", default=".", help="folder to write to (default: this one)")
    parser.add_argument(
        "--repeats", type=int, default=10, help="random draws of each problem (default 10)"
    )
    parser.add_argument("--rank", type=int, default=rank, help=f"rank k (default {rank})")
    if name == "sensing":
        return
    parser.add_argument(
        "--reg", type=_number_or_auto, help='ridge: a number or "auto" (default; 0 with --literal)'
    )
    parser.add_argument("--intercepts", action="store_true", help="with row and column intercepts")
    parser.add_argument("--sweeps", type=int, help="most sweeps (default 100; 200 with --literal)")
    parser.add_argument(
        "--literal", action="store_true",
        help="the paper's Algorithm 1 to the letter: no momentum, no annealed start, a plain "
        "ridge if any",
    )  # fmt: skip


def _number_or_auto(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
