"""``fastemf reproduce``: an experiment of the paper."""

from __future__ import annotations

import argparse
from typing import Any

from fastemf.commands.arguments import number_or_rule
from fastemf.support.terminal import stderr_is_terminal

__all__ = ["add", "run"]

EXPERIMENTS = {
    "synthetic": "low rank plus skewed noise: errors against the truth, by level",
    "wsdream": "web-service response times (WS-DREAM): errors by level and bin",
    "netlatency": "round-trip times between nodes (NetLatency-Data): the same",
    "sensing": "linear measurements: how many recovery takes, how fast it is",
}


def add(commands: Any) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "reproduce",
        help="run an experiment of the paper: figures, numbers, a report",
        description="Run an experiment of the paper and write its figures (PNG), all its numbers "
        "(CSV) and one report with both (HTML). Files of those names are replaced.",
    )
    names = parser.add_subparsers(dest="name", required=True, metavar="experiment")
    for name, text in EXPERIMENTS.items():
        _add_experiment(names.add_parser(name, help=text, description=text), name)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Run the experiment; print its report and what was written."""
    from fastemf.experiments.reproduce import reproduce

    options = {key: value for key, value in vars(args).items() if key not in ("run", "command")}
    name, out = options.pop("name"), options.pop("out")
    report, paths = reproduce(name, out, progress=stderr_is_terminal(), **options)
    print(report)
    print("\nwritten: " + "\n         ".join(str(path) for path in paths))


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
        "--reg", type=number_or_rule,
        help='ridge: a number, "noise" (default; 0 with --literal) or "auto"',
    )  # fmt: skip
    parser.add_argument("--intercepts", action="store_true", help="with row and column intercepts")
    parser.add_argument("--sweeps", type=int, help="most sweeps (default 100; 200 with --literal)")
    parser.add_argument(
        "--literal", action="store_true",
        help="the paper's Algorithm 1 to the letter: no momentum, no annealed start, a plain "
        "ridge if any",
    )  # fmt: skip
