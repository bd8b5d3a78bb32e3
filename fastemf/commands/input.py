"""Input of commands: observations, pairs of labels, and labels given as text."""

from __future__ import annotations

import argparse
import datetime
import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

DATE = re.compile(r"[0-9]{4,}-[0-9]{2}-[0-9]{2}([T ].+)?")


# --- observations -----------------------------------------------------------------------------


def read_data(args: argparse.Namespace, source: Any = None) -> dict[str, Any]:
    """Return the keywords R, rows, cols, values, weights and censored of `fastemf.complete`.

    `source` is the opened source of the data, if it was opened before.
    """
    from fastemf.inputs.file_lists import name_of
    from fastemf.inputs.table_files import column_names
    from fastemf.sources.open_source import is_store

    path = args.data
    source = open_text(path, args) if source is None else source
    if any(getattr(args, name, None) is not None for name in ("le", "count")):
        return _read_histograms(args, source)
    present = None if is_store(path) else column_names(source)
    options = {"--rows": args.rows, "--cols": args.cols, "--values": args.values}
    missing = [option for option, column in options.items() if column is None]
    censored = censored_option(args)
    if present is None:
        if len(missing) < 3 or args.weights is not None or isinstance(censored, str):
            raise ValueError(f"{path} is not a table: it has no named columns")
        return {"R": path} if censored is None else {"R": path, "censored": censored}
    columns = list(options.values())
    if missing:
        others = (
            args.weights, censored, getattr(args, "time", None),
            *(getattr(args, "features", None) or ()),
        )  # fmt: skip
        present = [name for name in present if name not in others]
        if len(missing) < 3 or len(present) != 3:
            listed = f"it has the columns {', '.join(present)}"
            raise ValueError(
                f"select columns of {name_of(path)} with {', '.join(missing)}; {listed}"
            )
        columns = list(present)
        if _is_text_file(path) and _is_number(columns[2], args.decimal or "."):
            _refuse_header(path, f"{columns[2]!r} as the values", "--rows, --cols and --values")
    return _keywords(source, columns, args)


def _read_histograms(args: argparse.Namespace, source: Any) -> dict[str, Any]:
    """Return the same keywords for the buckets of histograms."""
    from fastemf.inputs.histograms import histograms

    needed = {name: getattr(args, name) for name in ("rows", "cols", "le", "count")}
    if missing := [f"--{name}" for name, column in needed.items() if column is None]:
        raise ValueError(f"histograms need {', '.join(missing)}: the names of their columns")
    others = {
        "--values": args.values,
        "--weights": args.weights,
        "--features": getattr(args, "features", None),
    }
    others |= {"a censoring option": censored_option(args)}
    if given := [option for option, value in others.items() if value is not None]:
        raise ValueError(f"{given[0]} does not apply to histograms, whose values are buckets")
    needed["counts"] = needed.pop("count")
    return {
        "R": histograms(source, **needed), "rows": args.rows, "cols": args.cols,
        "values": ("lower", "upper"), "weights": "count",
    }  # fmt: skip


def read_model_data(args: argparse.Namespace, model: Any) -> dict[str, Any]:
    """Return the same keywords; columns default to those that the model was fitted to."""
    from fastemf.inputs.file_lists import name_of
    from fastemf.inputs.table_files import column_names

    source = open_text(args.data, args)
    present = column_names(source)
    fitted = (*(axis.name for axis in model.axes), getattr(model, "value_name", None))
    given = (args.rows, args.cols, args.values)
    columns = [name or default for name, default in zip(given, fitted, strict=True)]
    if present is None or None in columns or not set(fitted) & set(present):
        return read_data(args, source)
    options = ("--rows", "--cols", "--values")
    for name, option, own in zip(columns, options, given, strict=True):
        if own is None and name not in present:
            raise ValueError(
                f"{name_of(args.data)}: there is no column {name!r}, as in the fit; select one "
                f"with {option}; it has the columns {', '.join(present)}"
            )
    return _keywords(source, columns, args)


def list_inputs(args: argparse.Namespace) -> Iterator[tuple[str, str | int]]:
    """List the arguments that name input, with the path of each file, or 0 for standard input.

    The files of a query are found by its quoted texts.
    """
    from fastemf.inputs.query import Query

    for name in ("model", "data", "pairs", "row_features", "col_features", "seen", "missing"):
        given = getattr(args, name, None)
        if isinstance(given, Query):
            quoted = re.findall("'([^']+)'|\"([^\"]+)\"", given.text)
            paths = [given.database or "", *(text for pair in quoted for text in pair)]
        elif given is not None:
            paths = [given, given.partition("::")[0]]  # a table of a database
        else:
            continue
        for path in filter(None, paths):
            if path == "-":
                yield name, 0
            elif os.path.isdir(path):
                yield from ((name, str(file)) for file in Path(path).rglob("*"))
            else:
                yield from ((name, file) for file in (path, *glob.glob(path, recursive=True)))


def is_same_file(path: str, other: str | int) -> bool:
    """Return whether two paths, or a path and an open file, are one file, also through links."""
    try:
        return os.path.samestat(os.stat(path), os.stat(other))
    except (OSError, ValueError):  # one of them does not exist
        return False


def _keywords(source: Any, columns: list[Any], args: argparse.Namespace) -> dict[str, Any]:
    censored = censored_option(args)
    return {
        "R": source, **dict(zip(("rows", "cols", "values"), columns, strict=True)),
        "weights": args.weights, **({} if censored is None else {"censored": censored}),
    }  # fmt: skip


def item_features(args: argparse.Namespace) -> dict[str, Any]:
    """Return the files of --row-features and --col-features as keywords, or None for each."""
    from fastemf.inputs.file_lists import TEXTS

    csv = tuple(suffix for suffix, kind in TEXTS.items() if kind == "csv")
    files = {name: getattr(args, name, None) for name in ("row_features", "col_features")}
    return {
        name: open_text(path, args) if path is not None and path.lower().endswith(csv) else path
        for name, path in files.items()
    }


def feature_values(schema: Any, given: list[str] | None) -> dict[str, Any] | None:
    """Parse side features given as NAME=VALUE, by the kinds of the schema of a model."""
    from fastemf.features.values import CATEGORY, NUMBER

    found: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--features must be NAME=VALUE, got {text}")
        names = () if schema is None else schema.names
        kind = schema.kinds[names.index(name)] if name in names else CATEGORY  # refused later
        try:
            if kind == NUMBER:
                found[name] = float(value)
            else:
                is_date = kind != CATEGORY
                found[name] = datetime.datetime.fromisoformat(value) if is_date else value
        except ValueError:
            raise ValueError(f"--features: {name!r} must be a {kind}, got {value}") from None
    return found or None


def observed_schema(model: Any) -> Any:
    """Return the schema of the side features of observations; None if the model has none."""
    features = getattr(model, "features", None)
    return None if features is None else features.observed


def select_level(args: argparse.Namespace, model: Any) -> dict[str, float | None]:
    """Return the quantile or level given, which a model with several requires."""
    has_taus = hasattr(model, "taus")
    name, other = ("tau", "omega") if has_taus else ("omega", "tau")
    what = "quantiles" if has_taus else "expectile levels"
    if getattr(args, other) is not None:
        raise ValueError(f"--{other} does not apply to {args.model}, a model of {what}")
    value, fitted = getattr(args, name), getattr(model, f"{name}s", ())
    if value is None and fitted:
        listed = ", ".join(f"{one:g}" for one in fitted)
        raise ValueError(
            f"{args.model} is a model of {what} ({listed}): select one with --{name}"
        )  # fmt: skip
    return {name: value}


def censored_option(args: argparse.Namespace) -> Any:
    """Return the value of the keyword `censored`, or None."""
    for side, limit in (("right", "censored_above"), ("left", "censored_below")):
        if getattr(args, limit, None) is not None:
            return side, getattr(args, limit)
    return getattr(args, "censored", None)


def text_format(args: argparse.Namespace) -> dict[str, str]:
    """Return the options --sep and --decimal as attributes of a CSV file."""
    options = {"--sep": ("delimiter", args.sep), "--decimal": ("decimal", args.decimal)}
    for option, (_, value) in options.items():
        if value is not None and len(value) != 1:
            raise ValueError(f"{option} must be one character, got {value!r}")
    return {name: value for name, value in options.values() if value is not None}


def open_text(source: Any, args: argparse.Namespace) -> Any:
    """Return a source with the format of --sep and --decimal; standard input is read once."""
    from fastemf.inputs.file_lists import TextSource, hold_stream

    given = text_format(args)
    if isinstance(source, str) and source == "-":
        return hold_stream(source, **given)
    return TextSource(source, **given) if given else source


def _refuse_header(path: str, name: str, options: str) -> NoReturn:
    """Refuse a text file whose first line appears to contain data."""
    from fastemf.inputs.file_lists import name_of

    raise ValueError(
        f"{name_of(path)}: the first line looks like data, not like column names: it would name "
        f"{name}; add a line of column names, or name the columns with {options}"
    )


def _is_text_file(path: Any) -> bool:
    from fastemf.inputs.file_lists import TEXTS

    return path == "-" or str(path).lower().endswith(tuple(TEXTS))


def _is_number(text: str, decimal: str) -> bool:
    """Return whether a text is a number, including nan and inf."""
    try:
        float(text.replace(decimal, "."))
    except ValueError:
        return False
    return True


# --- pairs of labels --------------------------------------------------------------------------


class Pairs(NamedTuple):
    """Two columns of a table, of equal length, and side features."""

    names: tuple[str, str]
    rows: Any
    cols: Any
    features: Any  # a table with those that the file has; None if it has none


