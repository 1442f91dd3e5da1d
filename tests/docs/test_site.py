"""The documentation site (mkdocs.yml) has every page; `make docs` builds it and fails on a broken link or a warning."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from browsers import BROWSERS

ROOT = Path(__file__).parents[2]


def test_every_page_is_in_the_navigation_once() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    entries = [page for section in navigation for pages in section.values() for page in pages]
    listed = [page if isinstance(page, str) else next(iter(page.values())) for page in entries]
    written = [path.name for path in (ROOT / "docs").glob("*.md")]
    assert sorted(listed) == sorted([*written, "index.md", "CONTRIBUTING.md", "CHANGELOG.md"])


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs missing: `make docs` installs it")
def test_the_site_is_searched_from_the_disk_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """Results of recipes are pages of numbers: a search does not find them."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "true"}, capture_output=True)
    assert built.returncode == 0, built.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        loaded = re.findall(r"<(?:script|img|iframe|source|link)\b[^>]*>", page.read_text("utf-8"))
        assert [tag for tag in loaded if re.search(r"(?:src|href)=[\"']?(?:https?:)?//", tag)] == [], page
    found = json.loads((tmp_path / "site/search/search_index.json").read_text("utf-8"))["docs"]
    assert len(found) > 300 and [entry for entry in found if "recipes/results" in entry["location"]] == []
    program = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if program is not None:
        options = ["--headless", "--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000"]
        opened = [program, *options, "--dump-dom", f"file://{tmp_path}/site/index.html?q=beam"]
        shown = subprocess.run(opened, capture_output=True, text=True, timeout=120).stdout
        assert re.search(r'md-search-result__meta">\d+ matching documents', shown)
