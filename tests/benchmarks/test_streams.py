"""Streams are composed as the paper describes, and nothing of the test set leaks into training."""

import numpy as np
import pytest
import torch

from benchmarks import DataUnavailable, UsageError
from benchmarks.data import arrays, datasets
from benchmarks.data.arrays import Images, Table, table_from_csv
from benchmarks.streams import images, tabular

PAIRS = [{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}]


def made_up_table(rows=500, seed=0):
    generator = np.random.default_rng(seed)
    features = generator.normal(3.0, 5.0, size=(rows, 4)).astype(np.float32)
    features[:, 3] = 7.0
    labels = generator.integers(0, 3, size=rows)
    return Table("made-up", features, labels.astype(np.int64), ("a", "b", "c", "constant"))


def inputs_of(experience):
    return torch.stack([sample[0] for sample in experience.dataset])


def available(name):
    return not datasets.problems(datasets.DATASETS[name].folder, datasets.data_root())


def test_digits_bring_two_new_classes_at_a_time():
    benchmark = tabular.digits()
    assert [set(e.classes_in_this_experience) for e in benchmark.train_stream] == PAIRS
    assert [set(e.classes_in_this_experience) for e in benchmark.test_stream] == PAIRS
    sizes = [
        sum(len(e.dataset) for e in s) for s in (benchmark.train_stream, benchmark.test_stream)
    ]
    assert sizes == [1258, 539]


def test_digits_in_three_experiences_lose_no_class():
    classes = [set(e.classes_in_this_experience) for e in tabular.digits(3).train_stream]
    assert classes == [{0, 1, 2, 3}, {4, 5, 6}, {7, 8, 9}]
    with pytest.raises(UsageError, match="11 experiences"):
        tabular.digits(11)


def test_digits_feature_is_the_most_informative_pixel():
    from sklearn.feature_selection import mutual_info_classif

    table = arrays.digits()
    (_, labels), _, rows = tabular.standardized(table, tabular.DIGITS_TEST_SHARE)
    information = mutual_info_classif(table.features[rows], labels, discrete_features=True)
    assert information.argmax() == tabular.DIGITS_FEATURE


def test_samples_carry_the_task_label_that_balanced_buffers_need():
    for benchmark in (tabular.digits(), tabular.sorted_tabular(made_up_table())):
        inputs, label, task = benchmark.train_stream[0].dataset[0]
        assert inputs.dtype == torch.float32 and int(label) >= 0 and task == 0
        assert benchmark.train_stream[0].task_labels == [0]


def test_sorted_stream_is_in_order_and_cut_into_equal_parts():
    table = made_up_table(rows=503)
    benchmark = tabular.sorted_tabular(table, feature="b", n_experiences=10)
    sizes = [len(e.dataset) for e in benchmark.train_stream]
    assert len(sizes) == 10 and max(sizes) - min(sizes) <= 1
    column = torch.cat([inputs_of(e)[:, 1] for e in benchmark.train_stream])
    assert (column.diff() >= 0).all()
    assert sum(sizes) + len(benchmark.test_stream[0].dataset) == 503


def test_sorted_stream_keeps_rows_and_labels_together():
    table = made_up_table()
    table = Table("t", table.features, (table.features[:, 0] > 3).astype(np.int64), ("a",) * 4)
    benchmark = tabular.sorted_tabular(table)
    labels = [int(y) for e in benchmark.train_stream for y in e.dataset.targets]
    assert labels == sorted(labels)


def test_iid_stream_is_made_of_uniform_subsamples():
    table = made_up_table(rows=5000)
    benchmark = tabular.iid_tabular(table)
    means = torch.stack([inputs_of(e).mean(0) for e in benchmark.train_stream])
    assert (means.abs() < 4 / 400**0.5).all()
    rows = {tuple(x.tolist()) for e in benchmark.train_stream for x in inputs_of(e)}
    assert len(rows) == 4000


