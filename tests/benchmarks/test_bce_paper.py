"""The published tables in `benchmarks/bce_paper.py`."""

from benchmarks.bce_paper import COLUMNS, DATA, TABLE_4, published


def test_published__has_ten_data_sets_with_a_maximum_and_an_average_by_method():
    assert set(TABLE_4) == set(DATA)
    for name in DATA:
        found = published(name)
        assert tuple(found) == COLUMNS
        assert all(best is None or 0.4 < mean <= best < 1 for best, mean in found.values())
        assert (found["CSPA"] == [None, None]) == (name == "magic04")
