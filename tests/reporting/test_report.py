"""The HTML report: the figures of `evaluate` for every kind of model, in harmless markup."""

from __future__ import annotations

import io
import re
import warnings
from dataclasses import replace
from functools import cache, partial
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import fastemf
from fastemf.cli import main
from fastemf.inputs import table_files
from fastemf.models.boosted_levels import BoostedLevels
from fastemf.reporting.calibration import compute_deciles
from fastemf.reporting.errors import largest_errors
from fastemf.reporting.evaluated_model import read_evaluated
from fastemf.reporting.markup import escape, number
from fastemf.reporting.model_sections import tuning_section
from fastemf.reporting.predictions import mean_predictions
from fastemf.tuning.record import Baseline, Tuning, TuningStep

NAMES = {"rows": "client", "cols": "service", "values": "ms"}
NO_NAMES = (None, None, None)
HARMFUL = "<script>document.title = 'harm'</script>\"' onload=x &amp;"


def log_of(size, seed, prefix="eu-"):
    """Lines of clients and services at random, with a long right tail."""
    rng = np.random.default_rng(seed)
    i, j = rng.integers(20, size=size), rng.integers(15, size=size)
    ms = (1 + i) * (2 + j) * rng.lognormal(0, 0.5, size)
    return pd.DataFrame({"client": [f"{prefix}{n}" for n in i], "service": j, "ms": ms})


TRAIN, TEST = log_of(900, 0), log_of(300, 1)


KINDS = {
    "one level": (fastemf.complete, 0.3, 2),
    "several levels": (fastemf.complete_levels, (0.1, 0.5, 0.9), 2),
    "quantiles": (fastemf.complete_quantiles, (0.5, 0.9), 1),
    "boosted levels": (partial(fastemf.complete_levels, boost=True), (0.1, 0.9), 1),
}


def fitted(kind, table, **columns):
    """Fit in a few sweeps."""
    task, levels, k = KINDS[kind]
    with warnings.catch_warnings(action="ignore"):
        return task(table, levels, k, intercepts=True, reg="noise", max_iter=5, **NAMES | columns)


@cache
def made(kind):
    return fitted(kind, TRAIN)


@pytest.fixture(params=KINDS)
def model(request):
    return made(request.param)


def evaluated(model, R, unknown="error", weights=None):
    return read_evaluated(model, R, unknown, NO_NAMES, weights, None)


class Page(HTMLParser):
    """The tags and texts of a page, whose tags must be balanced."""

    EMPTY = ("meta", "br", "line", "rect", "circle", "polyline")

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.texts, self.attributes = set(), [], [], set()
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


# --- content ---------------------------------------------------------------------------


def test_every_kind_has_every_section_and_the_figures_of_evaluate(model):
    text = fastemf.report(model, TEST)
    assert not re.search(r"https?:|src=|href=|url\(|@import|<script", text)
    for words in ("default-src 'none'", "prefers-color-scheme: dark", 'name="viewport"'):
        assert words in text
    texts = Page(text).texts
    found = model.evaluate(TEST)
    is_quantiles = isinstance(model, fastemf.Quantiles)
    if is_quantiles:
        wanted = [loss for one in found.coverage for loss in (one.pinball, *one.baselines.values())]
        wanted += [one.crps.score for one in found.distribution]
        assert {"CRPS", "Whole distributions"} <= set(texts)
    else:
        wanted = [score.loss for score in found.scores]
        for line in found.verdict().splitlines():
            assert any(line[1:] in text for text in texts)
    assert {number(loss) for loss in wanted} <= set(texts)
    text = " ".join(texts)
    for words in (
        "Model", "Comparison with baselines", "Calibration", "Residuals",
        "Predictions of some rows", "Largest and smallest predictions", "Largest errors",
        "Factors", "300 observations", "20 rows (client)", "15 columns (service)",
    ):  # fmt: skip
        assert words in text
    wanted = ["Tuning"]
    if is_quantiles:
        groups = [group for one in model.coverage for group in one.cold]
        wanted = ["Out-of-fold coverage", *(number(group.coverage) for group in groups)]
        assert any(group.name == "new rows" for group in groups)
    elif isinstance(model, BoostedLevels):
        wanted = ["Out-of-fold levels", *(number(one.effective_omega) for one in model.reports)]
    assert all(words in text for words in wanted)
    assert "nan" not in text
    for level in getattr(model, "taus", None) or getattr(model, "omegas", None) or (0.3,):
        name = f"p{100 * level:g}" if is_quantiles else f"ω = {level:g}"
        titles = {f"Loss at {name}", f"Calibration of {name}", f"Observed − {name}"}
        assert titles <= set(texts)


