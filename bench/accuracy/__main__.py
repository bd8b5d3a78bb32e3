"""``python -m bench.accuracy``: how well do fits predict held-out cells?

Prints the loss relative to the best constant, and the effective level of the predictions, for the
default, for baselines and for other libraries, on real and generated data.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

from bench.accuracy import (
    FAMILIES,
    FAMILIES_WITH_FEATURES,
    METHODS,
    SETS,
    SETS_WITH_FEATURES,
    AbsentError,
    censoring,
    histograms,
    quantiles,
    score,
)
from bench.accuracy.report import Run, draw, failures, markdown, target_lines
from bench.accuracy.splits import Make, hold_out, open_splits
from bench.runner import describe, print_machine
from fastemf.loss import expectile

SIDES = {"rows": 0, "cols": 1}
SMALL = {**FAMILIES, **FAMILIES_WITH_FEATURES}
SMOKE_SHAPE = (60, 50)
QUANTILE_SHAPE = (300, 225)  # large enough for p99 without a fifth of the rows


def main(argv: list[str] | None = None) -> int:
    """Run, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy", description=__doc__)
    parser.add_argument("--sets", metavar="NAMES",
                        help=f"separated by commas: {', '.join(SETS)}; with --quantiles also "
                        f"{', '.join(SETS_WITH_FEATURES)}")  # fmt: skip
    parser.add_argument("--methods", metavar="NAMES",
                        help=f"separated by commas: {', '.join(METHODS)}; with --quantiles "
                        f"{', '.join(quantiles.METHODS)}")  # fmt: skip
    parser.add_argument("--omegas", type=_numbers(float), default=[0.1, 0.5, 0.9])
    parser.add_argument("--seeds", type=_numbers(int), default=[0, 1, 2])
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--quantiles", action="store_true",
                        help="evaluate p50, p95 and p99 of complete_quantiles instead")  # fmt: skip
    parser.add_argument("--taus", type=_numbers(float), default=quantiles.TAUS,
                        help="the quantiles (default 0.5,0.95,0.99); the CRPS and the score of the "
                        "interval between the outer ones need more, such as "
                        "0.05,0.25,0.5,0.75,0.95")  # fmt: skip
    parser.add_argument("--cold", type=_among(SIDES), default=[], metavar="SIDES",
                        help="with --quantiles: hold out a fifth of the rows, of the cols, or of "
                        "each in turn (rows,cols), and evaluate only these")  # fmt: skip
    parser.add_argument("--censored", action="store_true",
                        help="evaluate fits of censored values instead")  # fmt: skip
    parser.add_argument("--histograms", action="store_true",
                        help="evaluate quantiles of values in buckets instead")  # fmt: skip
    parser.add_argument("--smoke", action="store_true", help="tiny matrices, to test that it runs")
    parser.add_argument("--out", type=Path, metavar="FILE",
                        help="JSON file to add the runs to; it replaces repeated runs")  # fmt: skip
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the losses")
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")
    args = parser.parse_args(argv)
    # Fail before a long run rather than after it.
    for option, path in (("--out", args.out), ("--plot", args.plot)):
        if path is not None and not path.absolute().parent.is_dir():
            parser.error(f"{option} must be in a folder that exists, got {path}")
    if args.plot is not None and find_spec("matplotlib") is None:
        parser.error("plots need matplotlib: pip install '.[bench]'")
    sets = _read_choices(parser, args)

    about = print_machine()
    METHODS["auto"](_tiny("additive")(0).train, 0.5, 0, 2)  # compiled, or loaded from the cache
    if args.censored:
        return _evaluate_censored(args)
    if args.histograms:
        return _evaluate_histograms(args)
    runs = _read(args.out)
    if args.quantiles:
        return _evaluate_quantiles(sets, args, about, runs)
    for run in measure(sets, args.methods, args.omegas, args.seeds, args.k):
        print(_line(run), flush=True)
        runs = [other for other in runs if _key(other) != _key(run)] + [run]
        if args.out:
            _write(args.out, {"machine": about, "results": runs})
    runs = sorted((run for run in runs if run["k"] == args.k), key=_order)
    for title, lines in (("Targets", target_lines(runs)), ("Failures", failures(runs))):
        if lines:
            print(f"\n{title}", *lines, sep="\n")
    if args.markdown:
        print("", *markdown(runs), sep="\n")
    if args.plot:
        draw(runs, args.plot)
    return 0


def _read_choices(parser: argparse.ArgumentParser, args: argparse.Namespace) -> dict[str, Make]:
    """Complete the methods, and return the sets."""
    known_sets: dict[str, Any] = {**SETS, **(SETS_WITH_FEATURES if args.quantiles else {})}
    known: dict[str, Any] = {**(quantiles.METHODS if args.quantiles else METHODS)}
    try:
        args.methods = _among(known)(args.methods or ",".join(known))
        names = _among(known_sets)(args.sets or ",".join(known_sets))
    except argparse.ArgumentTypeError as error:
        parser.error(f"--methods and --sets {error}")
    sets: dict[str, Make] = {name: known_sets[name] for name in names}
    if args.smoke:
        shape = QUANTILE_SHAPE if args.quantiles else SMOKE_SHAPE
        sets = {name: _tiny(name, shape) for name in names if name in SMALL}
    if args.cold:
        pairs = product(sets.items(), args.cold)
        sets = {f"{name}, new {side}": hold_out(make, SIDES[side]) for (name, make), side in pairs}
    return sets


