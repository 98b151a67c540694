"""``bigcons solve`` and ``bigcons methods``: find the consensus of an ensemble by one of the methods."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from bigcons.cli.options import (
    STANDARD,
    Decorator,
    label_reading,
    memory_size,
    option_name,
    output_option,
    overwrite_option,
    random_state_option,
    read_standard_input,
    scheduler_option,
    table_options,
)
from bigcons.cli.output import (
    amount,
    did_you_mean,
    emit,
    facts,
    reporting,
    table,
    telling_finished,
    with_clusters,
)

if TYPE_CHECKING:
    from bigcons.methods import ConsensusClusterer
    from bigcons.store.consensus import Consensus


def cluster_count(value: str) -> int | range | str:
    """Parse the clusters of a consensus: a number, a range, or auto."""
    if value == "auto":
        return value
    low, colon, high = value.partition(":")
    numbers = [int(part) if part.isdigit() else 0 for part in (low, high if colon else low)]
    if not 1 <= numbers[0] <= numbers[1]:
        raise click.BadParameter(f"{value!r} is not a number of clusters; use one such as 5, or auto.")
    return range(numbers[0], numbers[1] + 1) if colon else numbers[0]


def _complete_path(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def known_method(_: click.Context, __: click.Parameter, name: str | None) -> str | None:
    """Return the name of a method, if one is given, in lower case; raise UsageError for any other."""
    from bigcons.methods import METHODS

    if name is not None and (name := name.lower()) not in METHODS:
        raise click.UsageError(
            f"Unknown method {name!r}; choose one of {', '.join(METHODS)}.{did_you_mean(name, METHODS)}"
        )
    return name


def complete_method(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a method."""
    from bigcons.methods import METHODS

    return [name for name in METHODS if name.startswith(incomplete)]


def method_option(note: str = "") -> Decorator:
    """Return the option that names the method."""
    return click.option(
        "-m",
        "--method",
        callback=known_method,
        default="tree",
        show_default=True,
        help=f"Method, one of those listed by `bigcons methods`{note}.",
        shell_complete=complete_method,
    )


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument(
    "words",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="ENSEMBLE [METHOD OPTIONS]",
    shell_complete=_complete_path,
)
@method_option()
@click.option(
    "-k",
    "--n-clusters",
    type=cluster_count,
    metavar="K|auto",
    help="Maximum number of clusters. auto: the method chooses it, tree and most others from the labels, eac "
    "by lifetime. -m supra also takes LOW:HIGH, and tries every number from one to the other.",
)
@output_option("Store for the consensus (.zarr).")
@table_options("partitions")
@label_reading
@click.option("--memory", type=memory_size, metavar="SIZE", help="Memory budget, such as 512MB or 2GB.")
@click.option(
    "--resume/--no-resume",
    default=None,
    help="Resume an interrupted solve of this output (the default), or start over.",
)
@scheduler_option
@random_state_option
@overwrite_option
@reporting
def solve(
    words: tuple[str, ...],
    method: str,
    n_clusters: int | range | str | None,
    out: str,
    chosen: dict[str, Any],
    reading: dict[str, Any],
    random_state: int,
    overwrite: bool,
    **options: Any,
) -> None:
    """Find the consensus of ENSEMBLE.

    The store holds its labels and, for soft methods, memberships. ENSEMBLE is an ensemble store, or any table
    that `bigcons import` accepts, of which --id, --columns and --drop choose the columns. An interrupted
    solve resumes when the command is repeated; a completed one is reported as such.

    Each parameter of the method is a further option; `bigcons methods NAME` lists them. For -m pcc:
    --divergence l2|kl|power:P, --pairs all|dense|SHARE|PATH, --solver, --n-init, --max-iter, --tol. Options
    not given take the method's defaults; those it does not have are refused.
    """
    from bigcons.io.files import refuse_missing

    if words and not words[0].startswith("-"):
        refuse_missing(words[0])  # methods take seconds to import

    from bigcons.store.consensus import Consensus

    options["n_clusters"] = n_clusters
    given = {name: value for name, value in options.items() if value is not None}
    ensemble, parameters = parse_method(method, words, {**given, "random_state": random_state})
    if ensemble == STANDARD:
        ensemble = read_standard_input(click.get_current_context())

    from bigcons.disk.commit import is_store
    from bigcons.io.select import select
    from bigcons.methods import METHODS
    from bigcons.run.output import can_resume

    model = METHODS[method](**parameters)
    began = time.perf_counter()
    try:
        with telling_finished(out, "solve", overwrite) as is_there:
            _warn_of_stored(ensemble)
            table = select(ensemble, **reading)
            model.fit(select(table, **chosen), out=out, overwrite=overwrite)
    except KeyboardInterrupt:
        if not can_resume(out):
            click.echo("No checkpoint was reached; the solve will start from the beginning.", err=True)
        raise
    results = {"seconds": None if is_there else time.perf_counter() - began, **results_of(model)}
    solved = Consensus.open(out)
    of_ensemble = ["--ensemble", ensemble] if is_store(ensemble) else []
    commands = [
        join(["bigcons", "report", out, *of_ensemble, "-o", Path(out).with_suffix(".html").name]),
        join(["bigcons", "export", out, "-o", f"{Path(out).stem}-labels.csv"]),
    ]
    told = [facts(shown_results({"consensus": out, **results}, solved)), ending(solved, commands)]
    emit({"kind": "consensus", "path": out, **results}, "\n\n".join(told))