def test_groups_have_a_drawing_for_each_quantile():
    regions = {"client": TRAIN.client.unique(), "region": ["eu", "us"] * 10}
    quantiles = fastemf.complete_quantiles(
        TRAIN, (0.5, 0.9), 1, **NAMES, row_features=regions, groups="region"
    )
    texts = Page(fastemf.report(quantiles, TEST)).texts
    assert len(quantiles.coverage[0].groups) == 2
    assert {"Coverage of p50 by group", "Coverage of p90 by group"} <= set(texts)


def test_deciles_average_to_the_effective_level(model):
    about, found = evaluated(model, TEST), model.evaluate(TEST)
    for at, level in enumerate(about.levels):
        parts = compute_deciles(about, at)
        assert sum(one.observations for one in parts) == len(TEST)
        assert all(one.low <= one.level <= one.high for one in parts)
        edges = [edge for one in parts for edge in (one.smallest, one.largest)]
        assert edges == sorted(edges)
        if isinstance(model, fastemf.Quantiles):
            levels = [one.level for one in parts]
            np.testing.assert_allclose(levels, found.coverage[at].deciles, rtol=1e-9)
            continue
        r = np.abs(about.residuals(at))[np.argsort(about.predicted[at], kind="stable")]
        masses = [part.sum() for part in np.array_split(r, 10)]
        whole = np.average([one.level for one in parts], weights=masses)
        assert whole == pytest.approx(found.score(omega=level).effective_omega, rel=1e-9)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*are zero")
def test_intervals_of_deciles_have_nominal_coverage():
    # For normal noise around 0 the level of 0 is 0.5, and a mean fit of zeros predicts 0.
    fit = fastemf.complete(np.zeros((40, 50)), 0.5, 1)
    noise = [np.random.default_rng(seed).normal(size=(40, 50)) for seed in range(20)]
    deciles = [one for values in noise for one in compute_deciles(evaluated(fit, values), 0)]
    assert 0.9 <= np.mean([one.low <= 0.5 <= one.high for one in deciles]) <= 0.99


@pytest.mark.filterwarnings("ignore:.*are zero")
@pytest.mark.parametrize("kind", ["one level", "quantiles"])
def test_repeated_observations_do_not_narrow_intervals(kind):
    once = TEST.drop_duplicates(["client", "service"]).iloc[:100]
    thrice = pd.concat([once] * 3)
    deciles = [compute_deciles(evaluated(made(kind), log), 0) for log in (once, thrice)]
    for one, more in zip(*deciles, strict=True):
        assert more.observations == 3 * one.observations
        np.testing.assert_allclose(more[3:], one[3:], rtol=1e-9)


@pytest.mark.parametrize("axis", [0, 1])
def test_the_largest_errors_are_those_of_the_summary(axis):
    model = made("one level")
    missed = largest_errors(evaluated(model, TEST), axis)
    summary = model.summary(TEST, axis)
    enough = np.flatnonzero(summary.observations >= missed.fewest)
    assert missed.fewest == 5
    worst = enough[np.argsort(-summary.loss[enough], kind="stable")][:8]
    loss, mean, counts = (
        part[worst] for part in (summary.loss, summary.mean, summary.observations)
    )
    whole = model.evaluate(TEST).score().loss * len(TEST)
    np.testing.assert_array_equal(missed.items, worst)
    np.testing.assert_array_equal(missed.observations, counts)
    np.testing.assert_allclose(missed.loss, loss, rtol=1e-9)
    np.testing.assert_allclose(missed.observed, mean, rtol=1e-9)
    np.testing.assert_allclose(missed.proportion, loss * counts / whole, rtol=1e-9)


