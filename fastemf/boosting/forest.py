"""`Forest`: the trees of a boosted model as arrays, evaluated without LightGBM."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fastemf.boosting.lightgbm_trees import read_trees
from fastemf.kernels.compilation import Unit
from fastemf.kernels.threads import bind_block, count_threads, launch
from fastemf.kernels.trees import (
    CategorySets,
    ContributionArgs,
    TreeArgs,
    add_contributions,
    predict_trees,
)
from fastemf.support.array_file import check_keys, require
from fastemf.support.arrays import Array, Floats, Ints

MAX_LEAVES = 64  # bits of a mask
MAX_VALUE = 1e100  # of a leaf, so that sums are finite
CELLS_PER_BLOCK = 1 << 12
LANES = 8  # the number of quadrature points is a multiple, for whole vectors
ARRAYS = {
    "sizes": np.int32, "left_sizes": np.int32, "features": np.int32, "thresholds": np.float64,
    "missing_left": np.bool_, "set_sizes": np.int32, "words": np.uint32, "values": np.float64,
    "covers": np.int32,
}  # fmt: skip


class _Subtrees(NamedTuple):
    """The subtree of each node."""

    trees: Ints  # its tree
    sizes: Ints  # number of nodes
    leaves: Ints  # its first leaf, counted from the first leaf of the tree
    edges: Ints  # the edge to it, as in `ContributionArgs`


@dataclass(frozen=True, eq=False)
class Forest:
    """A sum of decision trees, which is 0 without trees.

    The nodes of a tree are in preorder: a node, its left subtree, its right subtree. Leaves are
    ordered from left to right. Any sizes of left subtrees that fit define a tree.

    Parameters
    ----------
    n_features
        Number of features.
    sizes
        By tree: number of nodes, which is one less than the number of leaves.
    left_sizes
        By node: number of nodes of the left subtree.
    features
        By node: the feature that it tests.
    thresholds
        By node: values up to the threshold go left.
    missing_left
        By node: whether missing values go left.
    set_sizes
        By node: number of words of its set of categories, which go left; 0 in numerical nodes.
    words
        Sets of categories as bits.
    values
        By leaf: its term of the sum.
    covers
        By leaf: number of observations in training.
    """

    n_features: int
    sizes: Array
    left_sizes: Array
    features: Array
    thresholds: Floats
    missing_left: Array
    set_sizes: Array
    words: Array
    values: Floats
    covers: Array

    @classmethod
    def from_lightgbm(cls, booster: Any, num_iteration: int | None = None) -> Forest:
        """Copy the trees of a LightGBM booster; by default up to its best iteration.

        Raises
        ------
        ValueError
            If the booster has several outputs, a transformed output, linear trees, a tree with more
            than 64 leaves, or zeros that are missing values.
        """
        n_features, found = read_trees(booster, num_iteration)
        arrays: dict[str, Array] = {
            name: np.array(found[name], dtype) for name, dtype in ARRAYS.items()
        }
        return cls.unpack(arrays, n_features)

    @classmethod
    def unpack(cls, arrays: Mapping[str, Array], n_features: int) -> Forest:
        """Create a forest from the arrays of `pack`, or raise `DamagedFileError`."""
        check_keys(arrays, set(ARRAYS), "array of trees")
        for name, dtype in ARRAYS.items():
            is_vector = arrays[name].dtype == dtype and arrays[name].ndim == 1
            require(is_vector, f"{name} of trees must be a vector of {np.dtype(dtype)}")
        forest = cls(n_features, **{name: np.ascontiguousarray(arrays[name]) for name in ARRAYS})
        forest._check()
        return forest

    @classmethod
    def without_trees(cls, n_features: int) -> Forest:
        """Return a forest without trees, which predicts 0."""
        return cls(n_features, **{name: np.empty(0, dtype) for name, dtype in ARRAYS.items()})

    def scaled(self, factor: float) -> Forest:
        """Return the forest with its predictions multiplied by a factor."""
        return replace(self, values=self.values * factor)

    def pack(self) -> dict[str, Array]:
        """Return the arrays of the forest, for a file."""
        return {name: getattr(self, name) for name in ARRAYS}

    def _check(self) -> None:
        """Raise `DamagedFileError` unless the arrays define trees with finite sums."""
        sizes, features = self.sizes, self.features

        def all_of(condition: Array, rule: str) -> None:
            require(bool(np.all(condition)), rule)

        all_of((sizes >= 0) & (sizes < MAX_LEAVES), f"trees must have 1 to {MAX_LEAVES} leaves")
        n_nodes = int(sizes.sum(dtype=np.int64))
        by_node = (self.left_sizes, features, self.thresholds, self.missing_left, self.set_sizes)
        require(all(part.size == n_nodes for part in by_node), "nodes of trees are missing")
        n_leaves = n_nodes + sizes.size
        require(self.values.size == self.covers.size == n_leaves, "leaves of trees are missing")
        is_known = (features >= 0) & (features < self.n_features)
        all_of(is_known, f"trees must use {self.n_features} features")
        all_of(~np.isnan(self.thresholds), "thresholds of trees must be numbers")
        all_of(self.set_sizes >= 0, "sets of categories are damaged")
        n_words = int(self.set_sizes.sum(dtype=np.int64))
        require(n_words == self.words.size, "sets of categories are damaged")
        all_of(np.abs(self.values) <= MAX_VALUE, f"leaves must have values up to {MAX_VALUE:g}")
        all_of(self.covers > 0, "leaves must have positive covers")
        _ = self._subtrees

    def contributions(self, features: Floats) -> Floats:
        """Split predictions into Shapley values of the features and, last, the mean prediction.

        The features of cells are a (cells, n_features) array; NaN is missing.
        """
        features = _as_features(features, self.n_features)
        out = np.zeros(features.shape)
        _launch(add_contributions, self._contribution_args._replace(features=features, out=out))
        trees = np.repeat(np.arange(self.sizes.size), self.sizes + 1)
        proportions = self.covers / np.bincount(trees, self.covers)[trees]
        return np.column_stack([out, np.full(len(features), np.sum(proportions * self.values))])

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields, without cached objects, for a copy or a pickle."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _subtrees(self) -> _Subtrees:
        """Find the subtrees of all trees together: of their roots, of their second nodes, ...."""
        firsts = np.cumsum(self.sizes) - self.sizes
        trees = np.repeat(np.arange(self.sizes.size), self.sizes)
        sizes, leaves, edges = np.zeros((3, trees.size), np.int64)
        sizes[firsts[self.sizes > 0]] = self.sizes[self.sizes > 0]
        for k in range(self.sizes.max(initial=0)):
            at = firsts[self.sizes > k] + k
            left = self.left_sizes[at].astype(np.int64)
            right = sizes[at] - 1 - left
            require(bool(np.all((left >= 0) & (right >= 0))), "nodes of trees are damaged")
            for side, child, size, leaf in (
                (0, at + 1, left, leaves[at]),
                (1, at + 1 + left, right, leaves[at] + left + 1),
            ):
                child, size, leaf = (part[size > 0] for part in (child, size, leaf))
                sizes[child], leaves[child], edges[child] = size, leaf, 2 * k + 1 + side
        return _Subtrees(trees, sizes, leaves, edges)

    @property
    def _columns(self) -> Array:
        """The column of each node, as in `TreeArgs`; of categorical nodes the feature."""
        is_copy = self.missing_left & (self.set_sizes == 0)
        return self.features + np.where(is_copy, self.n_features, 0).astype(np.int32)

    @property
    def _sets(self) -> CategorySets:
        sizes = self.set_sizes.astype(np.int64)
        return CategorySets(np.cumsum(sizes) - sizes, sizes, np.append(self.words, np.uint32(0)))

    @cached_property
    def _contribution_args(self) -> ContributionArgs:
        trees, sizes, begins, edges = self._subtrees
        firsts = np.append(0, np.cumsum(self.sizes, dtype=np.int64))
        # Leaves bounds[0] … bounds[1] − 1 are on the left of a node, those up to bounds[2] right.
        bounds = np.stack([begins, begins + self.left_sizes + 1, begins + sizes + 1])
        bounds += firsts[trees] + trees
        covers = np.diff(np.append(0, np.cumsum(self.covers, dtype=np.int64))[bounds], axis=0)
        values = np.where(np.diff(bounds, axis=0) == 1, self.values[bounds[1:] - 1], 1.0)
        earlier, passes = edges.copy(), edges > 0
        while passes.any():  # go up to the next edge
            above = firsts[trees] + np.maximum(earlier - 1, 0) // 2
            passes = (earlier > 0) & (self.features[above] != self.features)
            earlier[passes] = edges[above[passes]]
        # Exact for 2 · n_points factors; a path has at most as many as the tree has nodes.
        n_points = -(-self.sizes.max(initial=1) // (2 * LANES)) * LANES
        points, weights = np.polynomial.legendre.leggauss(n_points)
        none = np.empty((0, self.n_features))
        return ContributionArgs(
            none, firsts, self._columns, self.thresholds, self._sets, edges, earlier,
            np.ascontiguousarray((covers / covers.sum(axis=0)).T), np.ascontiguousarray(values.T),
            (points + 1) / 2, weights / 2, none,
        )  # fmt: skip


class ForestPredictor:
    """Predicts with several forests that have the same features."""

    def __init__(self, forests: Sequence[Forest]) -> None:
        self._n_features = n = forests[0].n_features
        if any(forest.n_features != n for forest in forests):
            raise ValueError("forests must have the same number of features")
        joint = Forest(n, **{name: _join(forests, name) for name in ARRAYS})
        trees, _, begins, _ = joint._subtrees
        bounds = np.append(0, np.cumsum([forest.sizes.size for forest in forests]))
        owners = np.searchsorted(bounds, trees, side="right") - 1
        # A column number in each forest, and one for its categorical nodes.
        numbers = np.where(joint.set_sizes > 0, 2 * n, joint._columns) + owners * (2 * n + 1)
        order = np.lexsort((joint.thresholds, numbers))
        every = np.arange(len(forests))[:, None] * (2 * n + 1) + np.arange(2 * n + 2)
        on_left = (np.int64(1) << (joint.left_sizes + np.int64(1))) - 1
        sets, none = joint._sets, np.empty((0, n))
        self._args = TreeArgs(
            features=none,
            bounds=bounds,
            starts=np.searchsorted(numbers[order], every),
            trees=(trees - bounds[owners])[order],
            columns=joint._columns[order],
            thresholds=joint.thresholds[order],
            masks=~(on_left << begins)[order],
            sets=CategorySets(sets.firsts[order], sets.sizes[order], sets.words),
            leaves=np.cumsum(joint.sizes + np.int64(1)) - joint.sizes - 1,
            values=joint.values,
            out=none,
        )

    def predict(self, features: Floats) -> Floats:
        """Predict cells from their features, as a (cells, forests) array; NaN is missing."""
        features = _as_features(features, self._n_features)
        out = np.empty((features.shape[0], self._args.bounds.size - 1))
        _launch(predict_trees, self._args._replace(features=features, out=out))
        return out

    def predict_cell(self, features: Floats) -> Floats:
        """Predict a single cell with every forest, bitwise as `predict`."""
        return self._single.predict(features)

    @cached_property
    def _single(self) -> _SingleCell:
        return _SingleCell(self._args)


class _SingleCell(threading.local):
    """A prepared kernel call for one cell, with arrays for each thread."""

    def __init__(self, args: TreeArgs) -> None:
        self._features = np.empty((1, args.features.shape[1]))
        self._out = np.empty((1, args.bounds.size - 1))
        args = args._replace(features=self._features, out=self._out)
        self._call = bind_block(predict_trees, 0, 1, args)

    def predict(self, features: Floats) -> Floats:
        self._features[0] = features
        self._call()
        return self._out.reshape(-1).copy()


def _join(forests: Sequence[Forest], name: str) -> Array:
    return np.concatenate([getattr(forest, name) for forest in forests])


def _as_features(features: Floats, n_features: int) -> Floats:
    """Return features as the kernels read them."""
    features = np.ascontiguousarray(features, np.float64)
    if features.ndim != 2 or features.shape[1] != n_features:
        raise ValueError(f"features must have shape (cells, {n_features}), got {features.shape}")
    return features


def _launch(unit: Unit, args: TreeArgs | ContributionArgs) -> None:
    """Run a kernel over all cells, in parallel if there are many."""
    size = args.features.shape[0]
    blocks = np.append(np.arange(0, size, CELLS_PER_BLOCK), size)
    launch(unit, count_threads(-1), blocks, args)
