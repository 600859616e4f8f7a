"""How well memories match gradients at draws that did not choose them."""

from benchmarks.__main__ import main


def rows(capsys, *options):
    assert main(["unseen-draws", "--train-fraction", "0.2", "--seeds", "0", *options]) == 0
    _, _, *lines = capsys.readouterr().out.splitlines()
    return {
        cells[1]: cells[2:] for cells in ([c.strip() for c in x.split("|")[1:-1]] for x in lines)
    }


def test_a_memory_of_everything_leaves_nothing(capsys):
    found = rows(capsys, "--memory-sizes", "1000", "--draws", "2")
    assert list(found) == ["reservoir", "GMC (default)", "GMC, 2 draws"]
    for own, unseen, effective in found.values():
        assert own in ("–", "0.0000") and unseen == "0.0000" and effective == "252"


def test_a_match_holds_at_unseen_draws_the_better_the_more_draws_chose_it(capsys):
    found = rows(capsys, "--memory-sizes", "50", "--draws", "1", "16")
    own, unseen, size = ({name: cells[k] for name, cells in found.items()} for k in range(3))
    one, many = "GMC, 1 draw", "GMC, 16 draws"
    assert float(own[one]) < float(own[many]) < float(unseen[many]) < float(unseen[one])
    assert float(unseen[one]) < float(unseen["reservoir"])
    assert size["reservoir"] == "50" and 0 < float(size[many]) < 50