def _warn_of_stored(path: str) -> None:
    """Warn again of what an ensemble was imported with that looks like no partition."""
    from bigcons.disk.commit import is_store
    from bigcons.io.encode import warn_of_suspects
    from bigcons.store.ensemble import Ensemble

    if is_store(path):
        stored = Ensemble.open(path)
        if not stored.is_soft:
            warn_of_suspects(stored.n_objects, stored.names, stored.n_clusters)


def results_of(model: ConsensusClusterer) -> dict[str, Any]:
    """Return the scalar results of a fit, and how the number of clusters was chosen."""
    from bigcons.store.consensus import fit_results

    choice = getattr(model, "n_clusters_choice_", None)
    return fit_results(model) | ({} if choice is None else {"n_clusters_choice": repr(choice)})


# What says how a method came to its result, and nothing of the result.
_OF_THE_SOLVER = ("coassociation", "objective", "start_objectives", "gap", "n_passes", "n_steps", "converged")


def shown_results(results: Mapping[str, Any], solved: Consensus) -> dict[str, Any]:
    """Return the results that are shown: the clusters in words, and what concerns the solver with ``-v``."""
    from bigcons.report.page import name_of
    from bigcons.store.clusters import choice_in_words
    from bigcons.store.consensus import stored_clusters_in_words

    is_verbose = logging.getLogger("bigcons").isEnabledFor(logging.INFO)
    shown = {name: value for name, value in results.items() if is_verbose or name not in _OF_THE_SOLVER}
    if shown.pop("n_clusters_choice", None) and (tree := solved.tree) is not None:
        shown["why this number"] = choice_in_words(tree.choice)
    worded = with_clusters(shown, stored_clusters_in_words(solved))
    return {name_of(name) if name in solved.results else name: value for name, value in worded.items()}


def ending(solved: Consensus, commands: Sequence[str]) -> str:
    """Return the end of a solve: its largest clusters, with confidence and support, and the commands."""
    sizes = solved.cluster_sizes()
    rows = [
        {"cluster": str(k), "objects": f"{size:,}", "share": f"{size / max(sizes.sum(), 1):.1%}"}
        for k, size in enumerate(sizes.tolist())
        if size
    ]
    columns = ["cluster", "objects", "share"]
    if solved.has_trust:
        clusters = solved.trust_tables[0]
        for name in ("confidence", "support"):
            if clusters[name].null_count < len(rows):
                columns.append(name)
                for row, value in zip(rows, clusters[name].to_pylist(), strict=True):
                    row[name] = "-" if value is None else f"{value:.3f}"
    listed = rows if len(rows) <= 12 else rows[:8]
    more = len(rows) - len(listed)
    rest = f"\n... and {amount(more, 'smaller cluster')}" if more > 0 else ""
    return "\n\n".join(
        [table(columns, listed) + rest, "\n".join(["Next:", *(f"  {each}" for each in commands)])]
    )


