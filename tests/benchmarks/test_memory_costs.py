"""The commands that time updates of a memory."""

import pandas as pd
import pytest

from benchmarks.__main__ import main
from benchmarks.speed import online, update
from benchmarks.streams.models import mlp


@pytest.mark.parametrize(("most", "code"), [(1e9, 0), (0.0, 1)])
def test_update_cost_is_in_epochs(monkeypatch, tmp_path, capsys, most, code):
    monkeypatch.setattr(update, "MODELS", {"mlp": ("digits", lambda: mlp(64, 10))})
    monkeypatch.setattr(update, "MOST_EPOCHS", most)
    table = tmp_path / "cost.csv"
    options = ["--sizes", "10", "--train-fraction", "0.2", "--only", "mlp", "--csv", str(table)]
    assert main(["update-cost", *options]) == code
    (row,) = pd.read_csv(table).to_dict("records")
    assert row["epochs"] == pytest.approx(row["update_s"] / row["epoch_s"], rel=1e-3)
    assert (
        row["met"] == ("no" if code else "yes")
        and row["exemplars"] == 10
        and row["dimensions"] > 100
    )
    assert "epochs" in capsys.readouterr().out


def test_online_cost_is_in_training_steps(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(online, "STREAM", "digits")
    monkeypatch.setattr(online, "make_model", lambda: mlp(64, 10))
    monkeypatch.setattr(online, "MOST_STEPS", 1e9)
    table = tmp_path / "cost.csv"
    options = ["--sizes", "40", "--updates", "3", "--csv", str(table)]
    assert main(["online-cost", *options]) == 0
    (row,) = pd.read_csv(table).to_dict("records")
    assert (row["exemplars"], row["examples"], row["updates"]) == (40, 3, 20)
    assert row["steps"] == pytest.approx(row["gmc_mean"] / row["step"], rel=1e-3)
    for name in ("gmc", "reservoir", "class_balanced"):
        assert 0 < row[f"{name}_mean"] <= row[f"{name}_worst"]
    assert "class_balanced_mean" in capsys.readouterr().out
