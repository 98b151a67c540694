"""Tables and picture of the rows of accuracy.py.

Every ensemble ranks the contenders by adjusted Rand index (ARI), and says how far each is below the best of
all: its shortfall. Ensembles of one data set are not independent, so tests compare mean ARI on data sets:
Wilcoxon's signed-rank test, with Holm's correction for the number of comparisons. Slow contenders are run on
fewer seeds; hence two tables of each half: every contender on the ensembles that all have, and those with
most ensembles on these. Nothing is dropped without being named.

``--rows`` names the JSON lines; ``--write`` writes accuracy.json, .md, .png and .jsonl.gz of them to results.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

RESULTS = Path(__file__).parent / "results"
NOISE = RESULTS / "accuracy_noise.json"
DEFAULT, PAPER = "pcc", "pcc paper"
IN_DIAGRAM = 14
CASES = ("digits", "isolet", "pendigits", "breast-cancer")
LEVEL = 0.05
ENOUGH = 0.8
"""Share of the ensembles that a contender must have to be in a table."""

INTRODUCTION = """# Accuracy of the methods

Mean scores of the rows of `accuracy.py`, which are in `accuracy.jsonl.gz`. Every contender gets the
labels and the number of classes. The default was chosen on the other half of the data sets; but
failures seen on seeds 2 to 4 of this one prompted a last change of how PCC chooses its start, decided
by other ensembles. Rank and shortfall, the distance from the best contender of the table in ARI, are of
single ensembles. p is of the difference from `pcc`, the default: Wilcoxon's signed-rank test of mean
ARI over data sets, with Holm's correction. Seconds are medians of processor time on one thread.
Contenders named pce and ensembleclustering are other packages; "one-hot k-means", "scaled SVD" and
"spectral" are a few lines of scikit-learn. A refusal counts as ARI 0.

![Mean ranks](accuracy.png)

"""

Key = tuple[str, str, int]
"""Data set, kind of ensemble and seed."""


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines, compressed or not; none if it does not exist."""
    if not path.exists():
        return []
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    return [json.loads(line) for line in text.splitlines()]


class Scores(NamedTuple):
    """Scores of contenders on ensembles that all of them have."""

    keys: list[Key]
    names: list[str]
    ari: np.ndarray
    nmi: np.ndarray
    seconds: np.ndarray

    @classmethod
    def of(cls, cells: Mapping[Key, Mapping[str, Any]], names: Iterable[str]) -> Scores:
        names = sorted(names)
        keys = sorted(key for key, found in cells.items() if set(names) <= set(found))
        tables = [
            np.array([[cells[key][name].get(what, np.nan) for name in names] for key in keys], float)
            for what in ("ari", "nmi", "seconds")
        ]
        return cls(keys, names, *tables)

    def shortfall(self) -> np.ndarray:
        return self.ari.max(axis=1, keepdims=True) - self.ari

    def ranks(self) -> np.ndarray:
        from scipy.stats import rankdata

        return rankdata(-self.ari, axis=1)

    def of_data(self, table: np.ndarray) -> tuple[list[str], np.ndarray]:
        """Return the data sets and a table's means over the ensembles of each."""
        data = sorted({key[0] for key in self.keys})
        of = np.array([key[0] for key in self.keys])
        return data, np.array([table[of == name].mean(axis=0) for name in data])


# ------------------------------------------------------------------------------------------------ tests


def wilcoxon_p(a: np.ndarray, b: np.ndarray) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test, 1 where nothing differs."""
    from scipy.stats import wilcoxon

    difference = np.round(a - b, 6)
    return 1.0 if not difference.any() else float(wilcoxon(difference, zero_method="zsplit").pvalue)


def holm(p: list[float]) -> np.ndarray:
    """Return p-values corrected for their number, by Holm's method."""
    order = np.argsort(p)
    corrected = np.empty(len(p))
    factors = len(p) - np.arange(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(np.array(p)[order] * factors), 1)
    return corrected


def against_default(scores: Scores) -> dict[str, float]:
    """Return the corrected p-value of each contender's difference from the default, over data sets."""
    _, means = scores.of_data(scores.ari)
    others = [name for name in scores.names if name != DEFAULT]
    own = means[:, scores.names.index(DEFAULT)]
    found = holm([wilcoxon_p(own, means[:, scores.names.index(name)]) for name in others])
    return dict(zip(others, found.tolist(), strict=True))