def test_standardisation_looks_at_training_rows_only():
    table = made_up_table()
    (train, _), (test, _), rows = tabular.standardized(table, 0.2)
    torch.testing.assert_close(train[:, :3].mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(train[:, :3].std(0, correction=0), torch.ones(3))
    assert (train[:, 3] == 0).all()
    spoilt = table.features.copy()
    others = np.setdiff1d(np.arange(len(spoilt)), rows)
    spoilt[others] *= 1000
    again = Table("made-up", spoilt, table.labels, table.feature_names)
    torch.testing.assert_close(tabular.standardized(again, 0.2)[0][0], train, rtol=0, atol=0)
    assert len(test) == len(others) == 100


def test_indicators_keep_their_scale():
    table = made_up_table()
    features = table.features.copy()
    features[:, 2] = np.arange(500) % 50 == 0
    (train, _), _, _ = tabular.standardized(Table("t", features, table.labels, ("a",) * 4), 0.2)
    assert set(train[:, 2].tolist()) == {0.0, 1.0}
    torch.testing.assert_close(train[:, 0].std(correction=0), torch.tensor(1.0))


def test_train_and_test_rows_are_disjoint_and_fixed():
    table = made_up_table()
    (_, train_y), (_, test_y), rows = tabular.standardized(table, 0.2)
    assert len(train_y) + len(test_y) == len(table.labels) == len({*rows.tolist()}) + len(test_y)
    np.testing.assert_array_equal(rows, tabular.standardized(table, 0.2)[2])


def test_train_fraction_thins_the_training_stream_only():
    table = made_up_table(rows=1000)
    whole = tabular.sorted_tabular(table)
    thin = tabular.sorted_tabular(table, train_fraction=0.25)
    assert sum(len(e.dataset) for e in thin.train_stream) == 200
    torch.testing.assert_close(inputs_of(thin.test_stream[0]), inputs_of(whole.test_stream[0]))
    rows = {tuple(x.tolist()) for e in whole.train_stream for x in inputs_of(e)}
    assert all(tuple(x.tolist()) in rows for e in thin.train_stream for x in inputs_of(e))
    with pytest.raises(UsageError, match=r"\(0, 1\]"):
        tabular.sorted_tabular(table, train_fraction=0.0)


def test_image_split_pairs_the_classes_and_normalises():
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, size=(100, 3, 4, 4), dtype=np.uint8)
    labels = np.tile(np.arange(10), 10)
    benchmark = images.split_images(
        Images((pixels, labels), (pixels[:50], labels[:50])), images.CIFAR10_PIXELS, 1.0
    )
    assert [set(e.classes_in_this_experience) for e in benchmark.train_stream] == PAIRS
    assert [len(e.dataset) for e in benchmark.test_stream] == [10] * 5
    mean, deviation = (np.array(x)[:, None, None] for x in images.CIFAR10_PIXELS)
    expected = (pixels[0] / 255 - mean) / deviation
    got = benchmark.train_stream[0].dataset[0][0]
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-4, atol=1e-6)


def test_csv_with_numbers_and_categories_becomes_a_stream(tmp_path):
    path = tmp_path / "mine.csv"
    lines = [f"{i},{'red' if i % 2 else 'blue'},{'yes' if i > 50 else 'no'}" for i in range(100)]
    path.write_text("time,colour,label\n" + "\n".join(reversed(lines)) + "\n")
    table = table_from_csv(path.read_bytes(), "label", "mine")
    assert table.feature_names == ("time", "colour_blue", "colour_red")
    assert table.labels.tolist()[0] == 1 and set(table.labels) == {0, 1}
    benchmark = tabular.sorted_tabular(table, "time", 5)
    column = torch.cat([inputs_of(e)[:, 0] for e in benchmark.train_stream])
    assert (column.diff() > 0).all()


@pytest.mark.parametrize(
    ("content", "target", "message"),
    [
        ("a,b\n1,2\n", "label", "no column 'label'"),
        ("a,b\n1,\n2,3\n", "b", "missing values in column 'b'"),
        ("", "a", "cannot be read"),
        ("a,b\n", "a", "no rows"),
        ("a,b\n1,inf\n2,1\n", "a", "not finite"),
        ("a\n1\n2\n", "a", "no column besides 'a'"),
        ("a,b\n1,2\n1,3\n", "a", "only one class"),
    ],
)
def test_bad_csv_is_refused_in_one_sentence(content, target, message):
    with pytest.raises(UsageError, match=message) as caught:
        table_from_csv(content.encode(), target, "mine.csv")
    assert "\n" not in str(caught.value)


