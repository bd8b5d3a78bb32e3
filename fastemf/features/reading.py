"""Reading of side features from tables, files, dicts and arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from fastemf.features.schema import FeatureSchema, FeatureTable
from fastemf.features.values import Values, read_values
from fastemf.inputs.columns import Where, position
from fastemf.inputs.file_lists import hold_stream, is_source, is_stream, name_of
from fastemf.inputs.labels import Labels
from fastemf.inputs.query import Query
from fastemf.inputs.table_files import column_names, naming, read_file
from fastemf.inputs.tables import as_read, is_frame, is_table, select_columns, table_row
from fastemf.support.arrays import Floats
from fastemf.support.terminal import escape_control
from fastemf.support.warn import warn

NAMES = ("row_features", "col_features")
ITEMS = ("row", "column")


class Columns(NamedTuple):
    """Columns of features as given."""

    of_name: dict[str, Any]
    where: Where  # describes the position of an element

    def read(self) -> dict[str, Values]:
        """Read all columns."""
        return {
            name: read_values(column, f"feature {name!r}", self.where)
            for name, column in self.of_name.items()
        }

    def read_sized(self, size: int, what: str) -> dict[str, Values]:
        """Read all columns, which must have this size; `what` describes it in messages."""
        found = self.read()
        for name, values in found.items():
            if values.shape != (size,):
                raise ValueError(
                    f"feature {name!r} must have one value per {what}, shape ({size},), got "
                    f"{values.shape}"
                )
        return found


def read_item_features(
    given: Any, labels: Labels | None, n_items: int, axis: int, schema: FeatureSchema | None = None
) -> FeatureTable:
    """Read the features of all rows (axis 0) or columns of a matrix, in index order.

    Parameters
    ----------
    given
        With labels: a table in memory, a dict of columns, or any source of
        `fastemf.inputs.table_files.read_file`, with one line per label. The column named like
        the labels identifies the lines; in pandas the index does, if there is no such column and
        it has that name (or if the labels have none). All other columns are features. Lines with
        other labels are ignored, and labels without a line have missing values.
        Without labels: an array with one row per item, a dict of arrays, or a table, in index
        order.
    labels
        Labels of the items.
    n_items
        Number of items.
    axis
        0 for rows, 1 for columns.
    schema
        The features of a model; its categories are read as text.

    Examples
    --------
    >>> from fastemf import Labels
    >>> from fastemf.features.reading import read_item_features
    >>> viewers = {"viewer": ["us-1", "eu-7"], "age": [31, 45]}
    >>> labels = Labels(["eu-7", "us-1"], name="viewer")
    >>> read_item_features(viewers, labels, 2, axis=0).values.ravel().tolist()
    [45.0, 31.0]
    """
    name, item = NAMES[axis], ITEMS[axis]
    if labels is None:
        columns = _read_ordered(given, name, schema)
        return FeatureTable.fit(columns.read_sized(n_items, f"{item} of R"), n_items)
    lines, found = _read_lines(given, labels, axis, schema)
    places = labels.positions(lines, what=f"the labels of {name}")
    kept = places >= 0
    size = int(np.count_nonzero(kept))
    of_item = np.full(len(labels), -1)
    of_item[places[kept]] = np.arange(size)
    if size < len(labels):
        warn(
            f"{name} has no line for {len(labels) - size} of {len(labels)} {item}s, such as "
            f"{labels.values[np.argmin(of_item)]!r}; their features are missing"
        )
    fitted = FeatureTable.fit({one: values.select(kept) for one, values in found.items()}, size)
    return FeatureTable(fitted.schema, fitted.at(of_item))


def has_labels(given: Any, labels: Labels | None) -> bool:
    """Return whether features have a line per label or item, and not a value per prediction.

    Tables in files do, and tables in memory with a column or an index named like the labels.
    """
    if is_source(given):
        return True
    is_named = isinstance(given, Mapping) or is_table(given) or hasattr(given, "to_frame")
    if labels is None or not is_named:
        return False
    if labels.name is None:  # the index has the labels, as in the fit
        return type(getattr(given, "index", None)).__name__ not in ("NoneType", "RangeIndex")
    return labels.name in _columns(given, "", label_name=labels.name, has_labels=True).of_name


def encode_items(
    schema: FeatureSchema, given: Any, labels: Labels | None, n_items: int, axis: int, cells: Any,
    shape: tuple[int, ...],
) -> Floats:  # fmt: skip
    """Encode features of rows (axis 0) or columns, given as in a fit, for cells of this shape.

    `cells` are their labels, some of which may be new, or their indices if there are no labels;
    they are broadcast. Those without a line have missing values.

    Examples
    --------
    >>> from fastemf import Labels
    >>> from fastemf.features.reading import encode_items
    >>> from fastemf.features.schema import FeatureSchema
    >>> schema, labels = FeatureSchema(("age",), ("number",), ((),)), Labels(["us-1"], "viewer")
    >>> viewers = {"viewer": ["eu-7"], "age": [31]}
    >>> encode_items(schema, viewers, labels, 1, 0, ["us-1", "eu-7"], (2,)).ravel().tolist()
    [nan, 31.0]
    """
    name = NAMES[axis]
    if labels is None:
        columns = _read_ordered(given, name, schema)
        found = columns.read()
        size = max([n_items, *(values.numbers.size for values in found.values())])
        found, places = columns.read_sized(size, ITEMS[axis]), np.asarray(cells)
        places = np.where(places < size, places, -1)
    else:
        lines, found = _read_lines(given, labels, axis, schema)
        size, places = len(lines), lines.positions(cells, what=f"the {ITEMS[axis]}s")
    schema.check_known(found, name)
    table = FeatureTable(schema, schema.encode(found, size))
    return table.at(np.broadcast_to(places, shape))


def _read_ordered(given: Any, name: str, schema: FeatureSchema | None) -> Columns:
    """Return columns of features in index order."""
    if isinstance(given, Query):
        raise TypeError(f"{name} must be in index order, which SQL does not define")
    return _read_source(given, name, None, schema) if is_source(given) else _columns(given, name)


def _read_lines(
    given: Any, labels: Labels, axis: int, schema: FeatureSchema | None
) -> tuple[Labels, dict[str, Values]]:
    """Read the labels and the features of lines."""
    name = NAMES[axis]
    if is_source(given):
        columns = _read_source(given, name, labels, schema)
    else:
        columns = _columns(given, name, label_name=labels.name, has_labels=True)
    key = columns.of_name.pop(labels.name or "", None)
    if key is None:
        place = "the index" if labels.name is None else f"column {labels.name!r}"
        listed = ", ".join(map(escape_control, columns.of_name))
        raise TypeError(
            f"{name} must be a table with the labels of the {ITEMS[axis]}s in {place}, got a "
            f"{type(given).__name__} with columns {listed or 'none'}"
        )
    lines, codes = Labels.encode(key, what=f"the labels of {name}", where=columns.where)
    if codes.shape != (len(lines),):
        counts = np.bincount(codes.ravel())
        label = lines.values[np.argmax(counts)]
        raise ValueError(f"{name} must have one line per label, got {label!r} {counts.max()} times")
    return lines, columns.read_sized(len(lines), f"line of {name}")


def read_log_features(R: Any, given: Any, size: int, where: Where) -> FeatureTable:
    """Read features of `size` observations, in their order: columns of `R`, or arrays.

    Parameters
    ----------
    R
        A table in memory, triplets, or a sparse matrix in CSR, CSC or COO format; None for a data
        frame that is a matrix. With a schema, features of all but tables are missing.
    given
        For a table, names of its columns, or the schema of a model, some features of which are
        its columns; otherwise an (n, p) array or a dict of arrays.
    size
        Number of observations.
    where
        Describes the position of a table's row in messages.
    """
    if isinstance(given, FeatureSchema):
        if not is_table(R):
            return FeatureTable(given, given.encode({}, size))
        return FeatureTable(given, encode_columns(given, R, size, where))
    if is_table(R):
        names = check_names(given)
        columns = Columns(dict(zip(names, select_columns(R, names), strict=True)), where)
    elif isinstance(R, tuple) or getattr(R, "format", "") in ("csr", "csc", "coo"):
        columns = _columns(given, "features", where=position)
    else:
        kind = "a data frame that is a matrix" if R is None else type(R).__name__
        raise TypeError(
            "features must be given with a table, triplets, or a matrix in CSR, CSC or COO format, "
            f"which list the observations, got {kind}"
        )
    return FeatureTable.fit(columns.read_sized(size, "observation"), size)


def check_names(features: Any) -> list[str]:
    """Return the names of feature columns, which are distinct."""
    right = isinstance(features, (list, tuple)) and all(isinstance(one, str) for one in features)
    if not right or not features:
        raise TypeError(f"features must be a list of column names of the table, got {features!r}")
    if len(set(features)) < len(features):
        raise ValueError(f"features must be distinct columns, got {list(features)}")
    return list(features)


def columns_in_memory(features: Any) -> dict[str, Any]:
    """Return the columns of a dict, a table or an array of features, by name."""
    return _columns(features, "features", where=position).of_name


def find_columns(source: Any, schema: FeatureSchema) -> tuple[Any, list[str]]:
    """Find the columns of a table in files or SQL that are features of a model.

    Return the source, or a copy if it can be read only once, and the names of the columns.
    """
    if is_stream(source):
        source = hold_stream(source)
    present = column_names(source) or ()
    return source, [name for name in schema.names if name in present]


def encode_given(
    schema: FeatureSchema, given: Any, shape: tuple[int, ...], name: str = "features"
) -> Floats:
    """Encode features that are given with a call, for predictions of this shape.

    Parameters
    ----------
    schema
        The features of the model. Those that are not given are missing.
    given
        A dict or a table by name, or an array with a column per feature; None for no features.
        Scalars and arrays are broadcast.
    shape
        Shape of the predictions.
    name
        Name of the parameter.

    Examples
    --------
    >>> from fastemf.features.reading import encode_given
    >>> from fastemf.features.schema import FeatureSchema
    >>> schema = FeatureSchema(("hour", "day"), ("number", "category"), ((), ("sat", "sun")))
    >>> encode_given(schema, {"hour": 20, "day": ["sun", "sat"]}, (2,)).tolist()
    [[20.0, 1.0], [20.0, 0.0]]
    """
    size = int(np.prod(shape, dtype=np.int64))
    if given is None:
        return schema.encode({}, size)
    columns = _columns(given, name, names=schema.names, where=position)
    schema.check_known(columns.of_name, name)
    found = {}
    for feature, values in columns.read().items():
        own = () if values.numbers.size == 1 else values.shape
        try:
            numbers = np.broadcast_to(values.numbers.reshape(own), shape).ravel()
        except ValueError:
            raise ValueError(
                f"feature {feature!r} must have one value per prediction, shape {shape}, got "
                f"{values.shape}"
            ) from None
        found[feature] = values._replace(numbers=numbers)
    return schema.encode(found, size)


def encode_columns(
    schema: FeatureSchema, table: Any, size: int, where: Where = table_row
) -> Floats:
    """Encode those columns of a table in memory that are features; absent ones are missing."""
    if not is_frame(table):
        table = as_read(table)
    present = list(table.columns if is_frame(table) else table.column_names)
    names = [name for name in schema.names if name in present]
    columns = Columns(dict(zip(names, select_columns(table, names), strict=True)), where)
    return schema.encode(columns.read_sized(size, "row of the table"), size)


def _columns(
    given: Any,
    name: str,
    *,
    names: Sequence[str] = (),
    where: Where | None = None,
    label_name: str | None = None,
    has_labels: bool = False,
) -> Columns:
    """Return the columns of a table, a dict or an array in memory.

    `names` are those of the columns of an array; the default is ``row_feature_0`` and so on. With
    `has_labels`, columns include the labels, by `label_name`, or by "" if they have no name.
    """
    where = where or (lambda at: f"row {at} of {name} (from 0)")
    if hasattr(given, "to_frame"):  # a Series
        given = given.to_frame()
    if isinstance(given, Mapping):
        of_name = dict(given)
    elif is_table(given):
        table = given if is_frame(given) else as_read(given)
        listed = list(table.columns if is_frame(table) else table.column_names)
        of_name = dict(zip(listed, select_columns(table, listed), strict=True))
        is_key = has_labels and is_frame(table) and label_name not in of_name
        if is_key and label_name in (None, table.index.name):
            of_name[label_name or ""] = table.index
    elif has_labels or sp.issparse(given):
        raise TypeError(
            f"{name} must be a table{' with labels' if has_labels else ', a dict or an array'}, "
            f"got {type(given).__name__}"
        )
    else:
        array = given if isinstance(given, np.ma.MaskedArray) else np.asarray(given)
        if array.ndim not in (1, 2):
            raise ValueError(f"{name} must have one or two dimensions, got shape {array.shape}")
        array = array.reshape(len(array), -1)
        p, prefix = array.shape[1], name.removesuffix("s")
        names = names or [f"{prefix}_{at}" for at in range(p)]
        if len(names) != p:
            raise ValueError(f"{name} must have {len(names)} columns as an array, got {p}")
        of_name = {one: array[:, at] for at, one in enumerate(names)}
    wrong = [one for one in of_name if not isinstance(one, str)]
    if wrong:
        raise TypeError(f"{name} must have strings as names, got {wrong[0]!r}")
    return Columns(of_name, where)


def _read_source(
    source: Any, name: str, labels: Labels | None, schema: FeatureSchema | None
) -> Columns:
    """Read all columns of a table in files, a database or SQL."""
    if is_stream(source):
        source = hold_stream(source)
    if labels is not None and labels.name is None:
        raise TypeError(f"{name} must be in memory if the labels have no column name, got a file")
    key = [] if labels is None else [labels.name]
    texts = key if labels is not None and labels.kind == "str" else []
    texts = [*texts, *(() if schema is None else schema.texts)]
    with naming(source):
        names = column_names(source)
        if names is None:
            raise TypeError(f"{name} must be a table, got a matrix in {name_of(source)}")
        features = [one for one in names if one not in key]
        found = read_file(source, key, [], texts, features=features)
    return Columns(dict(zip(names, select_columns(found.content, names), strict=True)), found.where)
