"""Files of made-up rows whose accuracies are given by method, size and seed."""

from benchmark_rows import rows_for

from benchmarks.grid.rows import COLUMNS, ResultsFile, write_rows


def write(folder, name, accuracies, *, sizes=(100, 1000), seeds=(0, 1, 2), **options):
    """Add rows to a file: method → f(size, seed) gives the accuracy."""
    streams, methods = options.pop("streams", ["sorted-electricity"]), list(accuracies)
    rows = rows_for("gdumb", streams=streams, methods=methods, sizes=sizes, seeds=seeds, **options)
    for row in rows:
        row["accuracy"] = accuracies[row["method"]](row["memory_size"], row["seed"])
        row["selection_seconds"] = 2.0 if row["method"] == "reservoir" else 3.0
    file = ResultsFile(folder / f"{name}.csv")
    write_rows(file.path, [*file.rows(), *({c: row[c] for c in COLUMNS} for row in rows)])
    return file.rows()
