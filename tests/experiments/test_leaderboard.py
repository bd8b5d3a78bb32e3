"""The comparison with published results: scores, files, and errors before the first fit."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from fastemf.cli import main
from fastemf.datasets import load_wsdream_places, make_skewed
from fastemf.experiments import leaderboard
from fastemf.experiments.leaderboard import LOCATED, PLAIN, PUBLISHED, SCORES, compute_scores

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.filterwarnings("ignore:.*published")
HEADS = {
    "user": ["[User ID]", "[IP Address]", "[Country]", "[IP No.]", "[AS]"],
    "service": ["[Service ID]", "[WSDL Address]", "[Service Provider]", "[Country]", "[AS]"],
}


def write_places(folder, users, services):
    """Write the published lists for so many users and services."""
    for kind, name, count in (("user", "userlist.txt", users), ("service", "wslist.txt", services)):
        heads = [*HEADS[kind], "[Latitude]", "[Longitude]"]
        lines = [heads, ["=" * 20]]
        lines += [
            [str(at), "x", "null" if at == 1 else f"land{at % 3}", "1", f"AS{at % 2}", "1.5", ""]
            for at in range(count)
        ]
        (folder / name).write_text("\n".join(map("\t".join, lines)), "latin-1")
    return folder


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "rtMatrix.txt"
    np.savetxt(path, make_skewed(60, 50, rank=2, random_state=0).noisy, delimiter="\t")
    return path


def test_scores_by_hand():
    found = compute_scores(np.array([1.0, 2.0, 5.0, 0.0]), np.full(4, 2.0), np.full(4, 3.0))
    assert list(found) == list(SCORES)
    assert found["MAE"] == pytest.approx((1 + 0 + 3 + 2) / 4)
    assert found["NMAE"] == pytest.approx(1.5 / 2)
    assert found["RMSE"] == pytest.approx(np.sqrt((4 + 1 + 4 + 9) / 4))
    assert found["MRE"] == pytest.approx(0.6)  # of 1, 0 and 0.6
    assert found["NPRE"] == pytest.approx(0.92)  # 0.6 + 0.8 * 0.4


def test_lists_of_places(tmp_path):
    places = load_wsdream_places(write_places(tmp_path, 4, 3))
    assert places.users["user_country"].tolist() == ["land0", None, "land2", "land0"]
    assert places.users["user_as"].tolist() == ["AS0", "AS1", "AS0", "AS1"]
    assert places.services["service_provider"].tolist() == ["land0", None, "land2"]
    assert places.services["service_latitude"].tolist() == [1.5] * 3
    assert np.isnan(places.services["service_longitude"]).all()
    assert "user_provider" not in places.users


def test_arrays_of_places(tmp_path):
    path = tmp_path / "side.npz"
    np.savez(path, user_country=["a", ""], user_lat=[1.0, np.nan], service_as=["x", "y", "null"])
    places = load_wsdream_places(path)
    assert places.users["user_country"].tolist() == ["a", None]
    assert places.services["service_as"].tolist() == ["x", "y", None]
    np.savez(path, user_country=["a", "b"], user_lat=[1.0], service_as=["x"])
    with pytest.raises(ValueError, match=r"side.npz: expected arrays user_\* of one length"):
        load_wsdream_places(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1: expected names of columns such as"),
        ("[User ID]\t[Country]\n0\n", "line 2: expected 2 columns, got 1"),
        ("[User ID]\t[Country]\n0\ta\n2\tb\n", "line 3: expected the number 1, got '2'"),
    ],
)
def test_malformed_lists(tmp_path, text, words):
    write_places(tmp_path, 2, 2)
    (tmp_path / "userlist.txt").write_text(text)
    with pytest.raises(ValueError, match=words):
        load_wsdream_places(tmp_path)


def test_the_command_writes_tables_and_figures(data, tmp_path, monkeypatch, capsys):
    write_places(tmp_path, 60, 50)
    defaults = leaderboard.run.__kwdefaults__ | {"densities": (0.1, 0.3)}
    monkeypatch.setattr(leaderboard.run, "__kwdefaults__", defaults)
    arguments = ["--repeats", "2", "--rank", "1", "--leaderboard", "--places", str(tmp_path)]
    command = ["reproduce", "wsdream", "--data", str(data), "--out", str(tmp_path)]
    assert main([*command, *arguments]) == 0
    with (tmp_path / "leaderboard.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == [PLAIN, LOCATED] * 4
    assert [row["density"] for row in rows] == ["0.1"] * 4 + ["0.3"] * 4
    assert all(0 < float(row[name]) < 100 for row in rows for name in SCORES)
    text = capsys.readouterr().out
    assert "MAE in seconds, beside published results" in text
    assert all(one.method in text for one in PUBLISHED)
    assert "not the full matrix" not in text
    page = (tmp_path / "leaderboard.html").read_text("utf-8")
    assert "60 users × 50 services, 3,000 of 3,000 cells" in page
    assert (tmp_path / "leaderboard_rmse.png").exists()


def test_errors_before_the_first_fit(data, tmp_path, capsys):
    def message(*arguments):
        command = ["reproduce", "wsdream", "--data", str(data), "--out", str(tmp_path)]
        assert main([*command, *arguments]) == 2
        return capsys.readouterr().err

    assert "places must be None without leaderboard" in message("--places", str(tmp_path))
    assert "repeats must be" in message("--leaderboard", "--repeats", "0")
    assert "userlist.txt" in message("--leaderboard", "--places", str(tmp_path))
    with pytest.raises(ValueError, match="densities must be below the proportion of known cells"):
        leaderboard.run(data, densities=(1.0,))
