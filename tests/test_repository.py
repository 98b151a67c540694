"""The files that say what the project is agree: metadata, citations, recipe, workflows, forms, article."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

import bigcons

ROOT = Path(__file__).parents[1]
NAMES_IN_CONDA = {"dask": "dask-core"}


def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def project():
    return tomllib.loads(text_of("pyproject.toml"))["project"]


@pytest.fixture(scope="module")
def citation():
    return yaml.safe_load(text_of("CITATION.cff"))


def parted(requirement):
    """Return the name and the versions of a requirement, without spaces."""
    name, versions = re.fullmatch(r"([\w-]+)\s*(.*)", requirement).groups()
    return name, versions.replace(" ", "")


def test_repository__tracks_no_file_above_a_megabyte_and_no_package():
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    tracked = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    files = [ROOT / name for name in tracked.stdout.split("\0") if name and (ROOT / name).exists()]
    assert [file for file in files if file.stat().st_size > 2**20 or file.suffix == ".whl"] == []


def test_conda_recipe__needs_what_pyproject_needs(project):
    recipe = yaml.safe_load(text_of(".ci/conda/recipe.yaml"))
    needed = dict(map(parted, recipe["requirements"]["run"]))
    assert needed.pop("python") == project["requires-python"]
    ours = dict(map(parted, project["dependencies"]))
    assert needed == {NAMES_IN_CONDA.get(name, name): versions for name, versions in ours.items()}
    building = dict(map(parted, recipe["requirements"]["host"]))
    (requirement,) = tomllib.loads(text_of("pyproject.toml"))["build-system"]["requires"]
    assert building.items() >= dict([parted(requirement)]).items()
    assert recipe["context"]["version"] == bigcons.__version__
    assert [f"{name} = {where}" for name, where in project["scripts"].items()] == recipe["build"]["python"][
        "entry_points"
    ]
    assert recipe["about"]["license"] == project["license"]
    assert {recipe["about"][name] for name in ("homepage", "repository", "documentation")} <= {
        *project["urls"].values()
    }


def test_citation__is_of_this_version_and_names_the_papers_that_archives_and_the_article_name(
    citation, project
):
    assert citation["version"] == bigcons.__version__
    assert citation["license"] == project["license"]
    assert (citation["repository-code"], citation["url"]) == (
        project["urls"]["Source"],
        project["urls"]["Documentation"],
    )
    archive = json.loads(text_of(".zenodo.json"))
    assert (archive["title"], archive["license"]) == (citation["title"], project["license"])
    dois = {paper["doi"] for paper in citation["references"] if "doi" in paper}
    assert {entry["identifier"] for entry in archive["related_identifiers"]} == dois
    assert dois <= {*re.findall(r"^  doi = \{(.*)\}$", text_of("docs/paper/paper.bib"), re.MULTILINE)}
    page = text_of("docs/papers.md")
    for paper in citation["references"]:
        words = re.sub(r"\W+", " ", paper["title"]).casefold()
        assert words in re.sub(r"\W+", " ", page).casefold(), paper["title"]


def test_article__cites_what_its_bibliography_has_and_shows_a_picture_that_there_is():
    article = text_of("docs/paper/paper.md")
    cited = {*re.findall(r"@(\w+\d{4})", article)}
    assert cited == {*re.findall(r"^@\w+\{(\w+),$", text_of("docs/paper/paper.bib"), re.MULTILINE)}
    (picture,) = re.findall(r"\]\((\S+\.png)\)", article)
    assert (ROOT / "docs/paper" / picture).exists()


@pytest.mark.parametrize("workflow", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda p: p.name)
def test_workflows__use_actions_by_the_hash_of_a_commit_and_name_its_version(workflow):
    uses = re.findall(r"uses: (\S+)(.*)", workflow.read_text(encoding="utf-8"))
    assert uses
    for action, version in uses:
        if not action.startswith("./"):
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", version), action


@pytest.mark.parametrize(
    "page", [*sorted((ROOT / ".github").glob("*.md")), ROOT / "CONTRIBUTING.md"], ids=lambda p: p.name
)
def test_pages_for_contributors__name_files_that_there_are(page):
    text = page.read_text(encoding="utf-8")
    for path in re.findall(r"(?<![\w/.-])(?:tests|benchmarks|bigcons|docs|\.ci|\.github)/[\w/.-]*\w", text):
        assert (ROOT / path).exists(), path


def test_forms__are_yaml_with_what_github_asks_for():
    for form in ("bug", "idea"):
        asked = yaml.safe_load(text_of(f".github/ISSUE_TEMPLATE/{form}.yml"))
        assert {"name", "description", "body"} <= asked.keys()
        fields = asked["body"]
        assert len({field["id"] for field in fields}) == len(fields)
        assert all(f["type"] in ("textarea", "input") and f["attributes"]["label"] for f in fields)
        assert any(field.get("validations", {}).get("required") for field in fields)
    for path in (".github/dependabot.yml", ".readthedocs.yaml"):
        assert yaml.safe_load(text_of(path))["version"] == 2
    extras = tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"]
    (install,) = yaml.safe_load(text_of(".readthedocs.yaml"))["python"]["install"]
    assert {*install["extra_requirements"]} <= extras.keys()
