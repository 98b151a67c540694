"""The page of a report: HTML that needs nothing else, no network and no script."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import isnan
from typing import Any, NamedTuple

from bigcons.memory import format_size
from bigcons.version import __version__


class Drawn(NamedTuple):
    """A picture."""

    section: str
    alt: str
    caption: str
    svg: bytes


class Content(NamedTuple):
    """What a page tells; see `bigcons.Report`."""

    name: str
    method: str
    n_objects: int
    facts: Mapping[str, Any]
    warnings: Sequence[str]
    notes: Sequence[str]
    clusters: Any
    levels: Sequence[tuple[str, int]]
    """How many objects are of each range of confidence."""
    profiles: Any
    n_profiles: int
    least_certain: Any
    values: Mapping[int, Mapping[str, Any]]
    """The values of the least certain objects, by column."""
    partitions: Any
    history: Mapping[str, Any]
    parameters: Mapping[str, Any]
    provenance: Mapping[str, Any]
    pictures: Sequence[Drawn]


def page(report: Content) -> str:
    """Return the page."""
    sections = list(_sections(report))
    links = "".join(f'<li><a href="#{_anchor(title)}">{_text(title)}</a></li>' for title, _ in sections)
    body = "".join(
        f'<section aria-labelledby="{_anchor(title)}"><h2 id="{_anchor(title)}">{_text(title)}</h2>'
        f"{content}</section>"
        for title, content in sections
    )
    title = f"Consensus of {report.n_objects:,} objects"
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{_POLICY}'
        f"<title>{title}: {_text(report.name)}</title><style>{_STYLE}</style></head><body>"
        '<a class="skip" href="#main">Skip to the report</a>'
        f"<header><h1>{title}</h1><p>{_text(report.method)}, "
        f"<code>{_text(report.name)}</code></p>"
        f'<nav aria-label="Contents"><ul>{links}</ul></nav></header>'
        f'<main id="main" tabindex="-1">{body}</main>'
        f"<footer><p>Written by bigcons {_text(__version__)}.</p></footer></body></html>"
    )


CLUSTERS, CONVERGENCE, PARTITIONS = "Clusters", "Convergence", "Partitions"

_NAMES = {
    "adjusted_rand": "adjusted Rand", "nmi": "NMI", "n_labeled": "objects", "n_clusters": "clusters",
    "size": "objects", "false_join_rate": "false-join rate", "n_passes": "passes", "n_steps": "steps",
    "second_label": "second cluster", "second_confidence": "its confidence",
    "has_structure": "clear structure", "n_told_apart": "clusters told apart",
    "overall": "all objects", "overall_share": "all objects", "feature": "column",
}  # fmt: skip
_SHARES = ("share", "coverage")
_INDICES = ("agreement", "nmi", "adjusted_rand", "weight", "redundancy")
_PROBABILITIES = ("confidence", "second_confidence", "hit_rate", "false_join_rate")


def _sections(report: Content) -> Iterable[tuple[str, str]]:
    """Yield the title and the content of every section."""
    yield "At a glance", _glance(report)
    yield CLUSTERS, _told_clusters(report)
    if report.profiles is not None:
        yield "What is in each cluster", _told_profiles(report)
    if report.least_certain is not None:
        yield "Least certain objects", _told_objects(report)
    if report.partitions is not None:
        yield PARTITIONS, _told_partitions(report)
    if max(map(len, report.history.values()), default=0) > 1:
        yield CONVERGENCE, _told_passes(report)
    yield "How it was made", _told_making(report)


def _glance(report: Content) -> str:
    of_all = ("objects", "objects without a label", "clusters", "mean confidence")
    known = {name: value for name, value in report.facts.items() if value is not None}
    shown = {name: value for name, value in known.items() if name in of_all}
    solver = {name: value for name, value in known.items() if name not in of_all}
    mind = ""
    for title, sentences in (("Warnings", report.warnings), ("Notes", report.notes)):
        listed = "".join(f"<li>{_text(sentence)}</li>" for sentence in sentences)
        mind += f"<h3>{title}</h3><ul class='mind'>{listed}</ul>" if listed else ""
    folded = f"<details><summary>What the solver says</summary>{_cards(solver)}</details>" if solver else ""
    return f"<p>{_in_a_sentence(report)}</p>{_cards(shown)}{mind}{folded}"


def _in_a_sentence(report: Content) -> str:
    sizes = [size for size in report.clusters["size"].to_pylist() if size]
    if not sizes:
        return f"None of the {report.n_objects:,} objects has a label."
    kinds = (
        "one cluster"
        if len(sizes) == 1
        else f"{len(sizes):,} clusters of {min(sizes):,} to {max(sizes):,} objects"
    )
    sure = sum(count for _, count in report.levels[:2])
    trust = (
        f", and {percent(sure / sum(sizes))} of the labels have a confidence of 0.9 or more"
        if report.levels
        else ""
    )
    return f"The {sum(sizes):,} labeled objects fall into {kinds}{trust}."


def _cards(facts: Mapping[str, Any]) -> str:
    cards = "".join(
        f"<div><dt>{_text(name)}</dt><dd>{_text(_fact(name, value))}</dd></div>"
        for name, value in facts.items()
    )
    return f"<dl class='facts'>{cards}</dl>"


def _told_clusters(report: Content) -> str:
    found = _rows(report.clusters)
    known = [name for name in report.clusters.column_names if report.clusters[name].null_count < len(found)]
    names = [name for name in known if name != "cohesion"]
    words = ""
    if "stability" in names:
        words = (
            "<p>Confidence: the probability that a label is right, by the partitions alone; it is too high "
            "if these share their errors. Stability: how similar the clusters are that random halves of the "
            "partitions assign (Jaccard). Tightness: how much more often its objects are joined than those "
            "of different clusters; separation: than with those of the nearest cluster."
        )
        if "support" in names:
            words += (
                " Support: the chance that other partitions of the same data would find the cluster, by "
                "which confidence is multiplied; division: that they would tell it from the nearest."
            )
        words += "</p>"
    n = max(sum(count for _, count in report.levels), 1)
    rows = [{"confidence": word, "objects": count, "share": count / n} for word, count in report.levels]
    levels = _table("Objects by their confidence", ["confidence", "objects", "share"], rows) if rows else ""
    return (
        words
        + _table("Clusters, from the largest to the smallest", names, found)
        + levels
        + _figures(report, CLUSTERS)
    )


def _told_profiles(report: Content) -> str:
    assert report.profiles is not None  # noqa: S101 - the caller has asked
    numbers, categories, left_out, dates, _ = report.profiles
    of_cluster: dict[int, tuple[list[Any], list[Any]]] = {}
    for place, table in ((0, numbers), (0, dates), (1, categories)):
        for row in _rows(table):
            of_cluster.setdefault(row["cluster"], ([], []))[place].append(row)
    words = (
        "<p>Means of numbers and dates; lift: the ratio to the overall mean; difference: from that mean, in "
        "standard deviations of all objects. Of text, the most frequent values, with their share and "
        "lift.</p>"
    )
    parts = [words]
    clusters = _rows(report.clusters.slice(0, report.n_profiles))
    for place, row in enumerate(clusters):
        k = row["cluster"]
        of_numbers, of_texts = of_cluster.get(k, ([], []))
        traits = sorted(of_numbers, key=lambda r: -abs(r["difference"] or 0.0))[:8]
        tables = ""
        if traits:
            left = len(of_numbers) - len(traits)
            more = f" ({len(traits)} of {len(of_numbers)}, most different first)" if left else ""
            columns = ["feature", "mean", "overall", "lift", "difference"]
            tables += _table(f"Numbers of cluster {k}{more}", columns, traits)
        if of_texts:
            shares = [{**r, "overall_share": r["overall"]} for r in of_texts]
            columns = ["feature", "category", "share", "overall_share", "lift"]
            tables += _table(f"Values of cluster {k}", columns, shares)
        parts.append(
            f"<details{' open' if place < 5 else ''}><summary><h3>Cluster {k}</h3> {row['size']:,} objects, "
            f"{percent(row['share'])}</summary><div class='pair'>{tables}</div></details>"
        )
    if len(report.clusters) > len(clusters):
        parts.append(f"<p>The {len(clusters):,} largest of {len(report.clusters):,} clusters.</p>")
    if left_out:
        told = "; ".join(f"{_text(name)}: {_text(why)}" for name, why in left_out.items())
        parts.append(f"<p>Columns left out: {told}.</p>")
    return "".join(parts)


def _told_objects(report: Content) -> str:
    assert report.least_certain is not None  # noqa: S101 - the caller has asked
    rows = [{**row, **{f"value:{n}": v for n, v in report.values.get(row["object"], {}).items()}}
            for row in _rows(report.least_certain)]  # fmt: skip
    values = [name for name in (rows[0] if rows else ()) if name.startswith("value:")][:6]
    caption = f"The {len(rows)} labeled objects of lowest confidence; object is the row, from 0"
    return _table(caption, [*report.least_certain.column_names, *values], rows)


def _told_partitions(report: Content) -> str:
    assert report.partitions is not None  # noqa: S101 - the caller has asked
    by = "weight" if "weight" in report.partitions.column_names else "agreement"
    rows = sorted(_rows(report.partitions), key=lambda row: -(row[by] or 0.0))
    words = {
        "weight": "Weight: what a partition tells of the clusters, 1 on average. Hit and false-join rates: "
        "the shares of pairs of objects of one cluster, and of different ones, that it joins.",
        "coverage": "Coverage: the share of objects it labels. Agreement: its mean adjusted Rand index with "
        "the others.",
        "redundancy": "Redundancy: its largest adjusted Rand index with another one, the most alike.",
    }
    told = " ".join(text for name, text in words.items() if name in report.partitions.column_names)
    shown = rows[:200]
    more = f", {len(shown)} of {len(rows):,}" if len(rows) > len(shown) else ""
    table = _table(
        f"Partitions, from the highest {by} to the lowest{more}", report.partitions.column_names, shown
    )
    if len(rows) > 30:
        table = f"<details><summary>All partitions</summary>{table}</details>"
        best = [*rows[:5], *rows[-5:]]
        table = (
            _table(f"The five of highest and of lowest {by}", report.partitions.column_names, best) + table
        )
    return f"<p>{told}</p>" + _figures(report, PARTITIONS) + table


def _told_passes(report: Content) -> str:
    history = {name: values for name, values in report.history.items() if values}
    length = max(map(len, history.values()))
    names = [name for name, values in history.items() if len(values) == length]
    rows = [
        dict(zip(names, row, strict=True)) for row in zip(*(history[name] for name in names), strict=True)
    ]
    more = ""
    if length > 60:
        half = 30
        rows, more = [*rows[:half], *rows[-half:]], f", the first and the last {half} of {length:,}"
    table = _table(f"What every pass took and reached{more}", names, rows)
    return _figures(report, CONVERGENCE) + f"<details><summary>All numbers by pass</summary>{table}</details>"


def _told_making(source: Content) -> str:
    parts = []
    for caption, found in (("Parameters", source.parameters), ("Provenance", source.provenance)):
        flat = dict(_flat(found))
        if flat:
            rows = [
                {"name": name, "value": _cell(name, value) if value is None else str(value)}
                for name, value in flat.items()
            ]
            parts.append(_table(caption, ["name", "value"], rows))
    return f"<div class='pair'>{''.join(parts)}</div>"


def _flat(found: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}: ")
        else:
            yield f"{before}{name}", value


def _figures(report: Content, section: str) -> str:
    shown = "".join(
        f'<figure><div class="scroll" tabindex="0" role="region" aria-label="{_text(p.caption)}">'
        f'<img alt="{_text(p.alt)}" src="data:image/svg+xml;base64,{base64.b64encode(p.svg).decode()}">'
        f"</div><figcaption>{_text(p.caption)}</figcaption></figure>"
        for p in report.pictures
        if p.section == section
    )
    return f"<div class='figures'>{shown}</div>" if shown else ""


def _table(caption: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table in a region that scrolls; the first column heads the rows."""
    numeric = {c: all(not isinstance(row.get(c), str) for row in rows) for c in columns}
    head = "".join(
        f"<th scope='col'{' class=n' if numeric[c] else ''}>{_text(name_of(c))}</th>" for c in columns
    )
    lines = []
    for row in rows:
        cells: list[str] = []
        for c in columns:
            value = row.get(c)
            if not cells:
                kind = " class=n" if numeric[c] else ""
                cells.append(f"<th scope='row'{kind}>{_text(_cell(c, value))}</th>")
                continue
            bar = (
                f" style='--w:{100 * value:.1f}%' class='n bar'" if c in _SHARES and value is not None else ""
            )
            cells.append(f"<td{bar or (' class=n' if numeric[c] else '')}>{_text(_cell(c, value))}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_text(caption)}"><table>'
        f"<caption><span>{_text(caption)}</span></caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _rows(table: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def name_of(column: str) -> str:
    """Return the name of a column, or of a result, for people."""
    if column.startswith("value:"):
        return column[6:]
    return _NAMES.get(column, column.replace("_", " "))


def _fact(name: str, value: Any) -> str:
    """Return a value of the first section: the objective short, for it stands in a narrow column."""
    return f"{value:,.6g}" if name == "objective" else _cell(name, value)


def _cell(column: str, value: Any) -> str:
    """Return a value for people."""
    if (
        value is None
        or (isinstance(value, float) and isnan(value))
        or (column in ("nearest", "second_label") and value == -1)
    ):
        return "\N{EN DASH}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if column == "memory":
        return format_size(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return value.date().isoformat()
    if not isinstance(value, float):
        return str(value)
    if column in (*_SHARES, "overall_share"):
        return percent(value)
    if column == "lift":
        return f"{value:.2f}\N{MULTIPLICATION SIGN}"
    if column == "difference":
        return f"{value:+.2f}"
    if column == "objective":
        return f"{value:,.0f}" if abs(value) >= 1e9 else f"{value:,.10g}"
    if column == "moved":
        return f"{value:,.6g}"
    if column in ("gap", "seconds"):
        return f"{value:.3g}"
    if column in _PROBABILITIES and 0 < value < 0.001:
        return "<0.001"
    if column in _INDICES:
        return f"{value:.3f}"
    if 1000 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.3f}" if 0.001 <= abs(value) < 1000 or value == 0 else f"{value:.4g}"


def percent(share: float) -> str:
    """Return a share in percent; what is neither none nor all is not rounded to it."""
    if 0 < share < 0.0005 or 0.9995 <= share < 1:
        return "<0.1%" if share < 0.5 else ">99.9%"
    return f"{share:.1%}"


def _text(value: object) -> str:
    return html.escape(str(value))


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


_POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
    "style-src 'unsafe-inline'\">"
)
_STYLE = """
:root{color-scheme:light;--ink:#1b1f24;--soft:#4b5563;--line:#d5dae1;--accent:#0b5394;--bar:#d6e6f5}
*{box-sizing:border-box}
body{margin:0 auto;max-width:76rem;padding:1.5rem 2rem;color:var(--ink);background:#fff;
font:16px/1.5 system-ui,"Segoe UI",Roboto,"Liberation Sans",sans-serif}
h1{font-size:1.75rem;line-height:1.2;margin:0 0 .25rem}
h2{font-size:1.3rem;margin:2.5rem 0 .75rem;padding-bottom:.25rem;border-bottom:2px solid var(--accent)}
h3{font-size:1.05rem;margin:1.25rem 0 .5rem}
p{max-width:48rem}code{font-size:.9em;overflow-wrap:anywhere}
a{color:var(--accent)}:focus-visible{outline:3px solid #c05600;outline-offset:2px}
.skip{position:absolute;left:-999rem}.skip:focus{left:1rem;top:.5rem;background:#fff;padding:.5rem}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;list-style:none;margin:.75rem 0 0;padding:0}
main:focus{outline:none}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(9rem,1fr));gap:.75rem;margin:0 0 1rem}
.facts div{border-left:4px solid var(--accent);padding:.15rem .75rem}
dt{color:var(--soft);font-size:.875rem}dd{margin:0;font-weight:600;overflow-wrap:anywhere}
.mind{background:#fff6e5;border:1px solid #e3b341;border-radius:4px;max-width:60rem;
padding:.75rem 1rem .75rem 2rem}
.scroll{overflow-x:auto;margin:0 0 1.25rem;max-width:100%}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:600;padding:.25rem 0 .4rem}
caption span{display:inline-block;position:sticky;left:0;max-width:calc(100vw - 3rem)}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}
thead th{border-bottom:2px solid var(--soft);vertical-align:bottom}
th.n,td.n{text-align:right}td.n{white-space:nowrap}tbody th{font-weight:600}
td:not(.n){overflow-wrap:anywhere;min-width:6rem}
.bar{background:linear-gradient(to right,var(--bar) var(--w),transparent var(--w));min-width:5rem}
.figures,.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(30rem,100%),1fr));gap:1rem 2rem;
align-items:start}
figure{margin:0 0 1rem;min-width:0}figure .scroll{margin:0}
img{display:block;width:100%;min-width:30rem;max-width:40rem;height:auto}
figcaption{color:var(--soft);font-size:.875rem}
details{margin:0 0 .75rem}summary{cursor:pointer;padding:.25rem 0}summary h3{display:inline;margin:0}
.pair>*{min-width:0}
footer{margin-top:3rem;color:var(--soft);font-size:.875rem;border-top:1px solid var(--line)}
@media(max-width:40rem){body{padding:1rem}h1{font-size:1.4rem}th,td{padding:.25rem .4rem}}
@media print{nav,.skip{display:none}.scroll{overflow:visible}}
"""