def _evaluate_censored(args: argparse.Namespace) -> int:
    runs = []
    shape = SMOKE_SHAPE if args.smoke else censoring.SHAPE
    for run in censoring.measure(args.omegas, args.seeds, shape):
        print(censoring.line(run), flush=True)
        runs.append(run)
    print("\nTargets", *censoring.target_lines(runs), sep="\n")
    return 0


def _evaluate_histograms(args: argparse.Namespace) -> int:
    runs = []
    if args.smoke:
        split = _tiny("additive", QUANTILE_SHAPE)(0)
        measured = histograms.measure_split("additive", 0, split, 1.0, 2)
    else:
        measured = histograms.measure(args.seeds, args.k)
    for run in measured:
        print(histograms.line(run), flush=True)
        runs.append(run)
    print("\nTargets", *histograms.target_lines(runs), sep="\n")
    return 0


def _evaluate_quantiles(
    sets: dict[str, Make],
    args: argparse.Namespace,
    about: dict[str, Any],
    runs: list[Run],
) -> int:
    small: dict[str, Make] = {"additive": _tiny("additive", QUANTILE_SHAPE)}
    next(quantiles.measure(small, [0], 2, args.methods[:1]), None)  # compiles
    for run in quantiles.measure(sets, args.seeds, args.k, args.methods, tuple(args.taus)):
        print(quantiles.line(run), flush=True)
        same = ("set", "method", "tau", "seed", "k")
        runs = [one for one in runs if any(one.get(key) != run[key] for key in same)] + [run]
        if args.out:
            _write(args.out, {"machine": about, "results": runs})
    print("\nTargets", *quantiles.target_lines(runs), sep="\n")
    if args.markdown:
        print("", *quantiles.markdown(runs), sep="\n")
    return 0


def measure(
    sets: dict[str, Make], methods: list[str], omegas: list[float],
    seeds: list[int], k: int,
) -> Iterator[Run]:  # fmt: skip
    """Yield the runs one by one; report and skip methods that are not installed."""
    absent: set[str] = set()
    for name, seed, (train, test, _) in open_splits(sets, seeds):
        for omega, method in product(omegas, methods):
            if method in absent:
                continue
            run: Run = {"set": name, "method": method, "omega": omega, "seed": seed, "k": k}
            began = time.perf_counter()
            try:
                predicted = METHODS[method](train, omega, seed, k)(test.rows, test.cols)
                seconds = time.perf_counter() - began
            except AbsentError as error:
                absent.add(method)
                print(f"{method}: skipped, {error}")
            except Exception as error:  # the next runs may still succeed
                yield {**run, "error": describe(error)}
            else:
                constant = expectile(train.cells.values, omega)
                found = score(predicted, test.values, constant, omega)
                yield {**run, **found._asdict(), "seconds": seconds, "error": None}


def _line(run: Run) -> str:
    head = f"{run['set']:<16}{run['method']:<10}ω = {run['omega']:<5g}seed {run['seed']}  "
    if run["error"]:
        return head + f"failed: {run['error']}"
    level = f"level {run['level']:.3f} ± {run['level_error']:.3f}"
    return head + f"loss {run['loss']:.4f}  {level}  {run['seconds']:.2f} s"


def _key(run: Run) -> tuple[Any, ...]:
    return run["set"], run["method"], run["omega"], run["seed"], run["k"]


def _order(run: Run) -> tuple[Any, ...]:
    place = list(SETS).index(run["set"]), list(METHODS).index(run["method"])
    return place[0], run["seed"], run["omega"], place[1]


def _read(path: Path | None) -> list[Run]:
    if path is None or not path.exists():
        return []
    runs: list[Run] = json.loads(path.read_text())["results"]
    return runs


def _write(path: Path, results: dict[str, Any]) -> None:
    """Replace the file atomically."""
    fresh = path.with_name(path.name + ".part")
    fresh.write_text(json.dumps(results, indent=1))
    fresh.replace(path)


def _tiny(name: str, shape: tuple[int, int] = SMOKE_SHAPE) -> Make:
    return lambda seed: SMALL[name](seed, shape)


def _among(known: dict[str, Any]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        found = [name.strip() for name in text.split(",")]
        unknown = [name for name in found if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"must be among {', '.join(known)}, got {unknown}")
        return found

    return names


def _numbers(kind: type) -> Callable[[str], list[Any]]:
    def numbers(text: str) -> list[Any]:
        return [kind(part) for part in text.split(",")]

    return numbers


if __name__ == "__main__":
    sys.exit(main())
