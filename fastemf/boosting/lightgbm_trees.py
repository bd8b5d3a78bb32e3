"""Reader of the trees of a LightGBM booster, as it dumps them, with numbers in full precision."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

# Objectives whose predictions are the sum of the trees.
IDENTITY = {"quantile", "regression", "regression_l1", "huber", "fair", "mape", "custom"}
TINY = float(np.float32(1e-35))


def read_trees(booster: Any, num_iteration: int | None) -> tuple[int, dict[str, list[Any]]]:
    """Return the number of features, and the arrays of all trees as in `Forest`."""
    model = booster.dump_model(num_iteration=num_iteration)
    if model["num_tree_per_iteration"] != 1 or model["average_output"]:
        raise ValueError("booster must have a single output that is a sum of trees")
    objective = model.get("objective", "custom").split()
    if objective[0] not in IDENTITY or "sqrt" in objective:
        raise ValueError(f"booster must not transform its output, got {' '.join(objective)!r}")
    arrays: dict[str, list[Any]] = defaultdict(list)
    for tree in model["tree_info"]:
        size, _ = _read(tree["tree_structure"], arrays)
        arrays["sizes"].append(size)
    return model["max_feature_idx"] + 1, arrays


def _read(node: dict[str, Any], arrays: dict[str, list[Any]]) -> tuple[int, int]:
    """Add a subtree in preorder, and return its numbers of nodes and of observations."""
    if "leaf_value" in node:
        if "leaf_const" in node:
            raise ValueError("booster must not have linear trees")
        arrays["values"].append(node["leaf_value"])
        arrays["covers"].append(node.get("leaf_count") or 1)  # of a tree of one leaf
        return 0, arrays["covers"][-1]
    threshold, words = node["threshold"], []
    if node["decision_type"] == "==":
        words, threshold = _as_bits(threshold), 0.0
    elif abs(threshold) <= TINY:  # LightGBM rounds tiny values to 0 before it compares them
        threshold = np.nextafter(-TINY, -1) if threshold < 0 else TINY
    if node["missing_type"] == "Zero":
        raise ValueError("booster must not treat zeros as missing, got zero_as_missing=True")
    # Where training data had no missing values, they are read as 0.
    left_if_missing = node["default_left"] if node["missing_type"] == "NaN" else threshold >= 0
    arrays["features"].append(node["split_feature"])
    arrays["thresholds"].append(threshold)
    arrays["missing_left"].append(left_if_missing and not words)
    arrays["set_sizes"].append(len(words))
    arrays["words"] += words
    place = len(arrays["left_sizes"])
    arrays["left_sizes"].append(0)
    left, of_left = _read(node["left_child"], arrays)
    right, of_right = _read(node["right_child"], arrays)
    arrays["left_sizes"][place] = left
    if of_left + of_right != node["internal_count"]:
        raise ValueError("booster must have as many observations in a node as in its leaves")
    return 1 + left + right, of_left + of_right


def _as_bits(categories: str) -> list[int]:
    """Return a set of categories, such as ``"3||40"``, as the bits of words."""
    bits = sum(1 << int(category) for category in categories.split("||"))
    return [bits >> first & 0xFFFFFFFF for first in range(0, bits.bit_length(), 32)]
