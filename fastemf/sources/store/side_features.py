"""Side features of the observations of a store: some of its further columns, in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastemf.features.reading import check_names, read_log_features
from fastemf.features.schema import check_feature_names
from fastemf.inputs.text_types import types_of_marked
from fastemf.sources.source import Source
from fastemf.sources.store.reading import Store


def with_features(store: Source, features: Any) -> Store:
    """Return a store with the features that some of its further columns hold."""
    if not isinstance(store, Store):
        raise TypeError(f"features must be those of data or of a store, got {type(store).__name__}")
    names = check_names(features)
    labels = (store.row_labels, store.col_labels)
    check_feature_names(names, (), (), [one.name for one in labels if one is not None])
    table = types_of_marked(store.read_columns(names))
    return replace(store, features=read_log_features(table, names, store.size, _place))


def _place(at: int) -> str:
    return f"observation {at} by row"