def alike(scores: Scores, names: list[str]) -> list[tuple[int, int]]:
    """Return the longest runs of ``names``, first and last, of which no two differ significantly."""
    _, means = scores.of_data(scores.ari)
    columns = [means[:, scores.names.index(name)] for name in names]
    pairs = list(combinations(range(len(names)), 2))
    corrected = holm([wilcoxon_p(columns[i], columns[j]) for i, j in pairs])
    differ = {pair for pair, p in zip(pairs, corrected, strict=True) if p < LEVEL}
    runs: list[tuple[int, int]] = []
    for first in range(len(names)):
        last = first
        while last + 1 < len(names) and not any((i, last + 1) in differ for i in range(first, last + 1)):
            last += 1
        if last > first and not any(last <= end for _, end in runs):
            runs.append((first, last))
    return runs


# ----------------------------------------------------------------------------------------------- tables


def table_of(scores: Scores) -> dict[str, Any]:
    """Return means, ranks, shortfalls, times and tests of the contenders, best mean rank first."""
    ranks, shortfall = scores.ranks(), scores.shortfall()
    p = against_default(scores) if DEFAULT in scores.names else {}
    contenders = {}
    for i in np.argsort(ranks.mean(axis=0)):
        name, refused, at = scores.names[i], np.isnan(scores.seconds[:, i]), int(shortfall[:, i].argmax())
        contenders[name] = {
            "ari": round(float(scores.ari[:, i].mean()), 4),
            "nmi": round(float(scores.nmi[:, i].mean()), 4),
            "rank": round(float(ranks[:, i].mean()), 2),
            "shortfall": round(float(shortfall[:, i].mean()), 4),
            "worst": round(float(shortfall[at, i]), 4),
            "worst_at": " ".join(map(str, scores.keys[at])),
            "p": round(p[name], 4) if name in p else None,
            "seconds": None if refused.all() else round(float(np.median(scores.seconds[~refused, i])), 3),
            "refused": int(refused.sum()),
        }
    data = sorted({key[0] for key in scores.keys})
    seeds = sorted({key[2] for key in scores.keys})
    return {"ensembles": len(scores.keys), "data": data, "seeds": seeds, "contenders": contenders}


def default_by_data(scores: Scores) -> dict[str, Any]:
    """Return the default beside the best contender of each data set, and its shortfalls."""
    data, means = scores.of_data(scores.ari)
    at, shortfall = scores.names.index(DEFAULT), scores.shortfall()[:, scores.names.index(DEFAULT)]
    found = {}
    for name, row in zip(data, means, strict=True):
        own = shortfall[[key[0] == name for key in scores.keys]]
        found[name] = {
            "ari": round(float(row[at]), 4),
            "best": scores.names[int(row.argmax())],
            "best_ari": round(float(row.max()), 4),
            "rank": int((row > row[at]).sum()) + 1,
            "shortfall": round(float(own.mean()), 4),
            "worst": round(float(own.max()), 4),
        }
    return found


def default_by(scores: Scores, part: int) -> dict[str, Any]:
    """Return the default's rank and shortfalls for each kind (``part`` 1) or each seed (2)."""
    at, ranks, shortfall = scores.names.index(DEFAULT), scores.ranks(), scores.shortfall()
    found = {}
    for value in sorted({key[part] for key in scores.keys}):
        of = np.array([key[part] == value for key in scores.keys])
        mean = ranks[of].mean(axis=0)
        found[str(value)] = {
            "ensembles": int(of.sum()),
            "ari": round(float(scores.ari[of, at].mean()), 4),
            "rank": round(float(mean[at]), 2),
            "first": scores.names[int(mean.argmin())],
            "first_rank": round(float(mean.min()), 2),
            "shortfall": round(float(shortfall[of, at].mean()), 4),
            "worst": round(float(shortfall[of, at].max()), 4),
        }
    return found


def cells_of(rows: list[dict[str, Any]], data: Iterable[str]) -> dict[Key, dict[str, dict[str, Any]]]:
    cells: dict[Key, dict[str, dict[str, Any]]] = {}
    for row in rows:
        if row["data"] in data:
            cells.setdefault((row["data"], row["kind"], row["seed"]), {})[row["contender"]] = row
    return cells


def half_of(rows: list[dict[str, Any]], data: Iterable[str]) -> dict[str, Any]:
    """Return the two tables of one half of the data sets, and how the default stands in them."""
    cells = cells_of(rows, data)
    counts: dict[str, int] = {}
    for found in cells.values():
        for name in found:
            counts[name] = counts.get(name, 0) + 1
    once = sum(key[2] == 0 for key in cells)
    tables = {
        "every contender": [name for name, count in counts.items() if count >= ENOUGH * once],
        "most ensembles": [name for name, count in counts.items() if count >= ENOUGH * max(counts.values())],
    }
    result: dict[str, Any] = {"ensembles": len(cells), "few": {}}
    for title, names in tables.items():
        scores = Scores.of(cells, names)
        if not scores.keys or (title == "most ensembles" and set(names) == set(tables["every contender"])):
            continue
        result[title] = table_of(scores) | {
            "not in it": {name: count for name, count in counts.items() if name not in names}
        }
        if DEFAULT in names:
            result[title] |= {
                "default by data": default_by_data(scores),
                "default by kind": default_by(scores, 1),
                "default by seed": default_by(scores, 2),
            }
    for name in sorted(set(counts) - set(tables["every contender"])):
        shared = [found for found in cells.values() if {name, DEFAULT} <= set(found)]
        if shared:
            result["few"][name] = {"ensembles": len(shared)} | {
                who: round(float(np.mean([found[who]["ari"] for found in shared])), 4)
                for who in (name, DEFAULT)
            }
    return result


