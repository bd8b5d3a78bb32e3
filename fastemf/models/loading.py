"""`load`, which reads a model file with one fit, several levels, or quantiles."""

from __future__ import annotations

import math
import os
from typing import Any

from fastemf.boosting.objective import EXPECTILE, QUANTILE
from fastemf.models.boosted_file import unpack_boosted, unpack_coverage
from fastemf.models.boosted_levels import BoostedLevels, LevelGroup, LevelReport
from fastemf.models.factorization import Factorization
from fastemf.models.file import (
    BOOSTED_LEVELS,
    FACTORIZATION,
    LEVELS,
    StoredModel,
    damage_as_model_error,
    read_model,
)
from fastemf.models.held_out import DriftReport, unpack_report
from fastemf.models.levels import Levels
from fastemf.models.quantiles import Quantiles
from fastemf.support.array_file import check_keys, require
from fastemf.support.records import unpack_record


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model saved by `Factorization.save` or the `save` of another model.

    Nothing is unpickled, so a model file cannot run code. Keys, shapes, types and values are
    checked, and memory is bounded by the size of the file.

    Returns
    -------
    Factorization, Levels, BoostedLevels or Quantiles
        The saved model.

    Raises
    ------
    fastemf.ModelFileError
        A `ValueError`: the file is damaged, of another kind, or of a newer version.
    FileNotFoundError
        The file does not exist.
    OSError
        The file cannot be read, or is not a regular file.

    Examples
    --------
    >>> import numpy as np, fastemf, tempfile, os
    >>> fit = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), omega=0.5, k=1, reg=0)
    >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
    >>> fit.save(path)
    >>> fastemf.load(path).omega
    0.5
    """
    with damage_as_model_error(path):
        stored = read_model(path)
        if stored.kind == FACTORIZATION:
            return Factorization(**stored.fits[""])
        if stored.kind == LEVELS:
            return Levels(
                _unpack_levels(stored), unpack_report(DriftReport, stored.header, "drift")
            )
        if stored.kind == BOOSTED_LEVELS:
            fields = unpack_boosted(stored, EXPECTILE)
            return BoostedLevels(**fields, reports=_unpack_reports(stored.header, fields))
        fields = unpack_boosted(stored, QUANTILE)
        coverage = unpack_coverage(stored.header)
        return Quantiles(**fields, coverage=coverage, groups=stored.header["groups"])


def _unpack_reports(header: dict[str, Any], fields: dict[str, Any]) -> tuple[LevelReport, ...]:
    """Check one report per level."""
    records, levels = header["reports"], header["levels"]
    own = {level[0].omega for level in fields["fits"][:-1]}
    require(set(levels) <= own, "levels must be those of the fits")
    require(isinstance(records, list), "reports must be a list")
    reports = tuple(unpack_record(LevelReport, record, "reports") for record in records)
    require([one.omega for one in reports] == levels, "reports must be one per level")
    figures: list[LevelReport | LevelGroup] = [*reports, *(g for one in reports for g in one.cold)]
    numbers = [number for one in figures for number in (one.loss, one.constant)]
    numbers += [one.effective_omega for one in figures if not math.isnan(one.effective_omega)]
    require(all(map(math.isfinite, numbers)), "reports must have finite numbers")
    return reports


def _unpack_levels(stored: StoredModel) -> tuple[Factorization, ...]:
    """Check that the fits are levels of one matrix, in increasing order."""
    check_keys(stored.header.keys(), {"drift"} & stored.header.keys(), "header field")
    check_keys(stored.arrays.keys(), set(), "array")
    fits = tuple(Factorization(**fields) for fields in stored.fits.values())
    first = fits[0]
    require(len(fits) >= 2, "levels must be at least two fits")
    require(all(fit.shape == first.shape for fit in fits), "levels must be of one matrix")
    same = all(
        fit.row_labels == first.row_labels and fit.col_labels == first.col_labels for fit in fits
    )
    require(same, "levels must have the same labels")
    omegas = [fit.omega for fit in fits]
    require(omegas == sorted(set(omegas)), "levels must be increasing")
    return fits