def test_a_weight_of_two_repeats_the_observation():
    model = made("one level")
    twice = evaluated(model, pd.concat([TEST, TEST]))
    heavy = evaluated(model, TEST.assign(w=2.0), weights="w")
    a, b = (largest_errors(one, 1) for one in (twice, heavy))
    np.testing.assert_array_equal(a.items, b.items)
    np.testing.assert_allclose(a.proportion, b.proportion, rtol=1e-9)
    texts = [fastemf.report(model, TEST), fastemf.report(model, TEST.assign(w=2.0), weights="w")]
    sections = [re.search("<h2>Comparison.*?</section>", text)[0] for text in texts]
    assert sections[0] == sections[1]


def test_mean_predictions(model):
    about = evaluated(model, TEST)
    block = model.predict_block(np.arange(20) if model.row_labels is None else model.axes[0].ids())
    block = block.reshape(*block.shape[:2], -1)
    for axis in (0, 1):
        served = mean_predictions(about, axis)
        means = block.mean(axis=1 - axis)
        assert sorted(served.items) == list(range(block.shape[axis]))
        np.testing.assert_allclose(served.means, means[served.items], rtol=1e-9)
        assert (np.diff(served.means[:, -1]) <= 0).all()
        assert served.over == block.shape[1 - axis]


def test_rows_show_the_columns_that_rank_lists():
    model = made("one level")
    text = fastemf.report(model, TEST)
    row = model.axes[0].ids()[mean_predictions(evaluated(model, TEST), 0).items[0]]
    drawing = re.search(f'aria-label="predictions of client {row}">(.*?)</svg>', text)[1]
    best, worst = (model.rank(row, 6, order=order).cols for order in ("smallest", "largest"))
    cols = [*best, *worst[::-1]]
    assert re.findall(r'text-anchor="end">([^<]*)<', drawing) == [str(col) for col in cols]
    assert "3 more" in drawing
    lines = TEST[(TEST.client == row) & TEST.service.isin(cols)]
    assert len(re.findall('class="(?:mark|beyond)"', drawing)) == len(lines) > 0


def test_the_candidates_are_drawn_with_a_ring_around_the_best():
    steps = tuple(
        TuningStep(family, reg, rank, loss, 0.1, 0.5)
        for family, reg, rank, loss in [
            ("constant", np.inf, 0, 2.0), ("equal", np.inf, 0, 1.5), ("weighted", 10.0, 1, 1.2),
            ("weighted", 7.0, 2, 1.1), ("ridged", 0.0, 2, 1.2),
        ]
    )  # fmt: skip
    baselines = (Baseline("constant", 2.0), Baseline("row + column", 1.5))
    fit = replace(made("one level"), tuning=Tuning(steps, 3, baselines, 500, 10, loss=1.1))
    text = tuning_section(evaluated(fit, TEST))
    assert text.count('class="ring"') == 1
    assert text.count('r="3"') == 4  # all but the constant, which is far above
    assert "2 factors reduce the loss by 27 % relative to row + column intercepts" in text
    assert "row + column" in Page(text).texts
    assert "The fit was not tuned." in tuning_section(evaluated(made("one level"), TEST))


# --- unusual models and data --------------------------------------------------------------------


NAN, SKEWED = float("nan"), np.outer([1.0, 2.0, 4.0], [3.0, 4.0, 9.0])
ODD = {
    "perfect": (np.outer([1.0, 2.0], [3.0, 4.0]), 1),
    "zeros": (np.zeros((4, 3)), 1),
    "never observed": (np.array([[1, 2, 3, 4, 5], [2, 4, 6, NAN, NAN], [NAN] * 5, [NAN] * 5]), 1),
    "rank 0": (SKEWED, 0),
    "negative": (np.eye(3) - SKEWED, 1),
    "large": (1e130 * SKEWED, 1),
    "small": (1e-130 * SKEWED, 1),
    "float32": (np.outer([1.0, 2.0], [3.0, 4.0]).astype(np.float32), 1),
}


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ODD)
def test_odd_models_have_a_page(name):
    R, k = ODD[name]
    fit = fastemf.complete(R, 0.5, k, intercepts=k == 0, reg="noise" if k == 0 else 0.0)
    one = np.full(R.shape, np.nan)
    one[0, 1] = R[0, 1] * 1.5 + 1
    for observed in (R, one):
        page = Page(fastemf.report(fit, observed))
        assert "nan" not in " ".join(page.texts)


