"""The page about a model: it says what `evaluate` says, of every kind, and does no harm."""

from __future__ import annotations

import html
import io
import json
import re
import subprocess
import warnings
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import fastemf
from fastemf import Baseline, Tuning, TuningStep
from fastemf.cli import main
from fastemf.inputs import table_files
from fastemf.model.reading import CellValues
from fastemf.reporting.calibration import tenths
from fastemf.reporting.drawing import Scale, round_ticks
from fastemf.reporting.judgement import Judgement, judged_by
from fastemf.reporting.markup import figure_text, safe
from fastemf.reporting.misses import missed_of
from fastemf.reporting.ranks import factor_sizes
from fastemf.reporting.served import served_of
from fastemf.reporting.tuned import tuning_section

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


def quietly(task, *data, **names):
    """Fit in a few sweeps."""
    with warnings.catch_warnings(action="ignore"):
        return task(*data, intercepts=True, reg="noise", max_iter=5, **names)


def one_level(table=TRAIN, **columns):
    return quietly(fastemf.complete, table, 0.3, 2, **NAMES | columns)


def several_levels():
    return quietly(fastemf.complete_levels, TRAIN, (0.1, 0.5, 0.9), 2, **NAMES)


def quantiles():
    return quietly(fastemf.complete_quantiles, TRAIN, (0.5, 0.9), 1, **NAMES)


KINDS = {"one level": one_level, "several levels": several_levels, "quantiles": quantiles}


@cache
def made(kind):
    return KINDS[kind]()


@pytest.fixture(params=KINDS)
def model(request):
    return made(request.param)


def judged(model, R, unknown="error", weights=None):
    return judged_by(model, R, unknown, NO_NAMES, weights, None)


class Page(HTMLParser):
    """What a browser makes of a page: its tags, balanced, and its texts."""

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


# --- what it says ---------------------------------------------------------------------------


def test_figures_are_those_of_evaluate(model):
    texts = Page(fastemf.report(model, TEST)).texts
    found = model.evaluate(TEST)
    if isinstance(model, fastemf.Quantiles):
        wanted = [
            loss for one in found.promises for loss in (one.pinball, one.constant, one.row_column)
        ]
    else:
        wanted = [score.loss for score in found.scores]
        for line in found.verdict().splitlines():
            assert any(line[1:] in text for text in texts)
    assert {figure_text(loss) for loss in wanted} <= set(texts)


def test_every_kind_has_every_section(model):
    page = Page(fastemf.report(model, TEST))
    text = " ".join(page.texts)
    for words in (
        "What was fitted", "Is it better than something simple?", "Calibration by size",
        "Residuals", "What some rows can expect", "Who is served worst",
        "Who is predicted worst", "Ranks", "300 observations", "20 rows (client)",
        "15 columns (service)",
    ):  # fmt: skip
        assert words in text
    assert ("What was promised" in text) == isinstance(model, fastemf.Quantiles)
    assert ("How it was tuned" in text) != isinstance(model, fastemf.Quantiles)
    assert "nan" not in text
    for level in getattr(model, "taus", None) or getattr(model, "omegas", None) or (0.3,):
        name = f"p{100 * level:g}" if hasattr(model, "taus") else f"ω = {level:g}"
        assert {f"Loss at {name}", f"Calibration of {name}", f"Observed − {name}"} <= set(
            page.texts
        )


def test_tenths_hold_all_observations_and_average_to_the_effective_level(model):
    about = judged(model, TEST)
    found = model.evaluate(TEST)
    for at, level in enumerate(about.levels):
        parts = tenths(about, at)
        assert sum(one.observations for one in parts) == len(TEST)
        assert all(one.low <= one.level <= one.high for one in parts)
        edges = [edge for one in parts for edge in (one.smallest, one.largest)]
        assert edges == sorted(edges)
        if isinstance(model, fastemf.Quantiles):
            np.testing.assert_allclose(
                [one.level for one in parts], found.promises[at].deciles, rtol=1e-9
            )
            continue
        r = np.abs(about.residuals(at))[np.argsort(about.predicted[at], kind="stable")]
        masses = [part.sum() for part in np.array_split(r, 10)]
        whole = np.average([one.level for one in parts], weights=masses)
        assert whole == pytest.approx(found.score(level=level).effective_omega, rel=1e-9)


