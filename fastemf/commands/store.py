"""``fastemf store``: observations on disk, for fits of more than memory holds."""

from __future__ import annotations

import argparse
import json
from typing import Any

from fastemf.commands.arguments import add_json, add_writing, refuse_writing, utf8, writing_of

__all__ = ["add", "run"]

MIB = 1 << 20


def add(commands: Any) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "store",
        help="put observations on disk, for fits of more than memory holds",
        description="Build a store, a folder that `fastemf fit` reads block by block; append to "
        "it; say what it holds; check it.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    build = actions.add_parser("build", help="from Parquet or CSV files, in bounded memory")
    build.add_argument("files", nargs="+", help="Parquet or CSV files, or one folder of them")
    build.add_argument("-o", "--out", required=True, metavar="FOLDER", help="store to make")
    _add_columns(build)
    build.add_argument(
        "--shape", type=int, nargs=2, metavar=("ROWS", "COLS"),
        help="rows and columns are positions from 0, and this many; else they are labels",
    )  # fmt: skip
    append = actions.add_parser(
        "append", help="add observations of Parquet or CSV files to a store, all or none"
    )
    append.add_argument("store", help="folder of the store")
    append.add_argument("files", nargs="+", help="Parquet or CSV files, or one folder of them")
    _add_columns(append)
    for action in (build, append):
        action.add_argument(
            "--budget", type=int, default=256, metavar="MIB", help="memory to sort in (default 256)"
        )
        add_json(action)
    info = actions.add_parser("info", help="say what a store holds")
    verify = actions.add_parser("verify", help="read all of a store and compare its checksums")
    for action in (info, verify):
        action.add_argument("store", help="folder of the store")
        add_json(action)
    parser.set_defaults(run=run)


def _add_columns(parser: argparse.ArgumentParser) -> None:
    """Add the names of the columns of the files."""
    for name, what in (("rows", "the rows"), ("cols", "the columns"), ("values", "the values")):
        parser.add_argument(
            f"--{name}", required=True, metavar="NAME", type=utf8, help=f"column with {what}"
        )
    parser.add_argument("--weights", metavar="NAME", type=utf8, help="column with positive weights")
    add_writing(parser)


def _files(args: argparse.Namespace) -> Any:
    """Return the source of a build: paths, or texts that are not written as their endings say."""
    from pathlib import Path

    given = writing_of(args)
    if not given:
        return args.files[0] if len(args.files) == 1 else args.files
    from fastemf.inputs.table_files import check_regular, text_in
    from fastemf.store.chunks import files_in

    one = len(args.files) == 1
    paths = files_in(Path(args.files[0])) if one else [Path(file) for file in args.files]
    for path in paths:
        check_regular(path)
    return [text_in(path, **given) or refuse_writing(str(path)) for path in paths]


def run(args: argparse.Namespace) -> None:
    """Build, append, describe or check."""
    from fastemf import store

    if args.action in ("build", "append"):
        files = _files(args)
        how = {
            "rows": args.rows, "cols": args.cols, "values": args.values, "weights": args.weights,
            "budget": args.budget * MIB,
        }  # fmt: skip
    if args.action == "build":
        found = store.build(files, args.out, shape=args.shape, **how)
    elif args.action == "append":
        found = store.append(args.store, files, **how)
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
