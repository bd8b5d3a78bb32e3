"""One experiment by name, run and written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastemf.experiments import netlatency, sensing, synthetic, wsdream
from fastemf.experiments.report import Report, check_folder
from fastemf.experiments.settings import ExperimentSettings

__all__ = ["reproduce"]


def reproduce(
    name: str,
    out: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    bins: Sequence[float] | None = None,
    size: int | None = None,
    **options: Any,
) -> tuple[Report, list[Path]]:
    """Run ``"synthetic"``, ``"wsdream"``, ``"netlatency"`` or ``"sensing"``.

    All errors in the arguments are raised before the first fit. `data` and
    `bins` are for measured data, `size` for generated ones; the rest goes to `Settings`
    (sensing: rank, repeats, progress).
    """
    if find_spec("matplotlib") is None:
        raise ModuleNotFoundError("plots need matplotlib: pip install 'fastemf[plot]'")
    sizes: dict[str, Any] = {} if size is None else {"size": size}
    edges = {} if bins is None else {"bins": bins}
    if name == "sensing":
        folder = check_folder(out)
        report = sensing.run(**sizes, **options)
    else:
        settings = ExperimentSettings(**options)
        folder = check_folder(out)
        if name == "synthetic":
            report = synthetic.run(settings, **sizes)
        elif data is None:
            raise ValueError(f"data must be a path for {name}, got None")
        else:
            module = {"wsdream": wsdream, "netlatency": netlatency}[name]
            report = module.run(settings, data, **edges)
    return report, report.write(folder)