def parse_method(name: str, words: tuple[str, ...], given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the ensemble that ``words`` name, and the parameters: their options and ``given``."""
    from bigcons.methods import METHODS

    parameters = inspect.signature(METHODS[name]).parameters
    arguments, own = _parse_options(name, _own_parameters(parameters), words)
    if len(arguments) != 1:
        raise click.UsageError(
            f"Give one ENSEMBLE, not {len(arguments)}: {' '.join(arguments) or 'nothing'}."
        )
    if "n_clusters" not in given and parameters["n_clusters"].default not in (None, "auto"):
        auto = ", or auto to have it chosen" if "auto" in str(parameters["n_clusters"].annotation) else ""
        raise click.UsageError(f"Method {name!r} needs -k, the number of clusters{auto}.")
    if foreign := given.keys() - parameters.keys():
        options = ", ".join(map(option_name, sorted(foreign)))
        raise click.UsageError(f"Method {name!r} takes no {options}; leave it out.")
    if given.get("n_clusters") == "auto":
        accepted = str(parameters["n_clusters"].annotation)
        if "None" in accepted:
            given["n_clusters"] = None
        elif "auto" not in accepted:
            raise click.UsageError(
                f"Method {name!r} does not choose the number of clusters; give it with -k."
            )
    if isinstance(given.get("n_clusters"), range) and "Sequence" not in str(
        parameters["n_clusters"].annotation
    ):
        asked = given["n_clusters"]
        raise click.UsageError(
            f"Method {name!r} takes no range such as -k {asked[0]}:{asked[-1]}, which is of supra; give a "
            "number, or auto."
        )
    return arguments[0], {**given, **own}


# The options of a method: --name VALUE for each parameter of its class, except those that `solve` declares or
# that a command line cannot give.
_COMMON = ("n_clusters", "random_state", "out", "client", "memory", "resume")
_WORDS = {"none": None, "true": True, "false": False}


def _own_parameters(parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """Return those of a method's parameters that have such an option, with their defaults."""
    return {p.name: p.default for p in parameters.values() if p.name not in _COMMON}


def _parse_options(
    name: str, known: dict[str, Any], given: Sequence[str]
) -> tuple[list[str], dict[str, Any]]:
    """Return the arguments of a command line and the ``known`` parameters set by its ``--name value``.

    A parameter that is boolean by default is a flag, ``--balance`` or ``--no-balance``.
    """
    arguments: list[str] = []
    found: dict[str, Any] = {}
    words = list(given)
    while words:
        word = words.pop(0)
        if word == STANDARD or not word.startswith("-"):
            arguments.append(word)
            continue
        if not word.startswith("--"):
            raise click.UsageError(f"No such option: {word}")
        option, has_value, value = word.partition("=")
        parameter = option[2:].replace("-", "_")
        negated = parameter.removeprefix("no_")
        if isinstance(known.get(parameter), bool) and not has_value:
            found[parameter] = True
        elif isinstance(known.get(negated), bool) and negated != parameter:
            found[negated] = False
        elif parameter not in known:
            own = [option_name(p) for p in known]
            common = [opt for p in click.get_current_context().command.params for opt in p.opts]
            raise click.UsageError(
                f"Method {name!r} takes no {option}; it takes {', '.join(own) or 'no options of its own'}."
                f"{did_you_mean(option, own + common)}"
            )
        elif not has_value and not words:
            raise click.UsageError(f"Option {option} needs a value.")
        else:
            found[parameter] = _value(option, value if has_value else words.pop(0), known[parameter])
    return arguments, found


def _value(option: str, text: str, default: Any) -> Any:
    """Return ``text`` as the value it looks like; if the default is a number, it must be one, of its kind."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    kinds: tuple[type[int] | type[float], ...] = (float,) if isinstance(default, float) else (int, float)
    for kind in kinds:
        try:
            return kind(text)
        except ValueError:
            continue
    if isinstance(default, (int, float)):
        raise click.UsageError(f"Option {option}: {text!r} is not a number; use one such as {default}.")
    return text


@click.command()
@click.argument("name", required=False, callback=known_method)
@reporting
def methods(name: str | None) -> None:
    """List the consensus methods, or describe the method NAME."""
    from bigcons.methods import METHODS

    if name is None:
        described = {key: _facts(method) for key, method in METHODS.items()}
        emit({"methods": described}, _table(described))
        return
    method = METHODS[name]
    options = "\n".join(
        f"  {option_name(parameter)}  (default: {'none' if default is None else default})"
        for parameter, default in _own_parameters(inspect.signature(method).parameters).items()
    )
    emit(
        _facts(method),
        f"{name}: {inspect.getdoc(method)}\n\nOptions of `bigcons solve -m {name}`:\n{options}",
    )


def _facts(method: type[ConsensusClusterer]) -> dict[str, Any]:
    return {
        "class": method.__name__,
        "summary": (inspect.getdoc(method) or "").partition("\n")[0],
        "parameters": list(inspect.signature(method).parameters),
        **method.info._asdict(),
        "predicts": method.places(),
    }


def _table(described: dict[str, dict[str, Any]]) -> str:
    """Return one line per method: its requirements, its capabilities and its source."""
    rows = [
        {
            "method": name,
            "soft": "yes" if entry["soft"] else "-",
            "soft input": "yes" if entry["soft_input"] else "-",
            "predict": "yes" if entry["predicts"] else "-",
            "missing labels": entry["missing"],
            "out of core": "yes" if entry["out_of_core"] else "-",
            "distributed": "yes" if entry["distributed"] else "-",
            "needs": entry["needs"],
            "paper": entry["paper"],
        }
        for name, entry in described.items()
    ]
    return table(list(rows[0]), rows, text=("missing labels", "needs", "paper"))
