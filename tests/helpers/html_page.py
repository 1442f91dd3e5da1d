"""A page of HTML, read for tests."""

from collections import Counter
from html.parser import HTMLParser

VOID = {"img", "meta", "wbr", "image", "polygon", "polyline", "line"}


class Page(HTMLParser):
    """Counts tags, keeps attributes that load something, and fails on a tag that is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.loads += [str(value) for name, value in attributes if name in ("src", "href", "srcset", "data", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag
