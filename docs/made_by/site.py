"""Pages of the documentation site that are made, not written: a hook of MkDocs (mkdocs.yml), run by `make docs`.

README.md is the first page, CHANGELOG.md, CONTRIBUTING.md and the tables of recipes/results are taken in, each with the
page that its JSON makes (recipes/reports), and every public name (las/config/public.py) has its docstring on a page of
its package.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from las.config import public
from las.reproduction import html_report, judging, recipe, results

ROOT = Path(__file__).parents[2]
TAKEN_IN = {
    "index.md": "README.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CITATION.cff": "CITATION.cff",
    "LICENSE": "LICENSE",
}
"""Pages of the site that lie above docs/."""
SUBJECTS = {
    "nn": "Cells, layers, attention, models",
    "data": "Corpora and batches",
    "hmm": "Hidden Markov models",
    "lm": "Language models",
    "decoding": "Searches, scorers, transcribing",
    "scoring": "Error rates and significance",
    "training": "Trainings",
    "cli": "Whole jobs",
    "config": "Configs",
    "runtime": "Processes, errors",
}
"""Titles of the API's pages, by the package."""


def api_pages() -> dict[str, str]:
    """Markdown of each page of the API by its path: the public names of a package in alphabetical order."""
    packages: dict[str, list[str]] = defaultdict(list)
    for name, module in sorted({**public.COMPONENTS, **public.TOOLS}.items()):
        packages[module.split(".")[1]].append(f"::: {module}.{name}\n    options:\n      heading: las.{name}\n")
    if unknown := sorted(packages.keys() - SUBJECTS.keys()):
        raise ValueError(f"SUBJECTS in {__file__} has no title for {unknown}")
    return {f"api/{key}.md": "\n".join([f"# {SUBJECTS[key]}\n", *packages[key]]) for key in SUBJECTS if key in packages}


def reports() -> Iterator[tuple[str, str]]:
    """The page of each table by the stem of its file, made of its JSON alone."""
    for path in sorted((ROOT / "recipes" / "results").glob("*-*-*.json")):
        table = results.read(path)
        verdicts = judging.recorded(path.parent / judging.RECORDS, table.tier, table.corpus)
        own = judging.of_recipe(verdicts, table.recipe)
        yield path.stem, html_report.page(recipe.read(table.recipe), table, own)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the API into the navigation."""
    assert config.nav is not None
    for section in config.nav:
        if "API" in section:
            section["API"] = list(api_pages())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made and those from outside docs/."""
    made: dict[str, dict[str, Any]] = {path: {"content": text} for path, text in api_pages().items()}
    for path, source in TAKEN_IN.items():
        made[path] = {"content": (ROOT / source).read_text(encoding="utf-8")}
    for result in sorted((ROOT / "recipes" / "results").glob("*.*")):
        if result.suffix != ".html":
            made[f"recipes/results/{result.name}"] = {"abs_src_path": str(result)}
    made |= {f"recipes/reports/{stem}.html": {"content": text} for stem, text in reports()}
    for path, where in made.items():
        files.append(File.generated(config, path, **where))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links of the repository's layout into those of the site's, and keep results out of the search."""
    if page.file.src_uri.startswith("recipes/results/"):
        page.meta["search"] = {"exclude": True}
        stem = Path(page.file.src_uri).stem
        if not stem.startswith("claims"):
            markdown += f"\n[Curves, attention and distributions](../reports/{stem}.html)\n"
    markdown = markdown.replace("](../recipes/", "](recipes/")
    markdown = re.sub(r"\]\(\.\./(README|CHANGELOG|CONTRIBUTING)\.md", _above, markdown)
    return markdown.replace("](docs/", "](") if page.file.src_uri in TAKEN_IN else markdown


def _above(link: re.Match[str]) -> str:
    return f"]({'index' if link[1] == 'README' else link[1]}.md"
