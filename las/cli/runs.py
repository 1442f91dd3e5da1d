"""The verb `runs`: runs listed from their files, two of them compared, those that train followed."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from las.cli import runs_list
from las.runtime.errors import ConfigError, suggest

KEYS = ("sort", "filter", "format", "compare", "page", "every")
PAGE = "runs_compared.html"


class Request(NamedTuple):
    """The request of a command line; `words` are the arguments without `=`."""

    words: tuple[str, ...]
    values: dict[str, str]

    @property
    def folder(self) -> Path:
        """The folder in which runs are looked for."""
        return Path(next((word for word in self.words if word != "watch"), "runs"))


def runs(arguments: Sequence[str]) -> None:
    """List the runs in a folder, from their files.

    las runs [FOLDER]             a line for each run in FOLDER (runs): name, corpus, seed, state, step, error rates of
                                  dev and test with 95 % intervals, parameters, minutes, commit, folder
      sort=test                   by a column; sort=-test from the highest
      filter='corpus=an4,test<8'  only runs for which all of these hold: = != < > <= >=, error rates in %, * in names
      format=table                or csv, json, md
    las runs compare=[A,B]        the config keys that differ, a page with the curves (page=runs_compared.html), and
                                  significance tests on the test sets that both decoded
    las runs watch [FOLDER]       follow the runs that train now; every=5 seconds
    """
    request = _parsed(arguments)
    if "compare" in request.values:
        folders = request.values["compare"].strip("[]").split(",")
        if len(folders) != 2 or not all(folders):
            raise ConfigError(f"compare={request.values['compare']}: two run folders: 'compare=[runs/a,runs/b]'")
        page = Path(request.values.get("page", PAGE))
        importlib.import_module("las.cli.runs_compare").compare(Path(folders[0]), Path(folders[1]), page)
    elif "watch" in request.words:
        importlib.import_module("las.cli.runs_watch").watch(request.folder, _seconds(request.values.get("every", "5")))
    else:
        values = request.values
        style = values.get("format", "table")
        print(runs_list.listing(request.folder, values.get("sort"), values.get("filter"), style), end="")


def _parsed(arguments: Sequence[str]) -> Request:
    values: dict[str, str] = {}
    words = []
    for argument in arguments:
        key, separator, value = argument.partition("=")
        if not separator:
            words.append(argument)
        elif key not in KEYS:
            raise ConfigError(f"{argument}: runs has no key {key!r}.{suggest(key, KEYS)}")
        else:
            values[key] = value
    if len(words) > 1 + ("watch" in words):
        raise ConfigError(f"one folder at a time: las runs {words[0]}")
    if (name := values.get("format", "table")) not in runs_list.FORMATS:
        raise ConfigError(f"format={name}: it is one of {', '.join(runs_list.FORMATS)}")
    return Request(tuple(words), values)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise ConfigError(f"every={text} is the number of seconds between two looks, for example every=5")
    return seconds