def read_pairs(path: str, args: argparse.Namespace, model: Any) -> Pairs | None:
    """Read the labels and the side features of a file; None if the file holds a matrix."""
    from fastemf.features.reading import find_columns
    from fastemf.inputs.table_files import column_names, read_file

    source = open_text(path, args)
    present = column_names(source)
    if present is None:
        return None
    names = _pair_columns(path, present, args, model)
    sides = zip(names, model.axes, strict=True)
    texts = [name for name, axis in sides if axis.labels is not None and axis.labels.kind == "str"]
    schema = observed_schema(model)
    features: list[str] = []
    if schema is not None:
        source, features = find_columns(source, schema)
        texts += schema.texts
    table = read_file(source, names, [], texts, features=features).content
    given = table.select(features) if features else None
    return Pairs(names, table.column(names[0]), table.column(names[1]), given)


def _pair_columns(
    path: str, present: list[str], args: argparse.Namespace, model: Any
) -> tuple[str, str]:
    """Return the names of the label columns: as given, as in the fit, or the only two."""
    from fastemf.inputs.file_lists import name_of

    given = (args.rows, args.cols)
    names = [name or axis.name for name, axis in zip(given, model.axes, strict=True)]
    if not all(name in present for name in names) and not any(given) and len(present) == 2:
        names = present
        if _is_text_file(path) and all(map(_is_label, model.axes, names)):
            _refuse_header(
                path, f"{names[0]!r} as the rows, which is a row of the model", "--rows and --cols"
            )
    for option, name in zip(("--rows", "--cols"), names, strict=True):
        if name not in present:
            what = f"there is no column {name!r}" if name else f"select a column with {option}"
            raise ValueError(
                f"{name_of(path)}: {what}; it has the columns {', '.join(present)}"
            )  # fmt: skip
    return names[0], names[1]


def _is_label(axis: Any, text: str) -> bool:
    """Return whether a text is a label or position of one axis of the model."""
    if axis.labels is None:
        return text in map(str, range(axis.size))
    return bool(axis.labels.positions(parse_rows(axis.labels, [text], "nan"))[0] >= 0)


# --- labels -----------------------------------------------------------------------------------


def labels_like(labels: Any, column: Any, what: str, unknown: str = "error") -> Any:
    """Convert a column of a file to the type of the labels of a model.

    CSV files contain only text. Text in another format than the labels becomes an unknown label.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = None if labels is None else labels.values.dtype.kind
    is_integer = pa.types.is_integer(column.type)
    is_text = str(column.type) in ("string", "large_string")
    if kind == "O" and (is_integer or pa.types.is_date(column.type)):
        return column.cast(pa.string())
    if kind == "M" and is_integer:
        column, is_text = column.cast(pa.string()), True
    if kind is None or kind == "O" or not is_text or column.null_count:
        return column
    encoded = column.combine_chunks().dictionary_encode()
    distinct = _parse_labels(labels, encoded.dictionary.to_pylist(), what, unknown)
    return distinct[encoded.indices.to_numpy()]


def parse_rows(labels: Any, texts: list[str], unknown: str = "error", what: str = "row") -> Any:
    """Parse rows given on the command line: labels, or positions if the model has no labels."""
    import numpy as np

    if labels is not None:
        is_text = labels.values.dtype == object
        return np.array(texts, object) if is_text else _parse_labels(labels, texts, what, unknown)
    try:
        return np.array(texts, np.int64)
    except (ValueError, OverflowError):
        given = " ".join(texts)
        raise ValueError(
            f"{what} must be positions from 0, because the model has no labels, got {given}"
        ) from None


def _parse_labels(labels: Any, texts: list[str], what: str, unknown: str) -> Any:
    """Parse integers or dates; any other text becomes a value that is not among the labels."""
    import numpy as np

    from fastemf.inputs.labels import check_known

    dtype = labels.values.dtype
    taken = labels.values.view(np.int64)
    absent = np.setdiff1d(np.arange(len(labels) + 1), taken)[:1].astype(np.int64).view(dtype)[0]
    if dtype.kind == "M":
        values = np.array([_parse_date(text, absent, labels.is_utc) for text in texts])
    else:
        values = np.array([_parse_integer(text, absent) for text in texts])
    if labels.is_utc:
        times = values.astype("datetime64[us]").tolist()
        values = np.array([time.replace(tzinfo=datetime.UTC) for time in times], object)
    if unknown == "error":
        check_known((labels.positions(values), texts, what))
    return values


def _parse_integer(text: str, absent: Any) -> Any:
    from fastemf.inputs.columns import is_integer_text

    try:
        return absent.dtype.type(int(text)) if is_integer_text(text) else absent
    except (OverflowError, ValueError):  # also integers with more digits than Python parses
        return absent


def _parse_date(text: str, absent: Any, is_utc: bool) -> Any:
    """Parse a date or a time, with a time zone if the labels have one."""
    import numpy as np

    try:
        time = datetime.datetime.fromisoformat(text)
        if not DATE.fullmatch(text) or (time.tzinfo is not None) != is_utc:
            return absent
        if is_utc:
            return np.datetime64(time.astimezone(datetime.UTC).replace(tzinfo=None))
        return np.datetime64(text)  # up to nanoseconds
    except ValueError:
        return absent
