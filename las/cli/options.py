"""The verbs `list` and `show`: the config groups, their options, and one option with the equation of its class."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

from las.config import folders, options
from las.config import groups as config_groups
from las.config.build import config_directory
from las.runtime.errors import ConfigError, suggest

WIDTH = 110
"""Columns of what a line says about an option."""


SHOWN = 3
"""Keys of a group that the list of groups has."""


def show(arguments: Sequence[str]) -> None:
    """Print an option composed, its file, and the documentation of its class with the equation.

    las show GROUP=CARD, for example cell=ln_global; a place, cell@model.listener.cell=ln_global, is left aside.
    --config-dir=DIR shows options of your own too.
    """
    if len(arguments) != 1 or "=" not in arguments[0]:
        raise ConfigError(_which_card(arguments))
    key, _, name = arguments[0].partition("=")
    group = _known_group(key.lstrip("+/").partition("@")[0])
    path = _known_card(group, name)
    print(f"# {path}\n{options.composed(group, name)}")
    if target := options.target(path):
        print(options.documentation(target))


def list(arguments: Sequence[str]) -> None:
    """Print the config groups, with the number of their options and the keys that choose them.

    las list GROUP, for example cell: its options, a line about each, and the keys that choose one.
    --config-dir=DIR lists options of your own too.
    """
    if len(arguments) > 1:
        raise ConfigError(f"one group at a time: las list {arguments[0]}")
    directory = config_directory()
    if not arguments:
        groups = folders.groups(directory)
        width = max(map(len, groups))
        for group in groups:
            count = len(folders.options(directory, group))
            keys = options.keys(group)
            listed = "  ".join([*keys[:SHOWN], *(["..."] if len(keys) > SHOWN else [])])
            print(f"{group:{width}}  {count:3} option{'s' if count > 1 else ' '}  {listed}".rstrip())
        print("\n`las list cell` lists the options of a group, `las show cell=ln_global` shows one")
        return
    group = _known_group(arguments[0])
    found = folders.options(directory, group)
    for number, key in enumerate(options.keys(group)):
        print(f"{'or' if number else 'choose one with'} {key}=...")
    width = max(map(len, found))
    for name, path in found.items():
        line = textwrap.shorten(options.summary(path), WIDTH, placeholder=" ...")
        print(f"{name:{width}}  {line}".rstrip())


def _known_group(name: str) -> str:
    if name not in (groups := folders.groups(config_directory())):
        raise ConfigError(f"{name}: there is no such group of configs.{suggest(name, groups)} `las list` shows them")
    return name


def _known_card(group: str, name: str) -> Path:
    found = folders.options(config_directory(), group)
    if name not in found:
        raise ConfigError(
            f"{group}={name}: there is no configs/{group}/{name}.yaml.{suggest(name, found)} (las list {group})"
        )
    return found[name]


def _which_card(arguments: Sequence[str]) -> str:
    """Message for an option without its group, with the groups that have it."""
    directory = config_directory()
    for name in arguments[:1]:
        if holders := config_groups.holders(directory, name):
            return f"{name}: say of which group: {' or '.join(f'las show {group}={name}' for group in holders)}"
        if name in folders.groups(directory):
            some = next(iter(folders.options(directory, name)))
            return f"{name}: say which option: las show {name}={some} (las list {name})"
    return "show takes one option, for example: las show cell=ln_global"
