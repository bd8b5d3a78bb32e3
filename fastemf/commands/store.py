"""``fastemf store``: observations on disk, for data larger than memory."""

from __future__ import annotations

import argparse
import json
from typing import Any

from fastemf.commands import options
from fastemf.commands.input import open_text
from fastemf.commands.output import as_lines, print_text
from fastemf.support.terminal import stderr_is_terminal

MIB = 1 << 20


def add_commands(commands: Any) -> None:
    """Add the command."""
    parser = options.add_command(
        commands, "store", run,
        "store observations on disk, for data larger than memory",
        "Build, extend, describe or verify a store: a directory that fastemf fit, levels and "
        "quantiles read block by block.",
    )  # fmt: skip
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    build = actions.add_parser("build", help="build a store from tables")
    append = actions.add_parser("append", help="append the observations of tables")
    append.add_argument("store", help="directory of the store")
    for action in (build, append):
        options.add_source(action, "files", f"files or folders: {options.FORMATS}", many=True)
        for name, text in options.COLUMNS.items():
            action.add_argument(f"--{name}", metavar="NAME", type=options.parse_utf8, help=text)
        options.add_text_format(action)
        text = "memory for sorting, in MiB (default 1024)"
        action.add_argument("--memory-limit", type=int, default=1024, metavar="MIB", help=text)
    build.add_argument("-o", "--out", required=True, metavar="DIR", help="store to create")
    text = "further columns to keep, one value for each observation"
    build.add_argument("--columns", nargs="+", default=[], metavar="NAME", help=text)
    text = "size of the matrix; rows and columns are then positions from 0 instead of labels"
    build.add_argument("--shape", type=int, nargs=2, metavar=("ROWS", "COLS"), help=text)
    info = actions.add_parser("info", help="describe a store")
    verify = actions.add_parser("verify", help="compare all files of a store with their checksums")
    for action in (info, verify):
        action.add_argument("store", help="directory of the store")
    for action in (build, append, info, verify):
        options.add_json(action)


def run(args: argparse.Namespace) -> None:
    """Build, extend, describe or verify."""
    from fastemf import store

    if args.action in ("build", "append"):
        files = args.files
        if isinstance(files, list) and len(files) == 1:
            [files] = files
        files = open_text(files, args)
        given = {name: getattr(args, name) for name in options.COLUMNS}
        given |= {"memory_limit": args.memory_limit * MIB, "progress": stderr_is_terminal()}
    if args.action == "build":
        opened = store.build(files, args.out, shape=args.shape, columns=args.columns, **given)
    elif args.action == "append":
        opened = store.append(args.store, files, **given)
    else:
        if args.action == "verify":
            store.verify(args.store)
        opened = store.open(args.store)
    facts = {"store": str(opened.path), **opened.info}
    if args.json:
        print_text(json.dumps(facts))
        return
    m, n = facts["shape"]
    names = " × ".join(facts["labels"]) if facts["labels"] else "positions"
    weighted = ", weighted" if facts["weighted"] else ""
    lines = [
        ("store", facts["store"]),
        ("matrix", f"{m:,} rows × {n:,} columns ({names})"),
        ("content", f"{facts['size']:,} observations, {facts['dtype']}{weighted}"),
        ("size", f"{facts['bytes'] / MIB:,.1f} MiB"),
    ]
    if args.action == "verify":
        lines.append(("verified", "all files match their checksums"))
    print_text(as_lines(lines))
