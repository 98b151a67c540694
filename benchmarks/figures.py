"""Do the README and the pages state the figures that were measured? With ``--write`` they are made to.

`FIGURES` has the sentences and rows of tables that state measured figures, with the places of the figures in
braces, and what they are by the files in ``results/``. Each sentence must occur once in its page.
"""

from __future__ import annotations

import argparse
import json
import re
import string
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def results(name: str) -> Any:
    return json.loads((ROOT / "benchmarks/results" / f"{name}.json").read_text(encoding="utf-8"))


def solve(method: str, millions: int) -> dict[str, str]:
    """Return the solve of a planted ensemble of 100 partitions."""
    (run,) = (
        run
        for run in results("scale")["runs"]
        if (run["method"], run["n_objects"]) == (method, millions * 10**6)
    )
    return {
        "seconds": f"{run['seconds']:.0f}",
        "mb": f"{run['peak_memory'] / 1e6:,.0f}",
        "gb": f"{run['peak_memory'] / 1e9:.2f}",
        "h": f"{run['H']:.3f}",
    }


def accuracy(group: str) -> dict[str, float]:
    """Return the mean adjusted Rand index of every contender in a group of data sets."""
    found = results("accuracy")[group]["every contender"]
    return {name: row["ari"] for name, row in found["contenders"].items()}


def mean_accuracy() -> dict[str, str]:
    found, real = accuracy("reporting"), accuracy("reporting without planted")
    count = results("accuracy")["reporting"]["every contender"]
    best = sorted(found.values(), reverse=True)
    return {
        "ensembles": str(count["ensembles"]),
        "sets": str(len(count["data"])),
        "tree": f"{found['tree']:.3f}",
        "next": f"{best[best[0] == found['tree']]:.3f}",
        "real": f"{sum(sorted(real.values(), reverse=True)[:4]) / 4:.2f}",
    }


def by_group(method: str) -> dict[str, str]:
    """Return the mean adjusted Rand index of a contender in each group of the paper's table."""
    groups = {
        "held_out": "reporting",
        "real": "reporting without planted",
        "pools": "pools-reporting",
        "networks": "networks",
    }
    return {place: f"{accuracy(group)[method]:.3f}" for place, group in groups.items()}


def budgets() -> dict[str, str]:
    solved = [row for row in results("memory")["solves"] if row["refused"] is None]
    exceeded = sum(row["peak"] > row["budget"] for row in solved)
    return {"solves": str(len(solved)), "exceeded": str(exceeded or "none")}


def kills() -> dict[str, str]:
    found = results("faults")["kills"]
    assert not found["wrong"], "pages say that all were right"
    return dict.fromkeys(("met", "right"), str(found["met running"]))


def million(kind: str) -> dict[str, str]:
    """Return ranges over the solves of a million objects: the default of bigcons beside the others."""
    rows = [row for row in results("peers")["rows"] if row["n_objects"] == 10**6 and row["kind"] == kind]
    others = [row for row in rows if not row["solver"].startswith("bigcons")]
    (ours,) = (row for row in rows if row["solver"] == "bigcons tree")
    ended = [row for row in others if "failed" not in row]
    return {
        "seconds": f"{ours['seconds']:.0f}",
        "gb": f"{ours['peak'] / 1e9:.1f}",
        "ended": str(len(ended)),
        "others": str(len(others)),
        "least_seconds": f"{min(row['seconds'] for row in ended):.0f}",
        "most_seconds": f"{max(row['seconds'] for row in ended):.0f}",
        "least_gb": f"{min(row['peak'] for row in ended) / 1e9:.1f}",
        "most_gb": f"{max(row['peak'] for row in ended) / 1e9:.1f}",
    }


def bce_claims() -> dict[str, str]:
    """Return on how many data sets the claims of the paper for V-BCE hold, of single random starts."""
    found = results("bce_paper")["single"]["claims"]["converged"]
    names = {
        "maximum": "best maximum but for the base",
        "average": "best average but for the base",
        "mixture": "maximum at or above MM",
        "pairs": "ahead of MM in pairs",
        "tests": "ahead of MM with p < .05",
    }
    return {name: str(found[claim]) for name, claim in names.items()}


def bare_read() -> dict[str, str]:
    return {"seconds": f"{results('phases')['read_seconds']:.2f}"}


def phase(method: str, name: str) -> dict[str, str]:
    """Return the time of a phase of a fit, and how many bare reads of the labels that is."""
    rows = {(row["method"], row["phase"]): row for row in results("phases")["rows"]}
    return {"seconds": f"{rows[method, name]['seconds']:.2f}", "reads": f"{rows[method, name]['reads']:.1f}"}


