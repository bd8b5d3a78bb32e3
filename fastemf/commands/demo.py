"""``fastemf demo`` and ``reproduce``: generated data, and the experiments of the paper."""

from __future__ import annotations

import argparse
from typing import Any

from fastemf.commands.options import add_command, add_out, parse_number
from fastemf.commands.output import check_out_table, print_text
from fastemf.support.terminal import escape_control, stderr_is_terminal

EXPERIMENTS = {
    "synthetic": "low rank plus skewed noise: error against the true matrix, by level",
    "wsdream": "web-service response times (WS-DREAM): relative error by level and bin",
    "netlatency": "round-trip times between nodes (NetLatency-Data): relative error by level and "
    "bin",
    "sensing": "linear measurements: number needed for recovery, and rate of convergence",
}


def add_commands(commands: Any) -> None:
    """Add the two commands."""
    parser = add_command(
        commands, "demo", run_demo,
        "fit three levels to generated data, or write an example log",
        "Generate the skewed matrix of the paper, fit three expectile levels to a sample of its "
        "cells, and print their errors on the other cells. With --out, write a generated log of "
        "response times instead, as an example for the other commands.",
    )  # fmt: skip
    matrix = parser.add_argument_group("matrix")
    matrix.add_argument("--size", type=int, default=1000, help="rows and columns (default 1000)")
    text = "proportion of observed cells (default 0.1)"
    matrix.add_argument("--density", type=float, default=0.1, help=text)
    matrix.add_argument("-k", "--rank", type=int, default=10, metavar="K", help="rank (default 10)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default 0)")
    text = "write 5,000 lines with client, service and ms (CSV, TSV or Parquet), without fitting"
    add_out(parser, text, required=False)

    parser = add_command(
        commands, "reproduce", run_reproduce,
        "run an experiment of the paper",
        "Run an experiment of the paper. Write its figures (PNG), its numbers (CSV) and a report "
        "with both (HTML), replacing files of the same names.",
    )  # fmt: skip
    names = parser.add_subparsers(dest="name", required=True, metavar="experiment")
    for name, text in EXPERIMENTS.items():
        _add_experiment(names.add_parser(name, help=text, description=text), name)


def _add_experiment(parser: argparse.ArgumentParser, name: str) -> None:
    rank, size = (2, 20) if name == "sensing" else (10, 1000)
    if name in ("wsdream", "netlatency"):
        parser.add_argument("--data", required=True, help="file, directory or zip archive to read")
        parser.add_argument(
            "--bins", type=float, nargs="+", metavar="EDGE",
            help="edges of the bins of true values (default: "
            + ("0 0.3 3.1 20 seconds)" if name == "wsdream" else "0 50 200 3000 milliseconds)"),
        )  # fmt: skip
    else:
        text = f"rows and columns (default {size})"
        parser.add_argument("--size", type=int, default=size, help=text)
    if name == "wsdream":
        text = "compare p50 and means with published results, at 5, 10, 15 and 20 % of the cells"
        parser.add_argument("--leaderboard", action="store_true", help=text)
        text = "locations for --leaderboard: a directory with userlist.txt and wslist.txt, or .npz"
        parser.add_argument("--places", metavar="PATH", help=text)
    text = "directory to write to (default: the current one)"
    parser.add_argument("--out", default=".", help=text)
    text = "random draws of each problem (default 10)"
    parser.add_argument("--repeats", type=int, default=10, help=text)
    parser.add_argument("--rank", type=int, default=rank, help=f"rank k (default {rank})")
    if name == "sensing":
        return
    text = 'ridge: a number, "noise" (default; 0 with --literal) or "auto"'
    parser.add_argument("--reg", type=parse_number, help=text)
    parser.add_argument("--intercepts", action="store_true", help="fit row and column intercepts")
    text = "maximum number of sweeps (default 100; 200 with --literal)"
    parser.add_argument("--sweeps", type=int, help=text)
    text = "Algorithm 1 exactly as in the paper: no momentum, no annealing, plain ridge if any"
    parser.add_argument("--literal", action="store_true", help=text)


def run_demo(args: argparse.Namespace) -> None:
    """Print the comparison of the three fits, or write the log."""
    if args.out is None:
        from fastemf.experiments.demo import run as compare

        progress = stderr_is_terminal()
        print_text(compare(args.size, args.density, args.rank, args.seed, progress=progress))
        return
    check_out_table(args)
    from fastemf.datasets import make_latencies
    from fastemf.inputs.table_files import write_table

    write_table(args.out, make_latencies(random_state=args.seed)._asdict())


def run_reproduce(args: argparse.Namespace) -> None:
    """Run the experiment; print its report and the files written."""
    from fastemf.experiments.reproduce import reproduce

    options = {key: value for key, value in vars(args).items() if key not in ("run", "command")}
    name, out = options.pop("name"), options.pop("out")
    report, paths = reproduce(name, out, progress=stderr_is_terminal(), **options)
    names = "\n         ".join(escape_control(str(path)) for path in paths)
    print_text(f"{report}\n\nwritten: {names}")
