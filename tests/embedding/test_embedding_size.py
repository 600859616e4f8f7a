"""The script that measures how many dimensions pay."""

from pathlib import Path

import pandas as pd

from benchmarks.embedding_size import main


def test_a_row_for_each_memory(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    options = "--sizes 10 --variants 1 1:640 --seeds 0 --epochs 2 --train-fraction 0.1"
    main(["digits", *options.split(), "--csv", str(file)])
    rows = pd.read_csv(file)
    assert rows.variant.astype(str).tolist() == ["1", "1:640"]
    assert rows.accuracy.between(0, 1).all()