def test_labels_of_all_types_are_shown():
    days = pd.to_datetime(pd.Series(["2024-05-01", "2024-05-02"])).repeat(30).to_numpy()
    table = log_of(60, 0).assign(client=days)
    page = Page(fastemf.report(fitted("one level", table), table))
    assert "2024-05-01" in page.texts
    plain = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), 0.5, 1, reg=0.1)
    text = " ".join(Page(fastemf.report(plain, np.ones((2, 2)))).texts)
    assert "Expectile ω = 0.5 of the data's unit, by row and column" in text
    assert "row 1: largest" in text


def test_unknown_labels_are_an_error_or_left_out_and_counted():
    model, more = made("one level"), pd.concat([TEST, log_of(7, 2, prefix="us-")])
    with pytest.raises(ValueError, match="unknown labels"):
        fastemf.report(model, more)
    page = fastemf.report(model, more, unknown="nan")
    assert "7 observations of unknown labels are left out" in page
    known = re.search("<h2>Comparison.*?</section>", fastemf.report(model, TEST))[0]
    assert known in page
    with pytest.raises(ValueError, match="R must contain observations of labels"):
        fastemf.report(model, log_of(7, 2, prefix="us-"), unknown="nan")
    with pytest.raises(ValueError, match="unknown must be"):
        fastemf.report(model, TEST, unknown="model")
    with pytest.raises(TypeError, match="model must be a Factorization, Levels, BoostedLevels or"):
        fastemf.report(TEST, TEST)


# --- safety --------------------------------------------------------------------


def harmful():
    """A page in which all names given by the user contain markup."""
    names = {"client": HARMFUL, "service": "<b>", "ms": "</title><script>1</script>"}
    table = log_of(200, 0, prefix=HARMFUL).rename(columns=names)
    columns = dict(zip(NAMES, names.values(), strict=True))
    return fastemf.report(fitted("one level", table, **columns), table)


def test_labels_are_only_text():
    page, plain = Page(harmful()), Page(fastemf.report(made("one level"), TEST))
    assert page.tags == plain.tags
    assert not page.tags & {"script", "img", "link", "iframe", "b", "object"}
    assert page.attributes == plain.attributes
    assert any(HARMFUL in text for text in page.texts)


def test_unprintable_characters_are_replaced():
    assert escape("a\x00b\u202ec\ud800") == "a\ufffdb\ufffdc\ufffd"


@pytest.mark.subprocess
def test_a_browser_shows_it_on_a_phone_and_runs_nothing(browser):
    found = browser(
        harmful(),
        "{wide: document.documentElement.scrollWidth, room: innerWidth, title: document.title,"
        "drawings: [...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().width),"
        "asked: performance.getEntriesByType('resource').length}",
    )
    assert found["wide"] <= found["room"]  # nothing to scroll to the side for
    assert all(300 < width <= found["room"] for width in found["drawings"])
    assert len(found["drawings"]) >= 7
    assert found["title"].startswith("Expectile ω = 0.3")
    assert found["asked"] == 0


# --- the shell ------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table_files.write_table("log.csv", {name: TEST[name].to_numpy() for name in TEST})
    return tmp_path


def test_the_command_writes_the_page_of_python(model, files, monkeypatch):
    model.save("model.npz")
    assert main(["report", "model.npz", "log.csv", "-o", "page.html"]) == 0
    wanted = fastemf.report(model, "log.csv").encode()
    assert (files / "page.html").read_bytes() == wanted
    content = io.TextIOWrapper(io.BytesIO((files / "log.csv").read_bytes()))
    monkeypatch.setattr("sys.stdin", content)
    assert main(["report", "model.npz", "-", "-o", "page.html", "--force"]) == 0
    assert (files / "page.html").read_bytes() == wanted


# --- numbers ---------------------------------------------------------------------
