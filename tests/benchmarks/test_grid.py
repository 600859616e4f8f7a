"""The grid measures what it says, resumes after kill -9, and shares its work without races."""

import csv
import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch

from avalanche_gmc.strategies import CoresetGDumb
from benchmarks import UsageError
from benchmarks.__main__ import main
from benchmarks.data import datasets
from benchmarks.grid import runner, selection, workers
from benchmarks.grid.buffers import make_buffer, make_embedding
from benchmarks.grid.cells import make_cells, make_groups
from benchmarks.grid.methods import METHODS
from benchmarks.grid.rows import ResultsFile, numbers, write_rows
from benchmarks.grid.training import accuracy
from benchmarks.streams.opening import csv_stream_name, open_stream

OPTIONS = "--streams digits --methods reservoir gmc-last-layer --memory-sizes 10 20 30 --seeds 0 1"
SMALL = [*OPTIONS.split(), "--epochs", "5", "--train-fraction", "0.3"]
TIMES = ("embedding_seconds", "selection_seconds", "training_seconds")


def small_cells(experiment="gdumb", methods=("reservoir", "gmc-last-layer"), **options):
    options = {"epochs": 5, "train_fraction": 0.3, **options}
    return make_cells(experiment, ["digits"], list(methods), [10, 20, 30], [0, 1], **options)


def run_here(cells, results):
    run_grid_here(make_groups(cells), jobs=1, threads=1, results=results, root=None)
    return ResultsFile(results / f"{cells[0].experiment}.csv").rows()


def run_grid_here(groups, *, jobs, threads, results, root):
    """In place of worker processes."""
    for group in groups:
        assert runner.run_group(group, results, root)


def comparable(rows):
    """Rows without their times and surroundings, in a fixed order."""
    stripped = [
        {k: v for k, v in row.items() if k not in (*TIMES, "device", "versions")} for row in rows
    ]
    return sorted(stripped, key=lambda row: list(row.values()))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    torch.set_num_threads(1)
    return run_here(small_cells(), tmp_path_factory.mktemp("undisturbed"))


def start(results, *more):
    quiet = ["-W", "ignore", "-W", "default:resource_tracker"]
    command = [sys.executable, *quiet, "-m", "benchmarks", "run", "gdumb"]
    command += [*SMALL, "--results", str(results), "--jobs", "1", *more]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wait_for_rows(path, count, process):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and path.read_text().count("\n") > count:
            return
        time.sleep(0.005)
    pytest.fail(f"no {count} rows came: {process.communicate()}")


def test_killed_run_resumes_to_the_same_rows(tmp_path, undisturbed):
    path = tmp_path / "gdumb.csv"
    process = start(tmp_path)
    wait_for_rows(path, 2, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = ResultsFile(path).rows()
    assert 2 <= len(before) < len(undisturbed)
    after = run_here(small_cells(), tmp_path)
    assert after[: len(before)] == before
    assert comparable(after) == comparable(undisturbed)
    assert not list((tmp_path / ".work").glob("*.pt*"))


def test_two_runners_share_a_grid(tmp_path, undisturbed):
    runners = [start(tmp_path), start(tmp_path)]
    outputs = [runner.communicate(timeout=200) for runner in runners]
    assert [runner.returncode for runner in runners] == [0, 0], outputs
    assert not any("leaked" in errors for _, errors in outputs)
    rows = ResultsFile(tmp_path / "gdumb.csv").rows()
    assert comparable(rows) == comparable(undisturbed)


def test_finished_grid_runs_nothing(tmp_path, undisturbed, monkeypatch):
    file = ResultsFile(tmp_path / "gdumb.csv")
    write_rows(file.path, undisturbed)
    monkeypatch.setattr(runner, "open_stream", None)
    content = file.path.read_bytes()
    run_here(small_cells(), tmp_path)
    assert file.path.read_bytes() == content


def test_claimed_group_is_left_alone_until_it_is_free(tmp_path, monkeypatch):
    group = make_groups(small_cells())[0]
    (tmp_path / ".work").mkdir()
    from filelock import FileLock

    monkeypatch.setattr(runner, "run_claimed", lambda *_: None)
    monkeypatch.setattr(runner, "WAIT_SECONDS", 0)
    with FileLock(tmp_path / ".work" / f"{group.name()}.lock"):
        assert not runner.run_group(group, tmp_path, None)
    assert runner.run_group(group, tmp_path, None)


def test_failing_cell_stops_the_run_and_names_itself(tmp_path, monkeypatch):
    measured = []

    def measure(cell, *_):
        if cell.memory_size == 20:
            raise ValueError("the loss is not finite")
        measured.append(cell)
        return original(cell, *_)

    original = runner.measure
    monkeypatch.setattr(runner, "measure", measure)
    expected = "gdumb / digits / reservoir / 20 exemplars / seed 0 failed: the loss is not finite"
    with pytest.raises(selection.CellError, match=re.escape(expected)):
        run_here(small_cells(), tmp_path)
    assert len(ResultsFile(tmp_path / "gdumb.csv").rows()) == len(measured) == 1


def test_failure_in_a_worker_ends_the_command_with_1(tmp_path, capfd):
    # An embedding that no machine can hold fails in a worker only.
    options = ["--streams", "digits", "--methods", "gmc-projection", "--memory-sizes", "10"]
    options += ["--dim", str(10**12), "--seeds", "0", "--epochs", "1", "--jobs", "1"]
    assert main(["run", "gdumb", *options, "--results", str(tmp_path)]) == 1
    error = capfd.readouterr().err
    assert "stopped: gdumb / digits / gmc-projection / 10 exemplars / seed 0 failed" in error


def test_missing_data_ends_the_command_with_1_before_any_worker(tmp_path, capsys, monkeypatch):
    offline = datasets.Dataset("electricity", {})
    monkeypatch.setitem(datasets.DATASETS, "electricity", offline)
    options = ["--streams", "sorted-electricity", "--data-root", str(tmp_path)]
    assert main(["run", "gdumb", *options, "--results", str(tmp_path)]) == 1
    assert "Put these files under" in capsys.readouterr().err


def test_interrupted_selection_is_taken_up_again(tmp_path, monkeypatch):
    cells = [c for c in small_cells() if c.seed == 0 and c.method == "gmc-last-layer"]

    def broken(*_):
        raise ValueError("out of luck")

    monkeypatch.setattr(runner, "measure", broken)
    with pytest.raises(selection.CellError):
        run_here(cells, tmp_path)
    assert len(list((tmp_path / ".work").glob("*.pt"))) == 1
    monkeypatch.undo()
    monkeypatch.setattr(runner, "select", broken)
    assert len(run_here(cells, tmp_path)) == 3


def test_shared_selection_equals_each_buffer_on_its_own():
    cells = small_cells(methods=["gmc-last-layer"])[:3]
    stream = open_stream("digits", None, 0.3)
    together = selection.select(cells, stream)
    for cell in cells:
        buffer = make_buffer(cell, make_embedding(cell, stream.make_model))
        for experience in stream.benchmark.train_stream:
            buffer.update_from_dataset(experience.dataset)
        alone = selection.memory_of(buffer)
        (memory,) = together[cell.key()].memories.values()
        torch.testing.assert_close(memory.inputs, alone.inputs, rtol=0, atol=0)
        torch.testing.assert_close(memory.weights, alone.weights, rtol=0, atol=0)


def test_stream_is_embedded_once_for_all_sizes(monkeypatch):
    calls = []
    original = selection.make_embedding

    def counting(cell, make_model):
        embedding = original(cell, make_model)
        embed = embedding.embed
        embedding.embed = lambda *args: calls.append(1) or embed(*args)
        return embedding

    monkeypatch.setattr(selection, "make_embedding", counting)
    cells = small_cells(methods=["gmc-last-layer"])[:3]
    selection.select(cells, open_stream("digits", None, 0.3))
    assert len(calls) == 5


def test_gdumb_row_agrees_with_the_strategy_used_by_hand(tmp_path):
    """The grid selects first and trains once; the strategy does both at each experience."""
    (cell,) = make_cells(
        "gdumb", ["digits"], ["gmc-last-layer"], [100], [0], epochs=60, train_fraction=0.5
    )
    (row,) = run_here([cell], tmp_path)
    stream = open_stream("digits", None, 0.5)
    model = stream.make_model()
    policy = make_buffer(cell, make_embedding(cell, stream.make_model))
    strategy = CoresetGDumb(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=cell.learning_rate),
        criterion=torch.nn.CrossEntropyLoss(),
        mem_size=100,
        storage_policy=policy,
        train_on="last",
        train_mb_size=cell.batch_size,
        train_epochs=cell.epochs,
        evaluator=None,
        seed=7,
    )
    for experience in stream.benchmark.train_stream:
        strategy.train(experience)
    by_hand = accuracy(strategy.model, stream.test_inputs, stream.test_labels)
    # Same memory, other initial weights: the spread over initial weights is about 0.01.
    assert float(row["accuracy"]) == pytest.approx(by_hand, abs=0.05)
    assert numbers(row["class_counts"]) == [policy.class_counts.get(k, 0) for k in range(10)]


def test_row_says_everything(undisturbed):
    for row in undisturbed:
        assert 0 <= float(row["accuracy"]) <= 1
        counts = numbers(row["class_counts"])
        assert len(counts) == 10 and sum(counts) == int(row["memory_size"])
        assert all(float(row[column]) >= 0 for column in TIMES)
        assert "torch=" in row["versions"] and "avalanche=" in row["versions"]
        assert row["device"].startswith("cpu")
        assert (row["residual"] != "") == (row["method"] == "gmc-last-layer")
        assert row["accuracy_per_experience"] == ""


def test_per_task_row_ends_with_the_final_accuracy(tmp_path):
    final = small_cells()[3:4]
    per_task = small_cells("gdumb-per-task")[3:4]
    (row,), (final_row,) = run_here(per_task, tmp_path), run_here(final, tmp_path)
    accuracies = numbers(row["accuracy_per_experience"])
    assert len(accuracies) == 5 and row["accuracy"] == final_row["accuracy"]
    assert f"{accuracies[-1]:.6g}" == row["accuracy"]
    counts = [numbers(part) for part in row["class_counts_per_experience"].split("|")]
    assert sum(counts[0][2:]) == 0 and len(counts) == 5


@pytest.mark.parametrize("method", ["reservoir", "gmc-last-layer", "gmc-local"])
def test_replay_trains_through_the_stream(tmp_path, method):
    (cell,) = make_cells("replay", ["digits"], [method], [20], [0], epochs=3, train_fraction=0.3)
    (row,) = run_here([cell], tmp_path)
    assert len(numbers(row["accuracy_per_experience"])) == 5
    assert sum(numbers(row["class_counts"])) == 20
    assert float(row["accuracy"]) > 0.15  # without a memory it ends below 0.2 of two classes


def test_class_frequencies_count_the_stream(tmp_path):
    (cell,) = make_cells("class-frequencies", ["sorted-digits"], [], [], [])
    (row,) = run_here([cell], tmp_path)
    counts = [numbers(part) for part in row["class_counts_per_experience"].split("|")]
    assert len(counts) == 5 and sum(map(sum, counts)) == 1258 and row["accuracy"] == ""


def test_csv_of_the_users_own_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "run_grid", run_grid_here)
    path = tmp_path / "my table.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["when", "x", "label & more"])
        writer.writerows([i, i % 7, "late" if i > 100 else "early"] for i in range(200))
    options = ["--csv", str(path), "--target", "label & more", "--sort-by", "when"]
    options += ["--methods", "reservoir", "gmc-last-layer", "--memory-sizes", "10"]
    options += ["--seeds", "0", "--epochs", "60", "--jobs", "1", "--results", str(tmp_path)]
    assert main(["run", "gdumb", *options]) == 0
    rows = ResultsFile(tmp_path / "gdumb.csv").rows()
    assert len(rows) == 2 and all(row["stream"].startswith("csv:") for row in rows)
    assert all(float(row["accuracy"]) > 0.6 for row in rows)


def own_table(path, threshold):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["when", "x", "label & more"])
        writer.writerows([i, i % 7, "late" if i > threshold else "early"] for i in range(200))
    return path


def run_own(path, results, *options):
    command = ["run", "gdumb", "--csv", str(path), "--target", "label & more"]
    command += ["--methods", "reservoir", "--memory-sizes", "10", "--seeds", "0", "--epochs", "2"]
    return main([*command, "--jobs", "1", "--results", str(results), *options])


def test_a_table_is_known_by_its_content(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(workers, "run_grid", run_grid_here)
    table, results = tmp_path / "t.csv", tmp_path / "results"
    assert run_own(own_table(table, 100), results) == 0
    assert run_own(own_table(table, 20), results) == 0
    assert "1 of 1 cells" not in capsys.readouterr().err
    (tmp_path / "other").mkdir()
    assert run_own(own_table(tmp_path / "other" / "t.csv", 60), results) == 0
    rows = ResultsFile(results / "gdumb.csv").rows()
    assert len(rows) == 3 == len({row["stream"] for row in rows})
    assert run_own(table, results) == 0
    assert "1 of 1 cells" in capsys.readouterr().err
    assert ResultsFile(results / "gdumb.csv").rows() == rows


def test_a_table_that_changes_during_the_run_is_refused(tmp_path):
    name = csv_stream_name(own_table(tmp_path / "t.csv", 100), "label & more", None)
    own_table(tmp_path / "t.csv", 20)
    with pytest.raises(UsageError, match="has changed"):
        open_stream(name)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("label & more\n1\n2\n", "no column besides"),
        ("x,label & more\n1,1\n2,1\n", "only one class"),
        ("x,label & more\n1,1\n2,2\n", "too few rows"),
        ("x,label & more\n" + "1,1\n2,2\n" * 4, "cannot be cut into 10 experiences"),
        (None, "cannot be read"),
    ],
)
def test_bad_tables_end_in_one_sentence(tmp_path, capsys, table, message):
    if table is not None:
        (tmp_path / "t.csv").write_text(table)
    assert run_own(tmp_path / "t.csv", tmp_path) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_fraction_that_leaves_nothing_ends_in_one_sentence(tmp_path, capsys, monkeypatch):
    def run_grid_here(groups, *, jobs, threads, results, root):
        workers.work(groups[0], results, root)

    monkeypatch.setattr(workers, "run_grid", run_grid_here)
    options = ["--methods", "reservoir", "--memory-sizes", "10", "--seeds", "0", "--epochs", "1"]
    command = ["run", "gdumb", "--streams", "digits", *options, "--train-fraction", "0.001"]
    assert main([*command, "--results", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "take a larger --train-fraction" in error and "Traceback" not in error


@pytest.mark.parametrize(
    "option",
    [["--draws", "64"], ["--mode", "fast"], ["--dim", "5"], ["--same-dim-as", "4"]],
    ids=" ".join,
)
def test_an_option_that_no_method_looks_at_is_refused(tmp_path, capsys, option):
    command = ["run", "gdumb", "--methods", "gmc", "reservoir", "--results", str(tmp_path)]
    assert main([*command, *option]) == 2
    error = capsys.readouterr().err
    assert f"{option[0]} changes nothing for gmc, reservoir: choose --methods among gmc-" in error
    assert not list(tmp_path.iterdir())


def test_results_on_a_file_end_in_one_sentence(tmp_path, capsys):
    (tmp_path / "file").touch()
    for command in (["run", "gdumb"], ["figures"], ["claims"]):
        assert main([*command, "--results", str(tmp_path / "file")]) == 2
        error = capsys.readouterr().err
        assert "is a file: name a folder" in error and error.count("\n") == 1


def test_runs_go_to_a_folder_of_the_users_by_default(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "run_grid", run_grid_here)
    monkeypatch.chdir(tmp_path)
    options = ["--methods", "reservoir", "--memory-sizes", "10", "--seeds", "0", "--epochs", "1"]
    assert main(["run", "gdumb", "--streams", "digits", *options]) == 0
    assert len(ResultsFile(tmp_path / "results/gdumb.csv").rows()) == 1


@pytest.mark.parametrize("experiment", ["rivals", "rivals-replay"])
def test_every_method_can_be_named(tmp_path, experiment):
    """Those that look at the model get the one of the last training, and their time is told."""
    options = {"epochs": 2, "train_fraction": 0.3}
    cells = make_cells(experiment, ["digits"], list(METHODS), [30], [0], **options)
    rows = run_here(cells, tmp_path)
    assert {row["method"] for row in rows} == set(METHODS)
    for row in rows:
        assert sum(numbers(row["class_counts"])) == 30, row["method"]
        assert float(row["selection_seconds"]) > 0 and float(row["training_seconds"]) > 0
        assert 0 <= float(row["accuracy"]) <= 1


def test_avalanches_herding_sees_the_trained_model_and_leaves_its_mode():
    (cell,) = make_cells("rivals", ["digits"], ["avalanche-herding"], [20], [0])
    stream = open_stream("digits", train_fraction=0.3)
    model = stream.make_model().train()
    buffer, data = make_buffer(cell, None), stream.benchmark.train_stream[0].dataset
    strategy = SimpleNamespace(model=model, device="cpu", eval_mb_size=50)
    buffer.post_adapt(strategy, stream.benchmark.train_stream[0])
    assert model.training and len(buffer.buffer) == 20
    for label in {int(target) for target in data.targets}:
        inputs = torch.stack([x for x, y, *_ in data if int(y) == label])
        with torch.no_grad():
            features = model[:-1](inputs)
        first = inputs[(features - features.mean(0)).square().sum(1).argmin()]
        assert torch.equal(next(x for x, y, *_ in buffer.buffer if int(y) == label), first)


def test_default_memory_of_the_library_runs_in_the_grid(tmp_path):
    (cell,) = small_cells(methods=["gmc"])[:1]
    (row,) = run_here([cell], tmp_path)
    assert float(row["residual"]) < 1 and row["draws"] == "0" and row["weighted"] == "yes"
