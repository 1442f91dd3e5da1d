"""Examples of docstrings as blocks of code on the documentation site: an extension of griffe (mkdocs.yml)."""

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
"""From the first prompt to the next empty line, in a docstring whose indentation is gone."""


class FencedExamples(Extension):
    """Puts fences around the examples, which Markdown would read as quotations and links."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(lambda block: f"```pycon\n{block[0]}\n```", obj.docstring.value)
