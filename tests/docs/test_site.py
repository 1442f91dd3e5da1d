"""The documentation site (mkdocs.yml) has every page; `make docs` builds it and fails on a broken link or a warning."""

from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def test_every_page_is_in_the_navigation_once() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    entries = [page for section in navigation for pages in section.values() for page in pages]
    listed = [page if isinstance(page, str) else next(iter(page.values())) for page in entries]
    written = [path.name for path in (ROOT / "docs").glob("*.md")]
    assert sorted(listed) == sorted([*written, "index.md", "CONTRIBUTING.md", "CHANGELOG.md"])
