"""Made-up result rows for tests of files, tables and figures."""

from benchmarks.grid.cells import make_cells
from benchmarks.grid.rows import COLUMNS


def rows_for(experiment, *, streams, methods, sizes=(100, 1000), seeds=(0, 1), **options):
    """One complete row per cell, with accuracies that tell method, size and seed apart."""
    rows = []
    for cell in make_cells(experiment, streams, methods, sizes, seeds, **options):
        level = 0.5 + 0.1 * methods.index(cell.method) + 0.0001 * cell.memory_size
        accuracy = level + 0.02 * cell.seed
        row = {**dict.fromkeys(COLUMNS), **cell.row(), "accuracy": accuracy}
        row["accuracy_per_experience"] = [accuracy / 2, accuracy]
        row["class_counts"] = [3, 1]
        rows.append(row)
    return rows


def lines_of(text):
    """The cells of a Markdown table, line by line."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