@pytest.mark.filterwarnings("ignore:.*are zero")
def test_intervals_of_tenths_hold_the_level_as_often_as_they_say():
    # Of normal noise around 0 the level of 0 is 0.5, and a mean fit of nothing predicts 0.
    fit = fastemf.complete(np.zeros((40, 50)), 0.5, 1)
    hits = [
        one.low <= 0.5 <= one.high
        for seed in range(20)
        for one in tenths(judged(fit, np.random.default_rng(seed).normal(size=(40, 50))), 0)
    ]
    assert 0.9 <= np.mean(hits) <= 0.99


def test_cells_of_large_matrices_have_numbers_of_their_own():
    places = np.array([99_999, 0], np.int32)
    cells = CellValues(places, places, np.ones(2), None)
    about = Judgement(SimpleNamespace(shape=(10**5, 10**5)), cells, 0)
    assert about.cell_numbers.tolist() == [10**10 - 1, 0]


@pytest.mark.filterwarnings("ignore:.*are zero")
@pytest.mark.parametrize("kind", ["one level", "quantiles"])
def test_observations_of_a_cell_again_and_again_do_not_narrow_intervals(kind):
    once = TEST.drop_duplicates(["client", "service"]).iloc[:100]
    thrice = pd.concat([once] * 3)
    for one, more in zip(
        *(tenths(judged(made(kind), log), 0) for log in (once, thrice)), strict=True
    ):
        assert more.observations == 3 * one.observations
        np.testing.assert_allclose(more[3:], one[3:], rtol=1e-9)


@pytest.mark.parametrize("axis", [0, 1])
def test_the_worst_predicted_are_those_of_the_summary(axis):
    model = made("one level")
    missed = missed_of(judged(model, TEST), axis)
    summary = model.summary(TEST, axis)
    enough = np.flatnonzero(summary.observations >= missed.fewest)
    assert missed.fewest == 5
    worst = enough[np.argsort(-summary.loss[enough], kind="stable")][:8]
    np.testing.assert_array_equal(missed.items, worst)
    np.testing.assert_allclose(missed.loss, summary.loss[worst], rtol=1e-9)
    np.testing.assert_allclose(missed.observed, summary.mean[worst], rtol=1e-9)
    np.testing.assert_array_equal(missed.observations, summary.observations[worst])
    whole = model.evaluate(TEST).score().loss * len(TEST)
    share = summary.loss[worst] * summary.observations[worst] / whole
    np.testing.assert_allclose(missed.share, share, rtol=1e-9)


def test_weight_two_is_the_observation_twice():
    model = made("one level")
    twice = judged(model, pd.concat([TEST, TEST]))
    heavy = judged(model, TEST.assign(w=2.0), weights="w")
    a, b = (missed_of(one, 1) for one in (twice, heavy))
    np.testing.assert_array_equal(a.items, b.items)
    np.testing.assert_allclose(a.share, b.share, rtol=1e-9)
    texts = [
        fastemf.report(model, TEST),
        fastemf.report(model, TEST.assign(w=2.0), weights="w"),
    ]
    sections = [re.search("<h2>Is it better.*?</section>", text)[0] for text in texts]
    assert sections[0] == sections[1]


def test_served_are_means_of_predictions(model):
    about = judged(model, TEST)
    block = model.predict_block(np.arange(20) if model.row_labels is None else model.axes[0].ids())
    block = block.reshape(*block.shape[:2], -1)
    for axis in (0, 1):
        served = served_of(about, axis)
        means = block.mean(axis=1 - axis)
        assert sorted(served.items) == list(range(block.shape[axis]))
        np.testing.assert_allclose(served.means, means[served.items], rtol=1e-9)
        assert (np.diff(served.means[:, -1]) <= 0).all()
        assert served.over == block.shape[1 - axis]


def test_rows_show_what_rank_lists():
    model = made("one level")
    text = fastemf.report(model, TEST)
    row = model.axes[0].ids()[served_of(judged(model, TEST), 0).items[0]]
    drawing = re.search(f'aria-label="predictions of client {row}">(.*?)</svg>', text)[1]
    shown = re.findall(r'text-anchor="end">([^<]*)<', drawing)
    best = model.rank(row, 6, order="smallest").cols
    worst = model.rank(row, 6, order="largest").cols[::-1]
    assert shown == [str(col) for col in (*best, *worst)]
    assert "3 more between" in drawing
    lines = TEST[(TEST.client == row) & TEST.service.isin([*best, *worst])]
    assert len(re.findall('class="(?:mark|beyond)"', drawing)) == len(lines) > 0