SIZE = (
    "100 million objects in 100 partitions, half of the labels missing: {seconds} s and {gb} GB on two cores"
)
BUDGET = "in {solves} test runs, {exceeded} exceeded its budget"
KILLED = "rerunning a killed command reproduced it in all {met} trials"
MEAN = (
    "On {ensembles} ensembles of {sets} held-out data sets, given the number of classes, the default has a"
    " mean adjusted Rand index of {tree}, the next best {next}; on the ten real data sets the leading"
    " methods tie at {real}"
)
MILLION = (
    "On a million objects the default takes {seconds} s and {gb} GB; {ended} of the {others} others finish,"
    " in {least_seconds} to {most_seconds} s and {least_gb} to {most_gb} GB"
)
CLAIMS = (
    "V-BCE's maximum is the best of all seven methods on {maximum} of 10, its average on {average}; its"
    " maximum is at or above the mixture's on {mixture}, ahead in the mean of pairs of runs on {pairs}, by"
    " the paired t-test with p < .05 on {tests}"
)
LARGEST = partial(solve, "tree", 100)
PAPER = {
    "{seconds} s and {gb} GB on two cores": LARGEST,
    "so it did in {right} of {met} trials": kills,
    "mean adjusted Rand index on {ensembles} ensembles of {sets} held-out data sets is {tree}, and the next"
    " best {next}. On the ten real data sets among them the leading methods tie at {real}": mean_accuracy,
    "`bigcons` takes {seconds} s and {gb} GB; {ended} of the {others} others finish, in {least_seconds} to"
    " {most_seconds} s and {least_gb} to {most_gb} GB": partial(million, "coarse"),
    **{
        f"| {name} | {{held_out}} | {{real}} | {{pools}} | {{networks}} |": partial(by_group, method)
        for name, method in {
            "tree (default)": "tree",
            "HBGF": "hbgf",
            "CSPA": "cspa",
            "average linkage by SciPy": "EAC by SciPy",
            "MCLA": "mcla",
            "mixture model": "mixture",
            "PCC": "pcc",
        }.items()
    },
}
"""Sentences and rows of the paper, with their figures."""
FIGURES: list[tuple[str, str, Callable[[], dict[str, str]]]] = [
    *((page, SIZE, LARGEST) for page in ("README.md", "docs/index.md", "docs/large-data.md")),
    *((page, BUDGET, budgets) for page in ("README.md", "docs/index.md", "docs/promises.md")),
    *((page, KILLED, kills) for page in ("README.md", "docs/index.md")),
    *((page, MEAN, mean_accuracy) for page in ("README.md", "docs/index.md")),
    *(("docs/paper/paper.md", sentence, figures) for sentence, figures in PAPER.items()),
    ("docs/comparison.md", "| 100 million objects, {gb} GB |", LARGEST),
    ("docs/comparison.md", MILLION, lambda: million("coarse")),
    ("docs/papers.md", "a million objects in {seconds} s (`scale.json`)", partial(solve, "pcc", 1)),
    ("docs/papers.md", CLAIMS, bce_claims),
    *(
        (
            "docs/methods.md",
            f"| {millions * 10**6:,} | {method} | {{seconds}} | {{mb}} MB | {{h}} |",
            partial(solve, method, millions),
        )
        for method in ("tree", "pcc")
        for millions in (1, 10, 100)
    ),
    ("docs/evidence.md", "one bare read, takes {seconds} s", bare_read),
    *(
        (
            "docs/evidence.md",
            f"| {row['method']} | {row['phase']} | {{seconds}} | {{reads}} |",
            partial(phase, row["method"], row["phase"]),
        )
        for row in results("phases")["rows"]
    ),
]
"""Page, sentence and figures. A sentence may be wrapped differently in its page."""


def pattern_of(sentence: str) -> re.Pattern[str]:
    """Return what finds a sentence with any figures, a group for each."""
    parts = []
    for words, name, _, _ in string.Formatter().parse(sentence):
        parts.append(r"\s+".join(map(re.escape, re.split(r"\s+", words))))
        parts.append(r"(none|[\d.,]*\d)" if name else "")
    return re.compile("".join(parts))


def stated(text: str, sentence: str, figures: dict[str, str]) -> Iterator[tuple[int, int, str]]:
    """Yield where a text states figures, and what they are."""
    found = list(pattern_of(sentence).finditer(text))
    if len(found) != 1:
        raise LookupError(f"found {len(found)} times instead of once: {sentence}")
    names = [name for _, name, _, _ in string.Formatter().parse(sentence) if name]
    for number, name in enumerate(names, start=1):
        yield *found[0].span(number), figures[name]


def corrected(text: str, sentence: str, figures: dict[str, str]) -> str:
    """Return a text whose sentence has these figures."""
    for start, stop, figure in reversed(list(stated(text, sentence, figures))):
        text = text[:start] + figure + text[stop:]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--smallest", action="store_true", help="as the other benchmarks; changes nothing here"
    )
    parser.add_argument("--write", action="store_true", help="write the figures into the pages")
    arguments = parser.parse_args()
    wrong = 0
    for page, sentence, figures in FIGURES:
        path = ROOT / page
        text = path.read_text(encoding="utf-8")
        right = corrected(text, sentence, figures())
        if right != text:
            wrong += 1
            print(f"{page}: {sentence.format(**figures())}")
            if arguments.write:
                path.write_text(right, encoding="utf-8")
    if wrong and not arguments.write:
        raise SystemExit(f"{wrong} sentences state other figures than the results; run with --write.")


if __name__ == "__main__":
    main()
