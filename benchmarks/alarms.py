"""How often do the warnings about tables of labels and of features come where nothing is wrong?

Published pools of base clusterings and labelled features are read as users have them: pools whole and by
twenty columns, as arrays, as files of numbers and of text; features as arrays and as files, mixed ones also
with their categories and empty cells. A table that is refused counts, too.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from accuracy import pool
from features_data import BUNDLED, SOURCES, arff, arff_table

from bigcons import Ensemble
from bigcons.errors import InvalidInputError
from bigcons.io.features import open_features

MOST, N_COLUMNS, N_DRAWS = 20_000, 20, 5


def in_file(path: Path, frame: pd.DataFrame, read: Callable) -> tuple[str, Callable]:
    frame.to_csv(path, index=False)
    return path.name, partial(read, path)


def of_labels(folder: Path, name: str) -> Iterator[tuple[str, Callable]]:
    """Yield the readings of a pool, shuffled: it is stored by class."""
    rng = np.random.default_rng(0)
    members = rng.permutation(pool(name)[0])
    for draw in range(N_DRAWS + 1):
        columns = rng.permutation(members.shape[1])[: None if draw == 0 else N_COLUMNS]
        frame = pd.DataFrame(members[:, columns], columns=[f"run{u}" for u in columns])
        yield f"{name}-{draw}", partial(Ensemble.from_labels, frame.to_numpy())
        yield in_file(folder / f"{name}-{draw}.csv", frame, Ensemble.from_labels)
        words = frame.apply(lambda column: "c" + column.astype(str))
        yield in_file(folder / f"{name}-{draw}-text.csv", words, Ensemble.from_labels)


def of_features(folder: Path, name: str) -> Iterator[tuple[str, Callable]]:
    """Yield the readings of features: as numbers and, where there are categories, as they were published."""
    numbers = pd.DataFrame(SOURCES[name](2000)[0][:MOST]).add_prefix("x")
    yield name, partial(open_features, numbers.to_numpy())
    yield in_file(folder / f"{name}.csv", numbers, open_features)
    if getattr(SOURCES[name], "func", None) is arff:
        yield in_file(folder / f"{name}-mixed.csv", arff_table(name).iloc[:, :-1], open_features)


def told(read: Callable) -> list[str]:
    """Return the warnings about a table that is read, and why it is refused."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            read()
        except InvalidInputError as error:
            return [str(error)]
    return [str(each.message) for each in caught if issubclass(each.category, UserWarning)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smallest", action="store_true", help="four sets; writes nothing")
    smallest, folder = parser.parse_args().smallest, Path(os.environ.get("BIGCONS_DATA", "")) / "pools"
    pools = [] if smallest else sorted(folder.glob("*.mat"))
    sets = [("labels", of_labels, path.stem) for path in pools]
    sets += [("features", of_features, name) for name in (BUNDLED if smallest else SOURCES)]
    counts, alarms = {"labels": 0, "features": 0}, {}
    for kind, readings_of, of_set in sets:
        with tempfile.TemporaryDirectory() as folder:
            for name, read in readings_of(Path(folder), of_set):
                counts[kind] += 1
                if messages := told(read):
                    alarms[name] = messages
    print(counts, alarms)
    if pools:
        path = Path(__file__).parent / "results" / "alarms.json"
        path.write_text(json.dumps({"readings": counts, "alarms": alarms}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
