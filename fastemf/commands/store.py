"""``fastemf store``: observations on disk, for data larger than memory."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from fastemf.commands.input import refuse_text_format, text_format
from fastemf.commands.options import COLUMNS, add_command, add_json, add_text_format, parse_utf8
from fastemf.commands.output import as_lines

MIB = 1 << 20


def add_commands(commands: Any) -> None:
    """Add the command."""
    parser = add_command(
        commands, "store", run,
        "store observations on disk, for data larger than memory",
        "Build, extend, describe or verify a store: a directory that fastemf fit, levels and "
        "quantiles read block by block.",
    )  # fmt: skip
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    build = actions.add_parser("build", help="build a store from Parquet or CSV files")
    append = actions.add_parser("append", help="append observations of Parquet or CSV files")
    append.add_argument("store", help="directory of the store")
    for action in (build, append):
        text = "Parquet or CSV files, or one directory of them"
        action.add_argument("files", nargs="+", help=text)
        for name, text in COLUMNS.items():
            action.add_argument(
                f"--{name}", required=name != "weights", metavar="NAME", type=parse_utf8, help=text
            )
        add_text_format(action)
        text = "memory for sorting, in MiB (default 256)"
        action.add_argument("--budget", type=int, default=256, metavar="MIB", help=text)
    build.add_argument("-o", "--out", required=True, metavar="DIR", help="store to create")
    text = "size of the matrix; rows and columns are then positions from 0 instead of labels"
    build.add_argument("--shape", type=int, nargs=2, metavar=("ROWS", "COLS"), help=text)
    info = actions.add_parser("info", help="describe a store")
    verify = actions.add_parser("verify", help="compare all files of a store with their checksums")
    for action in (info, verify):
        action.add_argument("store", help="directory of the store")
    for action in (build, append, info, verify):
        add_json(action)


def _open_files(args: argparse.Namespace) -> Any:
    """Return the source of a build: paths, or text files in another format than the default."""
    given = text_format(args)
    if not given:
        return args.files[0] if len(args.files) == 1 else args.files
    from fastemf.inputs.table_files import check_regular, text_in
    from fastemf.sources.store.chunks import files_in

    is_single = len(args.files) == 1
    paths = files_in(Path(args.files[0])) if is_single else [Path(file) for file in args.files]
    for path in paths:
        check_regular(path)
    return [text_in(path, **given) or refuse_text_format(str(path)) for path in paths]


def run(args: argparse.Namespace) -> None:
    """Build, extend, describe or verify."""
    from fastemf import store

    if args.action in ("build", "append"):
        files = _open_files(args)
        options = {name: getattr(args, name) for name in COLUMNS} | {"budget": args.budget * MIB}
    if args.action == "build":
        opened = store.build(files, args.out, shape=args.shape, **options)
    elif args.action == "append":
        opened = store.append(args.store, files, **options)
    else:
        if args.action == "verify":
            store.verify(args.store)
        opened = store.open(args.store)
    facts = {"store": str(opened.path), **opened.info}
    if args.json:
        print(json.dumps(facts))
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
    print(as_lines(lines))
