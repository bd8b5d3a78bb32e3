"""``fastemf demo``: the main job on generated data, or such data to try the other commands on."""

from __future__ import annotations

import argparse
from typing import Any

from fastemf.commands.arguments import add_out, check_free_table
from fastemf.support.terminal import stderr_is_terminal

__all__ = ["add", "run"]


def add(commands: Any) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "demo",
        help="show three levels on generated data, or write a table to try the others on",
        description="Generate the paper's skewed matrix, fit three expectile levels to a sample "
        "of its cells, and show how each does on the cells it has not seen. With --out: write a "
        "generated log of response times instead, to try the other commands on.",
    )
    matrix = parser.add_argument_group("matrix")
    matrix.add_argument("--size", type=int, default=1000, help="rows and columns (default 1000)")
    matrix.add_argument("--density", type=float, default=0.1, help="share observed (default 0.1)")
    matrix.add_argument("-k", "--rank", type=int, default=10, metavar="K", help="rank (default 10)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default 0)")
    what = "write 5,000 lines of client, service and ms (CSV, TSV or Parquet), and fit nothing"
    add_out(parser, what, required=False)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Print the table of the three fits, or write the log."""
    if args.out is None:
        from fastemf.experiments.demo import run as compare

        print(compare(args.size, args.density, args.rank, args.seed, progress=stderr_is_terminal()))
        return
    check_free_table(args.out, args.force)
    from fastemf.datasets.latency_log import make_latencies
    from fastemf.inputs.table_files import write_table

    write_table(args.out, make_latencies(random_state=args.seed)._asdict())
