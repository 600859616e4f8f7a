"""Grids hold every combination once, group what shares work, and refuse nonsense early."""

import argparse
import itertools

import pytest

from benchmarks import UsageError
from benchmarks.__main__ import main
from benchmarks.commands import run
from benchmarks.grid.cells import cost, make_cells, make_groups, shard
from benchmarks.grid.experiments import EXPERIMENTS
from benchmarks.grid.methods import METHODS
from benchmarks.grid.rows import Cell

GRID = {
    "streams": ["digits", "sorted-digits"],
    "methods": ["gmc-last-layer", "gmc-projection", "reservoir", "class-balanced"],
    "memory_sizes": [10, 20],
    "seeds": [0, 1, 2],
}


def cells(**options):
    return make_cells("gdumb", *GRID.values(), **options)


def test_grid_is_the_product_without_repetition():
    grid = cells()
    assert len(grid) == 2 * 4 * 2 * 3 == len({cell.key() for cell in grid})


def test_defaults_are_the_papers():
    cell = Cell("gdumb", "digits", "gmc-projection", 100, 0, "mlp")
    assert (cell.epochs, cell.batch_size, cell.learning_rate) == (200, 100, 1e-3)
    assert (cell.draws, cell.dim, cell.weighted) == (4, 2000, True)


def test_groups_share_stream_seed_and_embedding_and_nothing_else():
    groups = make_groups(cells())
    assert sum(len(group.cells) for group in groups) == len(cells())
    assert len(groups) == 2 * 3 * 3
    for group in groups:
        assert len({(c.stream, c.seed, METHODS[c.method].family) for c in group.cells}) == 1
    assert len({group.name() for group in groups}) == len(groups)


def test_group_name_does_not_depend_on_which_cells_are_left():
    whole, part = make_groups(cells())[0], make_groups(cells()[1:])[0]
    assert whole.name() == part.name()


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shards_are_disjoint_and_complete(count):
    groups = make_groups(cells())
    parts = [shard(groups, index, count) for index in range(count)]
    assert sorted(g.name() for g in itertools.chain(*parts)) == sorted(g.name() for g in groups)


def test_options_a_method_ignores_do_not_identify_its_cells():
    keys = {c.key() for c in cells(draws=4, dim=2000) if c.method == "reservoir"}
    assert keys == {c.key() for c in cells(draws=8, dim=500) if c.method == "reservoir"}
    for method, option in [("gmc-last-layer", "draws"), ("gmc-projection", "dim")]:
        one = {c.key() for c in cells(**{option: 1}) if c.method == method}
        assert one.isdisjoint({c.key() for c in cells(**{option: 2}) if c.method == method})


def test_experiments_name_known_streams_and_methods():
    for name, experiment in EXPERIMENTS.items():
        grid = make_cells(
            name, experiment.streams, experiment.methods, experiment.memory_sizes, [0]
        )
        assert grid and all(cost(cell) >= 0 for cell in grid)


def test_tables_and_images_are_trained_as_the_experiment_says():
    streams, methods = ("sorted-electricity", "split-cifar10"), ["gmc"]
    grid = make_cells("replay", streams, methods, [100], [0], defaults={"epochs": 7})
    assert [cell.epochs for cell in grid] == [50, 20]
    assert {c.epochs for c in make_cells("replay", streams, methods, [100], [0], epochs=3)} == {3}
    grid = make_cells("gdumb", streams, methods, [100], [0], defaults={"epochs": 7})
    assert {cell.epochs for cell in grid} == {7}


def test_bfloat16_is_for_convolutional_networks_on_machines_that_have_it(monkeypatch, capsys):
    streams = ["--streams", "sorted-electricity", "split-cifar10"]
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    args = parser.parse_args(["gdumb", *streams, "--precision", "bf16"])
    for fast, said in (("bf16", ""), ("float32", "bfloat16 is slow")):
        monkeypatch.setattr("benchmarks.grid.training.fast_precision", lambda fast=fast: fast)
        grid = run.grid_of(args)
        assert {cell.precision for cell in grid if cell.model == "mlp"} == {"float32"}
        assert {cell.precision for cell in grid if cell.model == "resnet18"} == {fast}
        assert said in capsys.readouterr().err


