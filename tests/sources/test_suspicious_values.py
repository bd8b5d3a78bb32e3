"""The warning about sentinels, codes, limits and zeros: what causes it, and what must not."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import fastemf
from fastemf.cli import main
from fastemf.inputs.table_files import write_table
from fastemf.sources.suspicious_values import warn_of_new_values

CELLS = (80, 70)  # all are observed


def messages(values, task=fastemf.complete, at=0.5, source=lambda data: data, **options):
    """The warnings of a fit to values, which takes one sweep."""
    i, j = np.divmod(np.arange(len(values)), CELLS[1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        task(source((i, j, np.asarray(values, float))), at, 1, reg=1e3, max_iter=1, **options)
    return [str(one.message) for one in caught if one.category is UserWarning]


def latencies(rng, n=CELLS[0] * CELLS[1]):
    return np.round(rng.lognormal(4, 0.7, n), 1)


def limited(rng, n=CELLS[0] * CELLS[1]):
    """Values up to 20; half of the rest is recorded as 20, the other half a little below."""
    values = rng.lognormal(1, 1.2, n)
    below = np.where(rng.random(n) < 0.5, 20.0, np.round(rng.uniform(19.994, 20, n), 3))
    return np.where(values > 20, below, values)


def including(values, some, count, rng):
    """Replace some of the values."""
    places = rng.choice(len(values), count, replace=False)
    return np.where(np.isin(np.arange(len(values)), places), some, values)


SUSPICIOUS = {
    "one sentinel": (lambda rng: including(latencies(rng), 1e9, 1, rng), "1 of 5,600 values equal"
                     r" 1000000000, [\d,]+ times as large as all others: .* leave them out"),
    "an integer": (lambda rng: including(latencies(rng), 2.0**31 - 1, 90, rng),
                   "90 of 5,600 values equal 2147483647"),
    "in a long tail": (lambda rng: including(1 + rng.pareto(1.2, 5600), 1e9, 1, rng),
                       "1 of 5,600 values equal 1000000000"),
    "negative": (lambda rng: including(rng.normal(15, 8, 5600), -9999.0, 20, rng),
                 "20 of 5,600 values equal -9999"),
    "errors": (lambda rng: np.r_[latencies(rng)[2:], 3e7, 5e8],
               "2 of 5,600 values go up to 500000000, at least"),
    "a code": (lambda rng: including(latencies(rng), 9999.0, 56, rng),
               "1.00% of the values equal 9999, and none is close"),
    "minus one": (lambda rng: including(rng.exponential(1, 5600), -1.0, 56, rng),
                  "1.00% of the values equal -1, and none is close"),
    "not rated": (lambda rng: including(rng.integers(1, 11, 5600), -1.0, 560, rng),
                  "10.00% of the values equal -1"),
    "beside a limit": (limited, r"of the values equal the largest, 20, or lie just below it, from "
                       r'19\.994: .*, pass censored=\("right", 19\.994\)'),
    "zeros": (lambda rng: including(latencies(rng), 0.0, 56, rng),
              r"1.00% of the values are 0, and all others at least 3\.\d: "),
}  # fmt: skip


@pytest.mark.parametrize("name", SUSPICIOUS)
def test_suspicious_values_cause_one_warning_with_the_remedy(name):
    make, message = SUSPICIOUS[name]
    with pytest.warns(UserWarning, match=message):
        warnings.warn("; ".join(found := messages(make(np.random.default_rng(0)))), stacklevel=1)
    assert len(found) == 1


HONEST = {
    "log-normal": lambda rng: rng.lognormal(0, 1, 5600),
    "wide log-normal": lambda rng: rng.lognormal(0, 3, 5600),
    "Pareto": lambda rng: 1 + rng.pareto(1.2, 5600),
    "Pareto from 0": lambda rng: rng.pareto(1.2, 5600),
    "gamma": lambda rng: rng.gamma(0.5, 1, 5600),
    "normal": lambda rng: rng.normal(0, 1, 5600),
    "large": lambda rng: 1e9 + rng.normal(0, 1, 5600),
    "uniform": lambda rng: rng.random(5600),
    "piled at its ends": lambda rng: rng.beta(0.5, 0.5, 5600),
    "Student": lambda rng: rng.standard_t(2, 5600),
    "negative": lambda rng: -rng.lognormal(0, 1, 5600),
    "integers": lambda rng: rng.integers(0, 5000, 5600),
    "counts": lambda rng: rng.poisson(1, 5600),
    "skewed counts": lambda rng: rng.negative_binomial(0.5, 0.002, 5600),
    "ratings": lambda rng: rng.integers(1, 6, 5600),
    "votes": lambda rng: rng.choice([-1, 0, 1], 5600),
    "prices": lambda rng: rng.choice([0.99, 4.99, 9.99, 49.99, 99, 199, 999], 5600),
    "rounded": latencies,
    "two digits": lambda rng: np.array([float(f"{x:.2g}") for x in rng.lognormal(0, 2, 5600)]),
    "zeros and values close to 0": lambda rng: including(
        rng.exponential(1, 5600), 0.0, 100, rng
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_honest_values_cause_no_warning(name):
    for seed in range(3):
        assert messages(HONEST[name](np.random.default_rng(seed))) == []


def test_all_that_is_suspicious_is_in_one_warning():
    rng = np.random.default_rng(0)
    values = np.minimum(rng.lognormal(1, 0.5, 5600), 6.0)
    values[:60] = [1e9] * 20 + [-1.0] * 20 + [0.0] * 20
    starts = (
        "20 of 5,600 values equal 1000000000", "0.36% of the values equal -1",
        "5.7% of the values equal the largest, 6", "0.36% of the values are 0",
    )  # fmt: skip
    for task, at in ((fastemf.complete, 0.5), (fastemf.complete_levels, (0.4, 0.6))):
        (found,) = messages(values, task, at)
        parts = found.split("; also, ")
        assert [part[: len(start)] for part, start in zip(parts, starts, strict=True)] == [*starts]
        assert 'censored=("right", 6.0)' in parts[2]


def test_a_store_causes_the_same_warning(tmp_path):
    rng = np.random.default_rng(0)
    values = including(latencies(rng), 1e9, 3, rng)
    values[100:160] = -1.0

    def store(data):
        return fastemf.store.build(data, tmp_path / "log")

    assert messages(values, source=store) == messages(values)
    assert len(messages(values)) == 1


def test_declared_limits_are_not_suspicious_but_values_beside_them_are():
    rng = np.random.default_rng(0)
    cut = np.minimum(rng.lognormal(1, 1.2, 5600), 20.0)
    assert messages(cut, censored=("right", 20.0)) == []
    assert messages(cut, censored=cut == 20) == []
    assert messages(-cut, censored=("left", -20.0)) == []
    message = "of the values lie just below the censoring limit 20, from 19.994: if they are"
    (found,) = messages(limited(rng), censored=("right", 20.0))
    assert message in found
    assert "--censored-above=19.994" in found
    sentinel = np.where(cut == 20, 1e9, cut)  # censored, so that nothing else is isolated
    assert messages(sentinel, censored=("right", 20.0)) == []


def test_quantiles_and_sparse_matrices():
    rng = np.random.default_rng(0)
    values = including(latencies(rng, 400), 1e9, 1, rng).reshape(20, 20)
    assert len(messages_of_quantiles(values)) == 1
    with pytest.warns(UserWarning, match="1 of 400 values equal 1000000000"):
        fastemf.complete(sp.csr_array(values), 0.5, 1, reg=1e3, tol=1e9)


def messages_of_quantiles(values):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fastemf.complete_quantiles(values, 0.5, 1, max_iter=1)
    return [text for one in caught if "1 of 400 values equal" in (text := str(one.message))]


@pytest.mark.filterwarnings("default")
def test_the_shell_prints_one_line_before_a_fit(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    i, j = np.divmod(np.arange(600), 30)
    write_table("log.csv", {"i": i, "j": j, "v": including(latencies(rng, 600), -1.0, 9, rng)})
    assert main(["fit", "log.csv", "-k", "1", "--reg", "100", "--tol", "1", "-o", "m.npz"]) == 0
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "fastemf: warning: 1.50% of the values equal -1, and none is close to it" in err
    assert "--sql" in err


@pytest.mark.slow
def test_real_data_cause_no_warning(data_folder):
    """KuaiRand has 2 % zeros, and values close to zero."""
    with np.load(data_folder / "kuairand_playtime.npz") as file:
        watched = file["val"]
    with np.load(data_folder / "wsdream1_rt_union.npz") as file:
        times, kept = file["val"], file["src"] & 1 > 0
    with np.load(data_folder / "netlatency_planetlab.npz") as file:
        trips = [one[one > 0] for one in file["rtt_ms"]]
    for values in (watched, times[kept], *trips):
        assert messages(values) == []


def test_a_limit_among_integers_stands_out_from_its_neighbourhood():
    values = np.round(np.random.default_rng(0).lognormal(4.4, 0.4, 5600))
    [message] = messages(values.clip(max=150))  # 6 %, where the most frequent value has 1.6 %
    assert "of the values equal the largest, 150: if this is a censoring limit" in message
    assert not messages(values)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([5.0, 2e4, 3e4], "2 of 3 values are over 100 times as large as any in the fit"),
        ([5.0, -1.0], "1 of 2 values are negative, and none was in the fit"),
    ],
)
def test_values_of_an_update_are_compared_with_those_of_the_fit(values, words):
    with pytest.warns(UserWarning, match=words):
        warn_of_new_values(np.array(values), 0.5, 100.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_new_values(np.array([5.0, 0.1, 9000.0]), 0.5, 100.0)
        warn_of_new_values(np.array([-5.0]), -1.0, 100.0)