def before_and_after(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return mean ARI of the paper's model, the default and the best contender, by data set and kind."""
    found: dict[str, Any] = {}
    for name in CASES:
        of: dict[str, list[tuple[float, float, float]]] = {}
        for (_, kind, _), cell in sorted(cells_of(rows, [name]).items()):
            if {DEFAULT, PAPER} <= set(cell):
                best = max(row["ari"] for row in cell.values())
                of.setdefault(kind, []).append((cell[PAPER]["ari"], cell[DEFAULT]["ari"], best))
        found[name] = {
            kind: dict(
                zip(("paper", "default", "best"), np.mean(values, axis=0).round(3).tolist(), strict=True)
            )
            | {"seeds": len(values)}
            for kind, values in of.items()
        }
    return found


def report(rows: list[dict[str, Any]], halves: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return all tables of both halves."""
    found = {half: half_of(rows, data) for half, data in halves.items() if cells_of(rows, data)}
    return found | {"before and after": before_and_after(rows)}


def main_table(half: dict[str, Any]) -> dict[str, Any]:
    """Return the table of a half that has most ensembles."""
    return dict(half.get("most ensembles") or half["every contender"])


def attainable(rows: list[dict[str, Any]], data: Iterable[str], names: Iterable[str]) -> dict[str, float]:
    """Return the mean shortfall of the default, and of the best choices of a contender in hindsight.

    These are one for all ensembles, one for each kind of ensemble, and one for each data set.
    """
    scores = Scores.of(cells_of(rows, data), names)
    shortfall, parts = scores.shortfall(), {"kind": 1, "data set": 0}
    found = {"default": shortfall[:, scores.names.index(DEFAULT)].mean(), "all": shortfall.mean(axis=0).min()}
    for what, part in parts.items():
        of = np.array([key[part] for key in scores.keys])
        found[what] = sum(shortfall[of == value].sum(axis=0).min() for value in set(of)) / of.size
    return {what: round(float(value), 4) for what, value in found.items()}


def by_noise(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return by how much the best of many results of a contender is above their mean, by `accuracy_noise`."""
    found: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys(row["contender"] for row in rows):
        own = [row for row in rows if row["contender"] == name]
        found[name] = {
            what: round(float(np.mean([max(row[what]) - np.mean(row[what]) for row in own])), 4)
            for what in ("states", "drawn")
        } | {"ensembles": len(own), "repeats": len(own[0]["states"])}
    return found


# ---------------------------------------------------------------------------------------------- showing


def table_lines(found: dict[str, Any]) -> list[str]:
    """Return a table of contenders in Markdown."""
    lines = [
        "| contender | ARI | NMI | mean rank | shortfall | worst | p | seconds | refused |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in found["contenders"].items():
        p, seconds = ("" if row[what] is None else f"{row[what]:.3f}" for what in ("p", "seconds"))
        lines.append(
            f"| {f'**{name}**' if name == DEFAULT else name} | {row['ari']:.3f} | {row['nmi']:.3f} "
            f"| {row['rank']:.1f} | {row['shortfall']:.3f} | {row['worst']:.3f} | {p} | {seconds} "
            f"| {row['refused'] or ''} |"
        )
    return lines


def default_lines(found: dict[str, Any], what: str) -> list[str]:
    columns = list(next(iter(found.values())))
    lines = [f"| {what} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    return lines + [f"| {name} | {' | '.join(str(v) for v in row.values())} |" for name, row in found.items()]


def markdown(found: dict[str, Any]) -> str:
    """Return all tables as Markdown."""
    lines: list[str] = []
    if "noise" in found:
        by_data = {half: main_table(found[half])["default by data"] for half in found["attainable"]}
        lines = attainable_lines(found["attainable"], found["noise"], by_data)
    for half in ("reporting", "choosing"):
        for kind in ("every contender", "most ensembles"):
            part = found.get(half, {}).get(kind)
            if part is None:
                continue
            title = f"{half.capitalize()} half, {kind}"
            seeds = "seed 0" if part["seeds"] == [0] else f"seeds {', '.join(map(str, part['seeds']))}"
            lines += [f"## {title}", ""]
            lines += [f"{part['ensembles']} ensembles of {len(part['data'])} data sets, {seeds}."]
            if part["not in it"]:
                names = ", ".join(f"{name} ({count})" for name, count in part["not in it"].items())
                lines += [f"Not in this table, because run on fewer ensembles: {names}."]
            lines += ["", *table_lines(part), ""]
            for what in ("data", "kind", "seed"):
                if part.get(f"default by {what}"):
                    lines += [f"### {title}: the default by {what}", ""]
                    lines += [*default_lines(part[f"default by {what}"], what), ""]
        if found.get(half, {}).get("few"):
            lines += [f"## {half.capitalize()} half, contenders on few ensembles", ""]
            lines += ["Mean ARI on the ensembles of each.", "", "| contender | ensembles | ARI | default |"]
            lines += ["|---|---|---|---|"]
            for name, row in found[half]["few"].items():
                lines += [f"| {name} | {row['ensembles']} | {row[name]:.3f} | {row[DEFAULT]:.3f} |"]
            lines += [""]
    lines += ["## The paper's model and the default", "", "Mean ARI.", ""]
    lines += ["| data | kind | paper | default | best | seeds |", "|---|---|---|---|---|---|"]
    for name, kinds in found["before and after"].items():
        for kind, row in kinds.items():
            lines += [f"| {name} | {kind} | {' | '.join(map(str, row.values()))} |"]
    return "\n".join(lines) + "\n"


def attainable_lines(found: dict[str, Any], noise: dict[str, Any], by_data: dict[str, Any]) -> list[str]:
    """Return what part of the shortfall is attainable, in words."""
    repeats = next(iter(noise.values()))["repeats"]
    lines = ["## What shortfall is attainable", ""]
    lines += ["The best of all contenders is another one for each ensemble, in part by chance. The best of"]
    lines += [f"{repeats} results of one contender on the same ensemble (choosing half, `accuracy_noise.py`)"]
    lines += ["is above their mean by so much, from other random states alone, and with partitions drawn"]
    lines += ["with replacement, too:", ""]
    lines += ["| contender | ensembles | random states | and partitions |", "|---|---|---|---|"]
    for name, row in noise.items():
        lines += [f"| {name} | {row['ensembles']} | {row['states']:.3f} | {row['drawn']:.3f} |"]
    lines += ["", "The best choices of a contender in hindsight, which no rule can make without the classes,"]
    lines += ["have these mean shortfalls:", ""]
    lines += ["| half | default | one contender for all | one for each kind | one for each data set |"]
    lines += ["|---|---|---|---|---|"]
    for half, row in found.items():
        lines += [f"| {half} | {' | '.join(f'{value:.3f}' for value in row.values())} |"]
    for half, table in by_data.items():
        own = {name: row["shortfall"] for name, row in table.items()}
        first, second = sorted(own, key=lambda name: -own[name])[:2]
        share = (own[first] + own[second]) / sum(own.values())
        lines += [
            "",
            f"Of the default's shortfall on the {half} half, {share:.0%} is on {first} and {second}.",
        ]
    return [*lines, ""]


def show(found: dict[str, Any]) -> None:
    print(markdown(found))


def draw_ranks(scores: Scores, path: Path) -> None:
    """Draw Demšar's diagram of the best contenders: mean ranks, bars joining those that do not differ."""
    import matplotlib.pyplot as plt

    ranks = scores.ranks().mean(axis=0)
    by_rank = [scores.names[i] for i in np.argsort(ranks)]
    shown = [
        name
        for i, name in enumerate(by_rank)
        if i < IN_DIAGRAM or name in (DEFAULT, PAPER, "one-hot k-means")
    ]
    at = [float(ranks[scores.names.index(name)]) for name in shown]
    ari = [float(scores.ari[:, scores.names.index(name)].mean()) for name in shown]
    runs, half = alike(scores, shown), (len(shown) + 1) // 2
    low, high = np.floor(min(at)), np.ceil(max(at))
    bars = 0.35 * len(runs) + 0.6
    figure, axes = plt.subplots(figsize=(9, 0.24 * (half + bars) + 1), layout="constrained")
    for i, (name, rank) in enumerate(zip(shown, at, strict=True)):
        left = i < half
        height = -bars - (i if left else len(shown) - 1 - i)
        edge = low - 0.05 * (high - low) if left else high + 0.05 * (high - low)
        color = "#b3261e" if name == DEFAULT else "#1f5a92" if name.startswith("pcc") else "black"
        axes.plot([rank, rank, edge], [0, height, height], color=color, linewidth=0.8)
        text = f"{name}  {ari[i]:.3f}" if left else f"{ari[i]:.3f}  {name}"
        axes.text(
            edge, height, f" {text} ", ha="right" if left else "left", va="center", fontsize=9, color=color
        )
    for i, (first, last) in enumerate(runs):
        axes.plot([at[first] - 0.06, at[last] + 0.06], [-0.4 - 0.35 * i] * 2, color="black", linewidth=3)
    axes.plot([low, high], [0, 0], color="black", linewidth=1)
    for tick in np.arange(low, high + 1):
        axes.plot([tick, tick], [0, 0.25], color="black", linewidth=1)
        axes.text(tick, 0.4, f"{tick:g}", ha="center", va="bottom", fontsize=8)
    data = len({key[0] for key in scores.keys})
    axes.set_title(
        f"Mean rank by ARI among {len(scores.names)} contenders on {len(scores.keys)} ensembles of {data} "
        "data sets (beside the names: mean ARI)\nBars join contenders that do not differ "
        f"(Wilcoxon's test over data sets, Holm's correction, {len(shown)} contenders)",
        fontsize=9,
    )
    axes.set_xlim(low - 0.5 * (high - low), high + 0.5 * (high - low))
    axes.axis("off")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main() -> None:
    from accuracy import CHOOSING, LEFT_OUT, REPORTING
    from accuracy_peers import NOT_RUN
    from machine import describe

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--smallest", action="store_true", help="as the other benchmarks; changes nothing here"
    )
    parser.add_argument("--rows", type=Path, default=RESULTS / "accuracy.jsonl.gz", help="JSON lines")
    parser.add_argument("--half", choices=("choosing", "reporting"), help="this half only")
    parser.add_argument("--write", action="store_true", help="write the results")
    arguments = parser.parse_args()
    rows = read_rows(arguments.rows)
    halves = {"choosing": CHOOSING, "reporting": REPORTING}
    if arguments.half:
        halves = {arguments.half: halves[arguments.half]}
        rows = [row for row in rows if row["data"] in halves[arguments.half]]
    found = report(rows, halves)
    if NOISE.exists():
        found["noise"] = by_noise(json.loads(NOISE.read_text()))
        found["attainable"] = {
            half: attainable(rows, data, main_table(found[half])["contenders"])
            for half, data in halves.items()
        }
    show(found)
    if not arguments.write:
        return
    about = {"machine": describe(), "left_out": LEFT_OUT | NOT_RUN, "halves": halves}
    (RESULTS / "accuracy.json").write_text(json.dumps(about | found, indent=1) + "\n")
    (RESULTS / "accuracy.md").write_text(INTRODUCTION + markdown(found))
    lines = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    (RESULTS / "accuracy.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    cells = cells_of(rows, REPORTING)
    draw_ranks(
        Scores.of(cells, found["reporting"]["every contender"]["contenders"]), RESULTS / "accuracy.png"
    )


if __name__ == "__main__":
    main()