def test_papers_grid_is_complete():
    assert EXPERIMENTS["gdumb"].memory_sizes == (100, 200, 500, 1000, 2000, 5000)
    assert len(EXPERIMENTS["gdumb"].streams) == 4
    assert EXPERIMENTS["gdumb-per-task"].memory_sizes == (1000,)
    for name in ("gdumb", "gdumb-per-task", "replay"):
        assert EXPERIMENTS[name].methods[0] == next(iter(METHODS)) == "gmc"
    wanted = {"gdumb", "gdumb-per-task", "facility-location", "replay", "local"}
    assert wanted | {"class-frequencies"} <= set(EXPERIMENTS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gdumbo"], "gdumbo"),
        (["gdumb", "--methods", "magic"], "unknown method 'magic'"),
        (["gdumb", "--streams", "mnist"], "unknown stream 'mnist'"),
        (["gdumb", "--memory-sizes", "0"], "--memory-sizes: must be at least 1 but is 0"),
        (["gdumb", "--memory-sizes", "ten"], "--memory-sizes: must be a whole number but is 'ten'"),
        (["gdumb", "--seeds", "-1"], "--seeds: must be at least 0 but is -1"),
        (["gdumb", "--epochs", "0"], "--epochs: must be at least 1"),
        (["gdumb", "--jobs", "0"], "--jobs: must be at least 1"),
        (["gdumb", "--draws", "0"], "--draws: must be at least 1"),
        (["gdumb", "--train-fraction", "1.5"], "--train-fraction: must lie in"),
        (["gdumb", "--shard", "5/4"], "'5/4' is not I/K"),
        (["gdumb", "--shard", "0/4"], "'0/4' is not I/K"),
        (["gdumb", "--target", "label"], "name it with --csv"),
        (["gdumb", "--csv", "no-such.csv"], "--csv needs --target"),
        (["gdumb", "--csv", "no-such.csv", "--target", "y"], "cannot be read"),
        ([], "EXPERIMENT"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, list) else "",
)
def test_bad_options_exit_2_with_one_sentence(arguments, message, capsys, tmp_path):
    extra = ["--results", str(tmp_path)] if arguments else []
    assert main(["run", *arguments, *extra]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("python -m benchmarks run: error: ") and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_unknown_command_and_no_command_exit_2(capsys):
    assert main(["fly"]) == 2
    assert "unknown command 'fly'" in capsys.readouterr().err
    assert main([]) == 2
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert "make demo" in listed or "demo" in listed


@pytest.mark.parametrize("arguments", [["--seeds", "0"], ["--jobs", "0"], ["--seeds", "x"]])
def test_demo_refuses_bad_options(arguments, capsys):
    assert main(["demo", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_usage_error_is_a_value_error():
    with pytest.raises(ValueError, match="unknown method"):
        make_cells("gdumb", ["digits"], ["magic"], [10], [0])
    assert issubclass(UsageError, ValueError)


def test_equal_dimensions_are_cells_of_their_own_where_there_are_more_draws():
    """Digits: ten classes, 128 features and a bias: 1,290 dimensions a draw."""
    what = ["digits"], ["gmc-last-layer", "reservoir"], [10], [0]
    dims = {}
    for draws in (1, 4, 16, 64):
        grid = make_cells("gdumb", *what, draws=draws, same_dim_as=4)
        dims[draws] = next(cell.dim for cell in grid if cell.method == "gmc-last-layer")
        assert [cell.dim for cell in grid if cell.method == "reservoir"] == [0]
    assert dims == {1: 0, 4: 0, 16: 1290 * 4 // 16, 64: 1290 * 4 // 64}


def test_the_draws_experiment_has_every_variant_once():
    grid = make_cells("draws", ["sorted-electricity"], ["gmc-last-layer", "reservoir"], [9], [0])
    ours = [(cell.draws, cell.dim) for cell in grid if cell.method == "gmc-last-layer"]
    whole = [(1, 0), (4, 0), (16, 0), (64, 0)]
    assert sorted(ours) == sorted([*whole, (16, 64), (64, 16), (4, 64), (16, 16), (64, 4)])
    assert len(grid) == len(ours) + 1


def test_streams_are_run_as_far_as_the_experiment_says_unless_asked_otherwise():
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    grid = run.grid_of(parser.parse_args(["draws"]))
    found = {(c.stream, c.train_fraction, c.memory_size) for c in grid}
    assert {f for f in found if f[0] == "sorted-covertype"} == {
        ("sorted-covertype", 0.1, 200),
        ("sorted-covertype", 0.1, 1000),
    }
    assert {f[1:] for f in found if f[0] == "digits"} == {(1.0, 50), (1.0, 200)}
    assert {c.seed for c in grid if c.stream == "split-fashion-mnist"} == {0, 1, 2}
    given = ["--train-fraction", ".3", "--memory-sizes", "7", "--seeds", "9", "--draws", "2"]
    for cell in run.grid_of(parser.parse_args(["draws", *given])):
        assert (cell.train_fraction, cell.memory_size, cell.seed) == (0.3, 7, 9)
        assert cell.draws in (0, 2)


@pytest.mark.parametrize("experiment", ["rivals", "rivals-replay"])
def test_rivals_meet_on_four_streams(experiment):
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    grid = run.grid_of(parser.parse_args([experiment]))
    found = {
        stream: (
            sorted({c.memory_size for c in grid if c.stream == stream}),
            len({c.seed for c in grid if c.stream == stream}),
            {c.epochs for c in grid if c.stream == stream},
        )
        for stream in {c.stream for c in grid}
    }
    replayed = experiment == "rivals-replay"
    tables, images = ([50, 200, 1000], 5), ([100, 500], 3)
    assert found == {
        "digits": (*tables, {10 if replayed else 200}),
        "sorted-electricity": (*tables, {10 if replayed else 200}),
        "split-fashion-mnist": (*images, {3 if replayed else 200}),
        "imbalanced-mnist": (*images, {5 if replayed else 200}),
    }
