"""HTML pages from the Jinja templates in `las/templates`, with everything that is inserted escaped."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).parents[1] / "templates"


def render(template: str, **values: Any) -> str:
    """Return the text of a template with its variables. Raises jinja2.UndefinedError for one that is not given."""
    return _environment().get_template(template).render(values)


def macro(template: str, name: str, **values: Any) -> str:
    """Return the text of one macro of a template, without surrounding white space."""
    return str(getattr(_environment().get_template(template).module, name)(**values)).strip()


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # scoring without a page need not load it

    options: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    return Environment(loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined, **options)