def test_sizes_of_factors_add_up_to_the_product():
    fit = made("one level")
    sizes = factor_sizes(fit)
    assert sizes.size == fit.k
    product = fit.X @ fit.Y.T
    assert np.sum(sizes**2) == pytest.approx(np.mean(product**2))


def test_the_tuning_path_shows_the_candidates_and_rings_the_best():
    steps = tuple(
        TuningStep(family, reg, rank, loss, 0.1, 0.5)
        for family, reg, rank, loss in [
            ("constant", np.inf, 0, 2.0), ("even", np.inf, 0, 1.5), ("weighted", 10.0, 1, 1.2),
            ("weighted", 7.0, 2, 1.1), ("ridged", 0.0, 2, 1.2),
        ]
    )  # fmt: skip
    baselines = (Baseline("constant", 2.0), Baseline("row + column", 1.5))
    fit = replace(made("one level"), tuning=Tuning(steps, 3, baselines, 500, 10, loss=1.1))
    text = tuning_section(judged(fit, TEST))
    assert text.count('class="ring"') == 1
    assert 'r="3"' in text
    assert text.count('r="3"') == 4  # all but the constant, which is far above
    assert "2 factors take 27 % off the loss of row + column levels" in text
    assert "row + column" in Page(text).texts
    assert "None: it was not tuned." in tuning_section(judged(made("one level"), TEST))


# --- odd models and data --------------------------------------------------------------------


def halves():
    R = np.full((4, 5), np.nan)
    R[0] = np.arange(1.0, 6.0)
    R[1, :3] = 2, 4, 6
    return R


ODD = {
    "perfect": (np.outer([1.0, 2.0], [3.0, 4.0]), 1),
    "zeros": (np.zeros((4, 3)), 1),
    "never observed": (halves(), 1),
    "rank 0": (np.outer([1.0, 2.0, 4.0], [3.0, 4.0, 9.0]), 0),
    "negative": (-np.outer([1.0, 2.0, 4.0], [3.0, 4.0, 9.0]) + np.eye(3), 1),
    "large": (1e130 * np.outer([1.0, 2.0, 4.0], [3.0, 4.0, 9.0]), 1),
    "small": (1e-130 * np.outer([1.0, 2.0, 4.0], [3.0, 4.0, 9.0]), 1),
    "float32": (np.outer([1.0, 2.0], [3.0, 4.0]).astype(np.float32), 1),
}


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
    page = Page(fastemf.report(one_level(table), table))
    assert "2024-05-01" in page.texts
    plain = fastemf.complete(np.outer([1.0, 2.0], [3.0, 4.0]), 0.5, 1, reg=0.1)
    text = " ".join(Page(fastemf.report(plain, np.ones((2, 2)))).texts)
    assert "Expectile ω = 0.5 of the data's unit, by row and column" in text
    assert "row 1: the largest" in text


def test_unknown_labels_are_an_error_or_left_out_and_counted():
    model, more = made("one level"), pd.concat([TEST, log_of(7, 2, prefix="us-")])
    with pytest.raises(ValueError, match="unknown labels"):
        fastemf.report(model, more)
    page = fastemf.report(model, more, unknown="nan")
    assert "7 of labels that the model does not have are left out" in page
    known = re.search("<h2>Is it better.*?</section>", fastemf.report(model, TEST))[0]
    assert known in page
    with pytest.raises(ValueError, match="R must hold an observation of labels that the model has"):
        fastemf.report(model, log_of(7, 2, prefix="us-"), unknown="nan")
    with pytest.raises(ValueError, match="unknown must be"):
        fastemf.report(model, TEST, unknown="model")


def test_what_is_no_model_is_refused():
    with pytest.raises(TypeError, match="model must be a Factorization, Levels or Quantiles"):
        fastemf.report(TEST, TEST)


# --- what it does not do --------------------------------------------------------------------


def harmful():
    """A page in which everything that a user can name is named to do harm."""
    names = {"client": HARMFUL, "service": "<b>", "ms": "</title><script>1</script>"}
    table = log_of(200, 0, prefix=HARMFUL).rename(columns=names)
    rows, cols, values = names.values()
    return fastemf.report(one_level(table, rows=rows, cols=cols, values=values), table)


def test_labels_are_only_text():
    page, plain = Page(harmful()), Page(fastemf.report(made("one level"), TEST))
    assert page.tags == plain.tags
    assert not page.tags & {"script", "img", "link", "iframe", "b", "object"}
    assert page.attributes == plain.attributes
    assert any(HARMFUL in text for text in page.texts)


