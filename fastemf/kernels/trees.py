"""Sums of decision trees: predictions, and the Shapley values of their features.

A value x of a feature goes left in a numerical node if x ≤ threshold, and in a categorical node if
its integer part is in the node's set. Missing values (NaN) go right, unless the node reads the
copy of the feature in which −∞ replaces them. Copies are the columns behind the features.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastemf.kernels.compilation import helper, unit
from fastemf.kernels.simd import lowest

TREE_BLOCK = 64  # cells that pass through the trees together
NO_CATEGORY = 1 << 40  # more than the bits of any set


class CategorySets(NamedTuple):
    """Sets of categories, one per node, as bits; those of numerical nodes are empty."""

    firsts: NDArray[np.int64]  # set i is words[firsts[i]] … words[firsts[i] + sizes[i] − 1]
    sizes: NDArray[np.int64]
    words: NDArray[np.uint32]  # the last one is 0


@helper(exact=True)
def _contains(words, first, size, category):
    """Return 1 if a set of categories contains a category, else 0; without branches."""
    at = category >> 5
    at = first + at if at < size else words.size - 1
    return (np.int64(words[at]) >> (category & 31)) & 1


@helper(exact=True)
def _copy_features(features, cell, x, categories, c):
    """Write column c of `x` and `categories` from the features of a cell."""
    n = features.shape[1]
    for f in range(n):
        value = features[cell, f]
        x[f, c] = value
        x[n + f, c] = -np.inf if np.isnan(value) else value
        categories[f, c] = int(value) if -1.0 < value < NO_CATEGORY else NO_CATEGORY


class TreeArgs(NamedTuple):
    """Several forests, the features of cells, and the array for their predictions.

    The nodes of a forest are sorted by column and threshold, and its categorical nodes are last.
    Every node has a mask without the bits of the leaves that are to the left of it. A tree's mask
    is the conjunction of the masks of all nodes whose test fails, and its lowest bit is the leaf
    that the cell reaches: this needs no unpredictable branches (QuickScorer, Lucchese et al. 2015).
    """

    features: NDArray[np.float64]  # (cells, features)
    bounds: NDArray[np.int64]  # trees of forest k: bounds[k] … bounds[k + 1] − 1
    starts: NDArray[np.int64]  # (forests, 2 · features + 2): where the nodes of each column start
    trees: NDArray[np.int64]  # by node, counted from the first tree of the forest
    columns: NDArray[np.int32]
    thresholds: NDArray[np.float64]
    masks: NDArray[np.int64]
    sets: CategorySets
    leaves: NDArray[np.int64]  # the first leaf of each tree
    values: NDArray[np.float64]  # of leaves
    out: NDArray[np.float64]  # (cells, forests)


@helper(exact=True)
def _find_leaves(args, k, x, categories, masks, size):
    """Compute the masks of the trees of forest k for some cells."""
    starts, trees, columns = args.starts, args.trees, args.columns
    thresholds, node_masks = args.thresholds, args.masks
    firsts, lengths, words = args.sets.firsts, args.sets.sizes, args.sets.words
    for t in range(args.bounds[k + 1] - args.bounds[k]):
        for c in range(size):
            masks[t, c] = -1
    n_columns = starts.shape[1] - 2
    for j in range(n_columns):
        i, last = starts[k, j], starts[k, j + 1]
        if size == 1:
            while i < last and not x[j, 0] <= thresholds[i]:
                masks[trees[i], 0] &= node_masks[i]
                i += 1
            continue
        for i in range(starts[k, j], last):
            t, threshold, mask = trees[i], thresholds[i], node_masks[i]
            for c in range(size):
                masks[t, c] &= -1 if x[j, c] <= threshold else mask
    for i in range(starts[k, n_columns], starts[k, n_columns + 1]):
        t, f, mask, first, length = trees[i], columns[i], node_masks[i], firsts[i], lengths[i]
        for c in range(size):
            masks[t, c] &= mask | -_contains(words, first, length, categories[f, c])


@helper(exact=True)
def _sum_leaves(args, k, masks, start, size):
    """Add the leaves that some cells reach, in the order of the trees."""
    leaves, values, out = args.leaves, args.values, args.out
    first, last = args.bounds[k], args.bounds[k + 1]
    for c in range(size):
        total = 0.0
        for t in range(first, last):
            total += values[leaves[t] + lowest(int(masks[t - first, c]))]
        out[start + c, k] = total


@unit(allocates=True)
def predict_trees(first, last, args):
    """Predict cells first … last − 1 with every forest."""
    features, bounds = args.features, args.bounds
    width, most = min(TREE_BLOCK, last - first), 0
    for k in range(bounds.size - 1):
        most = max(most, bounds[k + 1] - bounds[k])
    n = features.shape[1]
    x, categories = np.empty((2 * n, width)), np.empty((n, width), np.int64)
    masks = np.empty((most, width), np.int64)
    for start in range(first, last, width):
        size = min(width, last - start)
        for c in range(size):
            _copy_features(features, start + c, x, categories, c)
        for k in range(bounds.size - 1):
            _find_leaves(args, k, x, categories, masks, size)
            _sum_leaves(args, k, masks, start, size)


class ContributionArgs(NamedTuple):
    """A forest, the features of cells, and the array for the contributions.

    Within a tree, edge 0 leads to the root, and edges 2k + 1 and 2k + 2 lead from node k to its
    children. `earlier` is the last edge on the path to a node that tests the same feature, or 0.

    The scratch arrays are by edge: `follows` is 1 if the cell takes all edges of the feature on the
    path, else 0, and `fraction` is the product of the proportions of these edges. By edge and point
    of the quadrature: the reciprocal of the factor of the feature, `slope` =
    (follows − fraction) / factor, and the product of all factors on the path, which the way back
    replaces with its sum over the leaves below, times their values.
    """

    features: NDArray[np.float64]  # (cells, features)
    firsts: NDArray[np.int64]  # the first node of each tree, and their number
    columns: NDArray[np.int32]  # by node
    thresholds: NDArray[np.float64]
    sets: CategorySets
    edges: NDArray[np.int64]  # the edge to a node
    earlier: NDArray[np.int64]
    fractions: NDArray[np.float64]  # (nodes, 2): proportion of a node's observations
    leaves: NDArray[np.float64]  # (nodes, 2): value of a leaf at the end of the edge, or 1
    points: NDArray[np.float64]  # Gauss–Legendre quadrature on [0, 1]
    weights: NDArray[np.float64]
    out: NDArray[np.float64]  # (cells, features): contributions are added to it


@helper(exact=True)
def _descend(args, first, last, x, categories, scratch):
    """Compute the quantities of all edges of a tree, from the root down."""
    points, columns, thresholds = args.points, args.columns, args.thresholds
    edges, earlier = args.edges, args.earlier
    firsts, lengths, words = args.sets.firsts, args.sets.sizes, args.sets.words
    follows, fraction, inverse, slope, product = scratch
    for i in range(first, last):
        j, up, old = columns[i], edges[i], earlier[i]
        if lengths[i] > 0:
            goes_left = _contains(words, firsts[i], lengths[i], categories[j, 0]) == 1
        else:
            goes_left = x[j, 0] <= thresholds[i]
        for side in range(2):
            e = 2 * (i - first) + 1 + side
            one = follows[old] if goes_left == (side == 0) else 0.0
            zero, leaf = fraction[old] * args.fractions[i, side], args.leaves[i, side]
            follows[e], fraction[e] = one, zero
            for p in range(points.size):
                factor = points[p] * one + (1.0 - points[p]) * zero
                inverse[e, p] = 1.0 / factor
                slope[e, p] = (one - zero) * inverse[e, p]
                product[e, p] = product[up, p] * (factor * inverse[old, p]) * leaf


@helper(exact=True)
def _ascend(args, first, last, scratch, cell):
    """Add the contributions of a tree to one cell, from the leaves up."""
    columns, edges, earlier, out = args.columns, args.edges, args.earlier, args.out
    n, n_points = args.features.shape[1], args.points.size
    _, _, _, slope, product = scratch
    for i in range(last - 1, first - 1, -1):
        left, up, old = 2 * (i - first) + 1, edges[i], earlier[i]
        total = 0.0
        for p in range(n_points):
            total += product[left, p] * (slope[left, p] - slope[old, p])
            total += product[left + 1, p] * (slope[left + 1, p] - slope[old, p])
            product[up, p] = product[left, p] + product[left + 1, p]
        out[cell, columns[i] % n] += total


@unit(allocates=True)
def add_contributions(first, last, args):
    """Add the contributions of a forest to cells first … last − 1.

    They are the Shapley values of the game in which a feature outside the coalition is averaged
    over the observations of each node (path-dependent TreeSHAP). In a leaf, the weights of the
    coalitions are integrals over [0, 1] of a product with one factor per feature on the path,
    ``t · follows + (1 − t) · fraction`` at the point t. Quadrature makes these integrals exact.
    """
    features, firsts, weights = args.features, args.firsts, args.weights
    n_points, n_edges = weights.size, 1
    for t in range(firsts.size - 1):
        n_edges = max(n_edges, 1 + 2 * (firsts[t + 1] - firsts[t]))
    n = features.shape[1]
    x, categories = np.empty((2 * n, 1)), np.empty((n, 1), np.int64)
    follows, fraction = np.ones(n_edges), np.ones(n_edges)
    inverse, slope = np.ones((n_edges, n_points)), np.zeros((n_edges, n_points))
    product = np.empty((n_edges, n_points))
    scratch = (follows, fraction, inverse, slope, product)
    for cell in range(first, last):
        _copy_features(features, cell, x, categories, 0)
        for t in range(firsts.size - 1):
            for p in range(n_points):
                product[0, p] = weights[p]
            _descend(args, firsts[t], firsts[t + 1], x, categories, scratch)
            _ascend(args, firsts[t], firsts[t + 1], scratch, cell)
