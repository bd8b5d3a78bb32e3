"""What was fitted: the first facts of the page."""

from __future__ import annotations

from fastemf.model.quantiles import Quantiles
from fastemf.reporting.judgement import Judgement
from fastemf.reporting.markup import as_section, figure_text, safe

__all__ = ["about_section", "headline"]


def headline(judged: Judgement) -> str:
    """Name what is predicted, of what."""
    what = "" if judged.is_quantiles else "Expectile " if len(judged.names) == 1 else "Expectiles "
    levels = ", ".join(judged.names)
    return f"{what}{levels} of {judged.unit}, by {judged.item(0)} and {judged.item(1)}"


def about_section(judged: Judgement) -> str:
    """List the matrix, what a prediction is made of, and how the fit went."""
    facts = {"matrix": _matrix(judged), "predicts": _predicts(judged), "made of": _parts(judged)}
    if not judged.is_quantiles:
        facts["ridge"] = "; ".join(
            f"{figure_text(fit.reg)}{_at(judged, name)}"
            for fit, name in zip(judged.fits, judged.names, strict=True)
        )
        facts["fit"] = "; ".join(
            _end(fit.converged, fit.n_iter) + _at(judged, name)
            for fit, name in zip(judged.fits, judged.names, strict=True)
        )
    count = judged.cells.values.size
    facts["judged by"] = f"{count:,} observations" + (
        f"; {judged.left_out:,} of labels that the model does not have are left out"
        if judged.left_out
        else ""
    )
    listed = "".join(f"<dt>{safe(name)}</dt><dd>{safe(fact)}</dd>" for name, fact in facts.items())
    return as_section(
        "What was fitted",
        "All that follows is about the observations given. If the model was fitted to them too, "
        "it looks better here than it is: hold some out.",
        f"<dl>{listed}</dl>",
    )


def _matrix(judged: Judgement) -> str:
    sides = []
    for axis, plural in enumerate(("rows", "columns")):
        items = judged.model.axes[axis]
        name = f" ({items.name})" if items.name else ""
        unseen = f", {items.unseen.size:,} of them never observed" if items.unseen.size else ""
        sides.append(f"{items.size:,} {plural}{name}{unseen}")
    return " × ".join(sides)


def _predicts(judged: Judgement) -> str:
    what = "quantile" if judged.is_quantiles else "expectile level"
    many = "s" if len(judged.names) > 1 else ""
    mean = ", the mean" if not judged.is_quantiles and judged.levels == (0.5,) else ""
    return f"{what}{many} {', '.join(judged.names)}{mean}, in {judged.unit}"


def _parts(judged: Judgement) -> str:
    first = judged.fits[0]
    parts = ["a constant, one number per row, one per column"] if first.rows.has_intercepts else []
    if first.k:
        parts.append("the product of 1 factor" if first.k == 1 else f"{first.k} factors' products")
    if first.rows.levels is not None:
        parts.append("small tables")
    made = " + ".join(parts)
    if isinstance(judged.model, Quantiles):
        return f"{sum(map(len, judged.model.fits))} expectile fits, each {made}"
    return made


def _end(converged: bool, sweeps: int) -> str:
    if not sweeps:
        return "folded in"
    return f"{'converged after' if converged else 'did not converge in'} {sweeps} sweeps"


def _at(judged: Judgement, name: str) -> str:
    return f" at {name}" if len(judged.names) > 1 else ""
