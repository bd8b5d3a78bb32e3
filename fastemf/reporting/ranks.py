"""Ranks: what each factor adds to the predictions."""

from __future__ import annotations

import numpy as np

from fastemf.model.factorization import Factorization
from fastemf.reporting.drawing import WIDTH, Scale, draw_line, draw_rect, draw_text, drawn
from fastemf.reporting.judgement import Judgement
from fastemf.reporting.markup import as_cards, as_figure, as_section, figure_text
from fastemf.stacking.shrunk_quantile import Floats

__all__ = ["factor_sizes", "ranks_section"]

LEFT, FIGURE_WIDTH, LINE = 30.0, 52.0, 20.0
SHOWN = 12


def factor_sizes(fit: Factorization) -> Floats:
    """Compute the root mean square, over all cells, of what each principal factor adds.

    They are the singular values of the product of the factors over the root of the number of
    cells.
    """
    rows, cols = (np.linalg.qr(side.astype(np.float64)).R for side in (fit.X, fit.Y))
    sizes = np.linalg.svd(rows @ cols.T, compute_uv=False)
    return np.asarray(sizes / np.sqrt(fit.X.shape[0] * fit.Y.shape[0]))


def ranks_section(judged: Judgement) -> str:
    """Draw what each factor of each level adds."""
    if not judged.fits[0].k:
        return as_section("Ranks", "The model has rank 0: intercepts alone, without factors.")
    names = judged.names if not judged.is_quantiles else [""]
    cards = []
    for fit, name in zip(judged.fits, names, strict=True):
        sizes = factor_sizes(fit)
        used = int(np.count_nonzero(sizes > 1e-6 * max(sizes.max(), 1e-300)))
        title = f"{used} of {fit.k} factors in use" + (f" at {name}" if name else "")
        cards.append(as_figure(title, _bars(sizes)))
    of_quantiles = " Of the fits that the quantiles are made of, this is one at ω = 0.5."
    return as_section(
        "Ranks",
        f"What each factor adds to a cell, the largest first: root mean square over all cells, in "
        f"{judged.unit}. A tuned fit has no more factors than help."
        + (of_quantiles if judged.is_quantiles else ""),
        as_cards(cards),
    )


def _bars(sizes: Floats) -> str:
    shown = sizes[:SHOWN]
    x = Scale(0.0, max(float(shown[0]), 1e-300), LEFT, WIDTH - FIGURE_WIDTH)
    height = shown.size * LINE + 4
    parts = [draw_line(LEFT, 0, LEFT, height, "axis")]
    for place, size in enumerate(shown.tolist()):
        y = 4 + place * LINE
        parts.append(draw_text(LEFT - 6, y + 11, f"{place + 1}", anchor="end"))
        parts.append(draw_rect(LEFT, y, x(size) - LEFT, LINE - 6, "fit"))
        parts.append(draw_text(x(size) + 4, y + 11, figure_text(size)))
    if shown.size < sizes.size:
        height += LINE
        parts.append(draw_text(LEFT, height - 6, f"and {sizes.size - shown.size} smaller ones"))
    return drawn(height, parts, "root mean squares of what the factors add")
