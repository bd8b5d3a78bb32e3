"""`FeatureSchema`: names and kinds of side features, and how their values become numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fastemf.features.values import CATEGORY, KINDS, NUMBER, Values
from fastemf.inputs.label_arrays import decode_strings, encode_strings
from fastemf.support.array_file import check_keys, require
from fastemf.support.arrays import Array, Floats, Ints, Mask
from fastemf.support.terminal import escape_control

MOST_FEATURES = 1_000  # of rows, of columns or of observations
MOST_CATEGORIES = 65_535  # of one feature
TEXT = {"text", "offsets"}  # arrays of a schema


@dataclass(frozen=True)
class FeatureSchema:
    """Names and kinds of features, in order.

    Parameters
    ----------
    names
        Distinct names.
    kinds
        A key of `fastemf.features.values.KINDS` for each feature.
    categories
        The sorted categories of each feature; empty for other kinds.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    categories: tuple[tuple[str, ...], ...]

    @classmethod
    def fit(cls, columns: Mapping[str, Values]) -> FeatureSchema:
        """Return the schema of columns; a column without values is a number."""
        if len(columns) > MOST_FEATURES:
            raise ValueError(f"features must be at most {MOST_FEATURES:,}, got {len(columns):,}")
        kinds = tuple(values.kind or NUMBER for values in columns.values())
        categories = tuple(_used_categories(*column) for column in columns.items())
        return cls(tuple(columns), kinds, categories)

    @property
    def categorical(self) -> list[int]:
        """Indices of the features that are categories."""
        return [at for at, kind in enumerate(self.kinds) if kind == CATEGORY]

    @property
    def texts(self) -> list[str]:
        """Names of these features, which are text whatever their content looks like."""
        return [self.names[at] for at in self.categorical]

    def check_known(self, names: Iterable[str], what: str = "features") -> None:
        """Raise an error for a name that is not in the schema; `what` is the parameter's name."""
        for name in names:
            if name not in self.names:
                known = ", ".join(map(escape_control, self.names)) or "none"
                raise ValueError(f"{what} must be those of the model ({known}), got {name!r}")

    def encode(self, columns: Mapping[str, Values], size: int) -> Floats:
        """Return a (size, p) array: numbers, seconds, and category codes from 0.

        NaN stands for missing values, unknown categories and features that are not in `columns`.

        Examples
        --------
        >>> from fastemf.features.schema import FeatureSchema
        >>> from fastemf.features.values import read_values
        >>> schema = FeatureSchema.fit({"region": read_values(["us", "eu"], "region")})
        >>> schema.encode({"region": read_values(["eu", "us", "mars"], "region")}, 3).ravel()
        array([ 0.,  1., nan])
        """
        encoded = np.full((size, len(self.names)), np.nan)
        for at, (name, kind) in enumerate(zip(self.names, self.kinds, strict=True)):
            values = columns.get(name)
            if values is None or values.kind is None:
                continue
            if values.kind != kind:
                raise TypeError(
                    f"feature {name!r} must hold {KINDS[kind]}, as in the fit, got "
                    f"{KINDS[values.kind]}"
                )
            numbers = values.numbers
            if kind == CATEGORY:
                code_of = {text: code for code, text in enumerate(self.categories[at])}
                codes = [code_of.get(text, np.nan) for text in values.categories]
                missing = np.isnan(numbers)
                numbers = np.array(codes, np.float64)[
                    np.where(missing, 0, numbers).astype(np.int64)
                ]
                numbers[missing] = np.nan
            encoded[:, at] = numbers
        return encoded

    def pack(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return content for the header of a file, and arrays."""
        texts = [*self.names, *(text for one in self.categories for text in one)]
        header = {"kinds": list(self.kinds), "categories": list(map(len, self.categories))}
        return header, dict(zip(("text", "offsets"), encode_strings(texts), strict=True))

    @classmethod
    def unpack(cls, header: Any, arrays: Mapping[str, Array]) -> FeatureSchema:
        """Rebuild a schema from `pack`; raise DamagedFileError for other content."""
        require(isinstance(header, dict), "features must have kinds and categories")
        check_keys(header, {"kinds", "categories"}, "field of features")
        check_keys(arrays, TEXT, "array of features")
        kinds, counts = header["kinds"], header["categories"]
        right = isinstance(kinds, list) and len(kinds) <= MOST_FEATURES
        right = right and all(isinstance(kind, str) and kind in KINDS for kind in kinds)
        require(right, f"features must be up to {MOST_FEATURES} of the kinds {', '.join(KINDS)}")
        right = isinstance(counts, list) and len(counts) == len(kinds)
        right = right and all(
            type(count) is int and 0 <= count <= MOST_CATEGORIES * (kind == CATEGORY)
            for count, kind in zip(counts, kinds, strict=True)
        )
        require(right, "features must have a valid number of categories each")
        right = arrays["offsets"].dtype == np.int64 and arrays["offsets"].ndim == 1
        require(right, "offsets of names must be int64")
        try:
            texts = decode_strings(arrays["text"], arrays["offsets"])
        except ValueError as error:
            require(False, f"names of features: {error}")
        require(len(texts) == len(kinds) + sum(counts), "features must have a name each")
        ends = np.cumsum([len(kinds), *counts]).tolist()
        names = texts[: len(kinds)]
        categories = [texts[a:b] for a, b in pairwise(ends)]
        distinct = [names, *categories]
        require(all(len(set(one)) == len(one) for one in distinct), "features must be distinct")
        require(all(one == sorted(one) for one in categories), "categories must be sorted")
        return cls(tuple(names), tuple(kinds), tuple(map(tuple, categories)))


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Encoded features of rows, of columns or of observations: `values` is an (n, p) array."""

    schema: FeatureSchema
    values: Floats

    @classmethod
    def fit(cls, columns: Mapping[str, Values], size: int) -> FeatureTable:
        """Fit a schema and encode the columns with it."""
        schema = FeatureSchema.fit(columns)
        return cls(schema, schema.encode(columns, size))

    def select(self, kept: Mask | Ints) -> FeatureTable:
        """Return the lines that a mask or positions select."""
        return FeatureTable(self.schema, self.values[kept])

    def recode(self, schema: FeatureSchema) -> Floats:
        """Encode the features by another schema, which must have all of their names.

        Examples
        --------
        >>> from fastemf.features.schema import FeatureTable
        >>> from fastemf.features.values import read_values
        >>> one, other = (
        ...     FeatureTable.fit({"day": read_values(days, "day")}, 2)
        ...     for days in (["sat", "sun"], ["sun", "mon"]))
        >>> other.recode(one.schema).ravel()
        array([ 1., nan])
        """
        own = self.schema
        schema.check_known(own.names)
        columns = {}
        for at, (name, kind) in enumerate(zip(own.names, own.kinds, strict=True)):
            numbers = self.values[:, at]
            missing = bool(np.isnan(numbers).all())
            columns[name] = Values(
                None if missing else kind, numbers, list(own.categories[at]), numbers.shape
            )
        return schema.encode(columns, len(self.values))

    def at(self, positions: Ints, given: Floats | None = None) -> Floats:
        """Return the features at positions; -1 means missing. Values of `given` replace them.

        Examples
        --------
        >>> import numpy as np
        >>> from fastemf.features.schema import FeatureTable
        >>> from fastemf.features.values import read_values
        >>> table = FeatureTable.fit({"age": read_values([30, 40], "age")}, 2)
        >>> table.at(np.array([1, -1])).ravel()
        array([40., nan])
        >>> table.at(np.array([1, -1]), np.array([[np.nan], [50.0]])).ravel()
        array([40., 50.])
        """
        padded = np.concatenate([self.values, np.full((1, self.values.shape[1]), np.nan)])
        found = padded[positions.ravel()]
        return found if given is None else np.where(np.isnan(given), found, given)

    def pack(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return content for the header of a file, and arrays."""
        header, arrays = self.schema.pack()
        return header, {**arrays, "values": self.values}

    @classmethod
    def unpack(cls, header: Any, arrays: Mapping[str, Array], size: int) -> FeatureTable:
        """Rebuild the features of `size` items; raise DamagedFileError for other content."""
        check_keys(arrays, TEXT | {"values"}, "array of features")
        schema = FeatureSchema.unpack(header, {name: arrays[name] for name in TEXT})
        values = arrays["values"]
        right = values.dtype == np.float64 and values.shape == (size, len(schema.names))
        require(right and not np.isinf(values).any(), "features must be finite or missing numbers")
        for at in schema.categorical:
            codes = values[:, at][~np.isnan(values[:, at])]
            right = bool(((codes >= 0) & (codes < len(schema.categories[at]))).all())
            require(right and bool((codes == np.floor(codes)).all()), "codes must be of categories")
        return cls(schema, values)


class SideFeatures(NamedTuple):
    """Encoded side features of cells, or None for those that the model has or lacks."""

    rows: Floats | None = None
    cols: Floats | None = None
    observed: Floats | None = None


NOT_GIVEN = SideFeatures()


def _used_categories(name: str, values: Values) -> tuple[str, ...]:
    """Return the categories that occur, sorted."""
    if values.kind != CATEGORY:
        return ()
    codes = np.unique(values.numbers[~np.isnan(values.numbers)]).astype(np.int64)
    if codes.size > MOST_CATEGORIES:
        raise ValueError(
            f"feature {name!r} must have at most {MOST_CATEGORIES:,} categories, got "
            f"{codes.size:,}; leave it out, or group them"
        )
    used = sorted(values.categories[code] for code in codes)
    try:
        "".join(used).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"feature {name!r} must be Unicode text: {error}") from None
    return tuple(used)


def check_feature_names(
    features: Sequence[str], row_features: Sequence[str], col_features: Sequence[str], taken: Any
) -> None:
    """Raise an error for a name that two features share, or that is `taken` by another column."""
    columns = [one for name in taken for one in (name if isinstance(name, tuple) else (name,))]
    source_of = dict.fromkeys(filter(None, columns), "rows, cols or values")
    parts = {"features": features, "row_features": row_features, "col_features": col_features}
    for part, names in parts.items():
        for name in names:
            if name in source_of:
                raise ValueError(
                    f"{part} must have names of their own, got {name!r}, which is in "
                    f"{source_of[name]} too"
                )
            source_of[name] = part
