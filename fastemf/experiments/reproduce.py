"""Run an experiment by name, and write its files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastemf.experiments import leaderboard as published
from fastemf.experiments import measured, sensing, synthetic
from fastemf.experiments.report import Report, check_folder
from fastemf.experiments.settings import ExperimentSettings


def reproduce(
    name: str,
    out: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    bins: Sequence[float] | None = None,
    size: int | None = None,
    leaderboard: bool = False,
    places: str | os.PathLike[str] | None = None,
    **options: Any,
) -> tuple[Report, list[Path]]:
    """Run ``"synthetic"``, ``"wsdream"``, ``"netlatency"`` or ``"sensing"``.

    Arguments are checked before the first fit. `data` and `bins` apply to measured data, `size` to
    generated data. The others are those of `ExperimentSettings`, or rank, repeats and progress for
    ``"sensing"``. With `leaderboard`, ``"wsdream"`` follows the protocol of publications on quality
    of service; `places` are then the locations of users and services.
    """
    if find_spec("matplotlib") is None:
        raise ModuleNotFoundError("plots need matplotlib: pip install 'fastemf[plot]'")
    sizes: dict[str, Any] = {} if size is None else {"size": size}
    edges = {} if bins is None else {"bins": bins}
    if places is not None and not leaderboard:
        raise ValueError(f"places must be None without leaderboard, got {places}")
    if leaderboard:
        if name != "wsdream" or data is None:
            raise ValueError(
                f"leaderboard needs wsdream and a path of its data, got {name}, {data}"
            )
        folder = check_folder(out)
        kept = {key: options[key] for key in ("repeats", "rank", "progress") if key in options}
        report = published.run(data, places=places, **kept)
    elif name == "sensing":
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
            run = measured.run_wsdream if name == "wsdream" else measured.run_netlatency
            report = run(settings, data, **edges)
    return report, report.write(folder)