def test_texts_that_cannot_be_shown_are_replaced():
    assert safe("a\x00b\u202ec\ud800") == "a\ufffdb\ufffdc\ufffd"


def test_nothing_comes_from_elsewhere(model):
    text = fastemf.report(model, TEST)
    assert not re.search(r"https?:|src=|href=|url\(|@import|<script", text)
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text


@pytest.mark.subprocess
def test_a_browser_shows_it_on_a_phone_and_runs_nothing(browser, tmp_path):
    text = harmful()
    (tmp_path / "page.html").write_text(text, "utf-8")
    script = (
        "<script>onload = () => { document.body.dataset.found = JSON.stringify({"
        "wide: document.documentElement.scrollWidth, room: innerWidth, title: document.title,"
        "drawings: [...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().width),"
        "letters: getComputedStyle(document.querySelector('svg text')).fontSize,"
        "asked: performance.getEntriesByType('resource').length}) }</script>"
    )
    policy = "style-src 'unsafe-inline'"
    probe = tmp_path / "probe.html"
    probe.write_text(
        text.replace(policy, f"script-src 'unsafe-inline'; {policy}") + script, "utf-8"
    )
    options = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={tmp_path}/profile", "--window-size=390,800",
        "--virtual-time-budget=5000", "--dump-dom",
    ]  # fmt: skip
    done = subprocess.run([browser, *options, probe.as_uri()], capture_output=True, text=True)
    found = json.loads(html.unescape(re.search('data-found="(.*?)"[ >]', done.stdout)[1]))
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


def test_the_command_writes_what_python_says(model, files, monkeypatch):
    model.save("model.npz")
    assert main(["report", "model.npz", "log.csv", "-o", "page.html"]) == 0
    wanted = fastemf.report(model, "log.csv").encode()
    assert (files / "page.html").read_bytes() == wanted
    content = io.TextIOWrapper(io.BytesIO((files / "log.csv").read_bytes()))
    monkeypatch.setattr("sys.stdin", content)
    assert main(["report", "model.npz", "-", "-o", "page.html", "--force"]) == 0
    assert (files / "page.html").read_bytes() == wanted


def test_the_command_refuses_as_others_do(files, capsys):
    made("one level").save("model.npz")
    (files / "page.html").write_text("mine")
    command = ["report", "model.npz", "log.csv", "-o"]
    for out, words in (
        ("page.html", "--out page.html exists; --force replaces it"),
        (".", "--out . is a folder"),
        ("no/page.html", "there is no such folder"),
        ("-", "--out must be a file"),
    ):
        assert main([*command, out]) == 2
        assert words in capsys.readouterr().err
    table_files.write_table("more.csv", {**TEST[:3], "client": ["us-1"] * 3})
    assert main(["report", "model.npz", "more.csv", "-o", "page.html", "--force"]) == 2
    assert (files / "page.html").read_text() == "mine"
    assert not list(files.glob(".fastemf*"))


def test_a_report_that_cannot_be_written_leaves_the_old_one(files, monkeypatch, capsys):
    made("one level").save("model.npz")
    (files / "page.html").write_text("mine")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert main(["report", "model.npz", "log.csv", "-o", "page.html", "--force"]) == 2
    assert "No space left" in capsys.readouterr().err
    assert (files / "page.html").read_text() == "mine"


# --- numbers and places ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (1234567.0, "1,234,567"), (0.012346, "0.01235"), (-2.5, "−2.5"),
        (99.999, "100"), (float("nan"), "–"), (float("inf"), "∞"), (1e-9, "1e−09"),
        (2.5e14, "2.5e+14"), (1000.0, "1,000"),
    ],
)  # fmt: skip
def test_numbers_are_written_for_people(value, text):
    assert figure_text(value) == text


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3.2, 7.9), (1e-9, 2e-9), (1e6, 5e8), (-5, -4)])
def test_ticks_are_round_and_inside(low, high):
    found = round_ticks(low, high)
    room = 1e-6 * (high - low)  # of rounding
    assert 2 <= len(found) <= 6
    assert all(low - room <= tick <= high + room for tick in found)
    steps = np.diff(found)
    np.testing.assert_allclose(steps, steps[0])


def test_what_is_beyond_a_scale_lies_at_its_end():
    scale = Scale(1.0, 3.0, 100.0, 0.0)
    assert [scale(value) for value in (0, 1, 2, 3, 9)] == [100, 100, 50, 0, 0]
