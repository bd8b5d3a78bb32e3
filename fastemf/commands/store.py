"""``fastemf store``: observations on disk, for fits of more than memory holds."""

from __future__ import annotations

import argparse
import json
from typing import Any

from fastemf.commands.arguments import add_json, utf8

__all__ = ["add", "run"]

MIB = 1 << 20


def add(commands: Any) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "store",
        help="put observations on disk, for fits of more than memory holds",
        description="Build a store, a folder that `fastemf fit` reads block by block; say what one "
        "holds; check it.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    build = actions.add_parser("build", help="from Parquet or CSV files, in bounded memory")
    build.add_argument("files", nargs="+", help="Parquet or CSV files, or one folder of them")
    build.add_argument("-o", "--out", required=True, metavar="FOLDER", help="store to make")
    build.add_argument(
        "--rows", required=True, metavar="NAME", type=utf8, help="column with the rows"
    )
    build.add_argument(
        "--cols", required=True, metavar="NAME", type=utf8, help="column with the columns"
    )
    build.add_argument(
        "--values", required=True, metavar="NAME", type=utf8, help="column with the values"
    )
    build.add_argument("--weights", metavar="NAME", type=utf8, help="column with positive weights")
    build.add_argument(
        "--shape", type=int, nargs=2, metavar=("ROWS", "COLS"),
        help="rows and columns are positions from 0, and this many; else they are labels",
    )  # fmt: skip
    build.add_argument(
        "--budget", type=int, default=256, metavar="MIB", help="memory to sort in (default 256)"
    )
    add_json(build)
    info = actions.add_parser("info", help="say what a store holds")
    verify = actions.add_parser("verify", help="read all of a store and compare its checksums")
    for action in (info, verify):
        action.add_argument("store", help="folder of the store")
        add_json(action)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Build, describe or check."""
    from fastemf import store

    if args.action == "build":
        found = store.build(
            args.files[0] if len(args.files) == 1 else args.files, args.out,
            rows=args.rows, cols=args.cols, values=args.values, weights=args.weights,
            shape=args.shape, budget=args.budget * MIB,
        )  # fmt: skip
    else:
        if args.action == "verify":
            store.verify(args.store)
        found = store.open(args.store)
    facts = {"store": str(found.path), **found.info}
    if args.json:
        print(json.dumps(facts))
        return
    m, n = facts["shape"]
    names = " × ".join(facts["labels"]) if facts["labels"] else "positions"
    lines = [
        ("store", facts["store"]),
        ("matrix", f"{m:,} rows × {n:,} columns ({names})"),
        ("holds", f"{facts['size']:,} observations, {facts['dtype']}"
         + (", weighted" if facts["weighted"] else "")),
        ("on disk", f"{facts['bytes'] / MIB:,.1f} MiB"),
    ]  # fmt: skip
    if args.action == "verify":
        lines.append(("verified", "every file is as it was written"))
    print("\n".join(f"{name:9} {text}" for name, text in lines))