def test_unknown_names_are_refused():
    with pytest.raises(UsageError, match="unknown table 'iris'"):
        tabular.sorted_tabular("iris")
    with pytest.raises(UsageError, match="no feature 'z'"):
        tabular.sorted_tabular(made_up_table(), "z")
    with pytest.raises(UsageError, match="cannot be cut"):
        tabular.sorted_tabular(made_up_table(), n_experiences=1000)


def test_damaged_data_is_never_opened(tmp_path, monkeypatch):
    offline = datasets.Dataset("electricity", {})
    monkeypatch.setitem(datasets.DATASETS, "electricity", offline)
    (tmp_path / "electricity").mkdir()
    (tmp_path / "electricity/electricity.csv").write_text("period,up\n1,0\n")
    with pytest.raises(DataUnavailable):
        tabular.sorted_tabular("electricity", root=tmp_path)


@pytest.mark.skipif(not available("electricity"), reason="electricity has not been fetched")
def test_electricity_is_as_published():
    table = arrays.electricity()
    assert table.features.shape == (45_312, 6)
    assert np.bincount(table.labels).tolist() == [26_075, 19_237]


@pytest.mark.slow
@pytest.mark.skipif(not available("covertype"), reason="covertype has not been fetched")
def test_covertype_is_as_published():
    table = arrays.covertype()
    assert table.features.shape == (581_012, 54) and len(table.feature_names) == 54
    counts = np.bincount(table.labels).tolist()
    assert counts == [211_840, 283_301, 35_754, 2_747, 9_493, 17_367, 20_510]
    assert table.features[0, :4].tolist() == [2596, 51, 3, 258]


@pytest.mark.slow
@pytest.mark.skipif(not available("fashion-mnist"), reason="fashion-mnist has not been fetched")
def test_fashion_mnist_in_memory_equals_avalanches_split():
    from avalanche.benchmarks import SplitFMNIST
    from torchvision import transforms

    normalize = transforms.Normalize(*images.FASHION_MNIST_PIXELS)
    pixels = transforms.Compose([transforms.ToTensor(), normalize])
    ours = images.split_fashion_mnist()
    theirs = SplitFMNIST(
        5,
        fixed_class_order=list(range(10)),
        train_transform=pixels,
        eval_transform=pixels,
        dataset_root=datasets.data_root(),
    )
    for mine, other in zip(ours.test_stream, theirs.test_stream, strict=True):
        order = np.argsort(list(mine.dataset.targets), kind="stable")
        assert [mine.dataset.targets[i] for i in order] == list(other.dataset.targets)
        torch.testing.assert_close(inputs_of(mine)[order], inputs_of(other))
    assert [len(e.dataset) for e in ours.train_stream] == [12_000] * 5
    assert [set(e.classes_in_this_experience) for e in theirs.train_stream] == PAIRS


@pytest.mark.slow
@pytest.mark.skipif(not available("cifar10"), reason="cifar10 has not been fetched")
def test_cifar10_has_5000_images_of_each_class():
    images = arrays.cifar10()
    assert images.train[0].shape == (50_000, 3, 32, 32)
    assert np.bincount(images.train[1]).tolist() == [5_000] * 10
    assert np.bincount(images.test[1]).tolist() == [1_000] * 10


def test_cifar10_reads_labels_and_pixels_of_binary_files(tmp_path):
    generator = np.random.default_rng(0)
    rows = generator.integers(0, 256, size=(5, 3073), dtype=np.uint8)
    rows[:3].tofile(tmp_path / "one.bin")
    rows[3:].tofile(tmp_path / "two.bin")
    pixels, labels = arrays.cifar10_batches(tmp_path / "one.bin", tmp_path / "two.bin")
    assert labels.tolist() == rows[:, 0].tolist()
    assert pixels[4, 2, 1, 7] == rows[4, 1 + 2 * 1024 + 1 * 32 + 7]
    np.testing.assert_array_equal(pixels.reshape(5, -1), rows[:, 1:])
