"""Reader of LightGBM's text format, which has all numbers in full precision."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from fastemf.support.arrays import Array, Ints

# Objectives whose predictions are the sum of the trees.
IDENTITY = {"quantile", "regression", "regression_l1", "huber", "fair", "mape", "custom"}
IS_CATEGORICAL, DEFAULT_LEFT, ZERO_IS_MISSING, NAN_IS_MISSING = 1, 2, 4, 8  # decision_type
TINY = float(np.float32(1e-35))


def read_trees(text: str) -> tuple[int, list[dict[str, Array]]]:
    """Return the number of features, and the arrays of each tree as in `Forest`."""
    head, *trees = re.split(r"^Tree=\d+\n", text.partition("\nend of trees")[0], flags=re.M)
    settings = _read_fields(head)
    if settings["num_tree_per_iteration"] != "1" or "average_output" in settings:
        raise ValueError("booster must have a single output that is a sum of trees")
    objective = settings.get("objective", "custom").split()
    if objective[0] not in IDENTITY or "sqrt" in objective:
        raise ValueError(f"booster must not transform its output, got {' '.join(objective)!r}")
    n_features = int(settings["max_feature_idx"]) + 1
    return n_features, [_read_tree(_read_fields(tree)) for tree in trees]


def _read_fields(text: str) -> dict[str, str]:
    """Read lines of the form ``name=value``."""
    return {line.partition("=")[0]: line.partition("=")[2] for line in text.splitlines()}


def _read_tree(fields: dict[str, str]) -> dict[str, Array]:
    """Return the arrays of a tree, with nodes in preorder and leaves from left to right."""

    def read(name: str, dtype: Any = np.int64) -> Array:
        return np.array(fields.get(name, "").split(), dtype)

    if fields["is_linear"] != "0":
        raise ValueError("booster must not have linear trees")
    kinds, thresholds = read("decision_type"), read("threshold", np.float64)
    if np.any(kinds & ZERO_IS_MISSING):
        raise ValueError("booster must not treat zeros as missing, got zero_as_missing=True")
    values, covers = read("leaf_value", np.float64), read("leaf_count")
    if values.size == 1:
        covers = np.ones(1, np.int64)  # LightGBM does not always write it; it has no effect
    nodes, leaves, left_sizes, counts = _sort(read("left_child"), read("right_child"), covers)
    if np.any(counts != read("internal_count")):
        raise ValueError("booster must have as many observations in a node as in its leaves")
    is_set = (kinds & IS_CATEGORICAL != 0)[nodes]
    bounds, words = read("cat_boundaries"), read("cat_threshold", np.uint32)
    numbers = thresholds[nodes[is_set]].astype(np.int64)
    sets = [words[bounds[number] : bounds[number + 1]] for number in numbers]
    set_sizes = np.zeros(nodes.size, np.int64)
    set_sizes[is_set] = [part.size for part in sets]
    # Where training data had no missing values, they are read as 0.
    missing_left = np.where(kinds & NAN_IS_MISSING, kinds & DEFAULT_LEFT, thresholds >= 0) != 0
    # LightGBM rounds tiny values to 0 before it compares them.
    rounded = np.where(thresholds < 0, np.nextafter(-TINY, -1), TINY)
    thresholds = np.where(np.abs(thresholds) <= TINY, rounded, thresholds)
    return {
        "sizes": np.array([nodes.size]),
        "left_sizes": left_sizes,
        "features": read("split_feature")[nodes],
        "thresholds": np.where(is_set, 0.0, thresholds[nodes]),
        "missing_left": missing_left[nodes] & ~is_set,
        "set_sizes": set_sizes,
        "words": np.concatenate([words[:0], *sets]),
        "values": values[leaves],
        "covers": covers[leaves],
    }


def _sort(left: Ints, right: Ints, covers: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return nodes in preorder, leaves, sizes of left subtrees, and counts of the given nodes."""
    nodes: list[int] = []
    leaves: list[int] = []
    stack = [0 if left.size else -1]
    while stack:
        at = stack.pop()
        if at < 0:
            leaves.append(~at)
        else:
            nodes.append(at)
            stack += [int(right[at]), int(left[at])]
    # Leaf i is child ~i: it is item i from the end.
    sizes = np.zeros(left.size + covers.size, np.int64)
    counts = np.concatenate([sizes[: left.size], covers[::-1]])
    for at in reversed(nodes):
        sizes[at] = 1 + sizes[left[at]] + sizes[right[at]]
        counts[at] = counts[left[at]] + counts[right[at]]
    order = np.array(nodes, np.int64)
    return order, np.array(leaves, np.int64), sizes[left[order]], counts[: left.size]
