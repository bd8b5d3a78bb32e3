"""The demo and info commands, and the public names."""

from __future__ import annotations

import pytest

import fastemf
from fastemf.cli import main
from fastemf.commands.info import describe


def test_demo_prints_a_table(capsys):
    assert main(["demo", "--size", "24", "--rank", "2", "--density", "0.5"]) == 0
    out, err = capsys.readouterr()
    rows = [line.split() for line in out.splitlines() if line.strip()[:2] == "0."]
    assert [row[0] for row in rows] == ["0.10", "0.50", "0.90"]
    levels = [float(row[4]) for row in rows]
    assert levels == sorted(levels)
    assert "effective omega" in out
    assert err == ""


def test_public_names_are_there_and_documented():
    assert set(dir(fastemf)) - set(fastemf.__all__) == {
        "ExpectileFactorization", "ExpectilePairRegressor", "QuantilePairRegressor",
    }  # fmt: skip
    # A star import must not need scikit-learn.
    assert all(getattr(fastemf, name).__doc__ for name in fastemf.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fastemf.nothing


@pytest.mark.parametrize("has_validation", [False, True])
def test_info_prints_the_objective_of_the_factors(has_validation):
    R = fastemf.datasets.make_skewed(14, 11, rank=2, density=0.8, random_state=0).R.tocsr()
    options = {"validation": fastemf.Validation(R[::-1], patience=100)} if has_validation else {}
    options |= {"reg": 0.01, "tol": 0, "callback": lambda record: not record.accepted}
    fit = fastemf.complete(R, 0.3, 3, **options)
    assert not fit.history[-1].accepted
    (level,) = describe(fit)["levels"]
    assert level["objective"] == pytest.approx(fit.objective(R), rel=1e-12)
