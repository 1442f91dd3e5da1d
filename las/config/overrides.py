"""Hydra's grammar of overrides, `key=value`: values read, written, quoted, and errors explained."""

import itertools
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from las.config import folders, groups
from las.config.groups import HYDRA
from las.runtime.errors import ConfigError, suggest

SOURCE_KEYS = ("corpus.dev", "corpus.test", "corpus.train")
"""Keys whose values may be paths; commas in them stand between the values of a sweep."""
TEXT_KEYS = ("corpus.text.drop", "corpus.text.map")
"""Keys whose values are lists of texts, or texts with their replacements: `{ß: ss}`, passed on as `['ß: ss']`."""
_PATHS = """
alignments attribution audio augment.noise.folder augment.reverberation.folder checkpoint compare corpus.audio_root
corpus.root data_dir dev example glm hypothesis input licence output page programs reference results_dir run run_dir
runs_dir search.lm.path search.second_lm.path text warm_start.from
"""
PATH_KEYS = frozenset(_PATHS.split())
"""Keys whose values are paths."""
FILES = {"decode": "audio", "transcribe": "input"}
"""Keys of the recordings that verbs take without a key too: `las transcribe checkpoint=RUN talk.wav other.flac`."""
CLOSING = {"[": "]", "{": "}"}


def with_files(verb: str, arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a verb with its recordings, which need no key, in one override.

    A name with `=` in it needs its folder, `./a=b.wav`. Raises ConfigError for recordings by their key besides.
    """
    key = FILES.get(verb)
    if key is None or not (names := [each for each in arguments if _is_name(each)]):
        return list(arguments)
    rest = [each for each in arguments if each not in names]
    if by_key := [each for each in rest if each.partition("=")[0] == key]:
        raise ConfigError(f"{by_key[0]} and {' '.join(names)}: recordings are given either by key or without")
    quoted = ",".join(map(_quoted, names))
    return [*rest, f"{key}={quoted}" if len(names) == 1 else f"{key}=[{quoted}]"]


def _is_name(argument: str) -> bool:
    """Return whether an argument is no override: it sets no key and deletes none."""
    return argument.startswith(("/", "./", "../")) or not ("=" in argument or argument.startswith("~"))


def protect(override: str) -> str:
    """Quote paths and texts so that the override grammar reads spaces, brackets and foreign letters literally."""
    key, separator, value = override.partition("=")
    if key in TEXT_KEYS and value[:1] + value[-1:] in ("[]", "{}") and not set("'\"") & set(value):
        inside = value[1:-1].strip()
        return f"{key}=[{','.join(_quoted(text.strip()) for text in inside.split(',') if inside)}]"
    is_path = key in PATH_KEYS or (key in SOURCE_KEYS and "," not in value)
    if not is_path or not separator or value[:1] in "'\"[" or value == "null":
        return override
    return f"{key}={_quoted(value)}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def protect_each(override: str) -> str:
    """Quote the paths of a sweep, `checkpoint=runs/a,runs/b`, each by itself."""
    key, separator, value = override.partition("=")
    if key not in PATH_KEYS or "," not in value or value[:1] in "'\"[" or value.endswith(")"):
        return protect(override)
    paths = (protect(f"{key}={path}").partition("=")[2] for path in value.split(","))
    return f"{key}{separator}{','.join(paths)}"


def typed(override: str) -> str:
    """Return an override as it is typed, without the quotes that `protect` puts around its value."""
    key, _, value = override.partition("=")
    if len(value) < 2 or not (value[0] == value[-1] == "'"):
        return override
    return f"{key}={value[1:-1]}".replace("\\'", "'").replace("\\\\", "\\")


def value_of(key: str, overrides: Sequence[str]) -> Any:
    """Return the value that the last of some overrides gives a key, without its quotes; None if none sets the key."""
    from hydra.errors import HydraException

    matching = [override for override in overrides if override.partition("=")[0] == key]
    try:
        return _parsed(matching[-1]).value() if matching else None
    except HydraException as error:
        raise ConfigError(str(error)) from error


def _parsed(override: str) -> Any:
    """Return an override as Hydra reads it. Raises HydraException for one that it cannot read."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create().parse_override(override)


def of_section(section: Mapping[str, Any], where: str) -> Iterator[str]:
    """Yield overrides that set every value of a section under the key `where`, adding keys that are not there."""
    for key, value in section.items():
        if isinstance(value, dict):
            yield from of_section(value, f"{where}.{key}")
        else:
            yield f"++{where}.{key}={written(value)}"


def written(value: Any) -> str:
    """Format a plain value as it is typed after the equals sign."""
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(value, Quote.single).with_quotes() if isinstance(value, str) else json.dumps(value)


def quoted(key: str, value: str) -> str:
    """Override `key=value` for any string value, quoted for Hydra's grammar and for the shell."""
    escaped = re.sub(r'(\\*)"', r'\1\1\\"', value)
    escaped = re.sub(r"(\\+)$", r"\1\1", escaped)
    return shlex.quote(f'{key}="{escaped}"')


def explain(error: Exception, name: str, overrides: list[str], directory: Path) -> str:
    """Message with the nearest keys when an override names an unknown key, else Hydra's own message."""
    from hydra.errors import HydraException

    if message := explain_unreadable(overrides) or explain_sweep(overrides):
        return message
    for override in overrides:
        key = override.partition("=")[0]
        if "@" in key and str(error).startswith(f"Could not override '{key}'"):
            return groups.misplaced(directory, name, override, overrides)
    plain = [
        o
        for o in overrides
        if o.startswith("~") or ("=" in o and not o.startswith("+") and not groups.is_group(o, directory))
    ]
    try:
        composed = folders.load(directory, name, [o for o in overrides if o not in plain])
    except HydraException:
        plain = []
    for override in plain:
        key = override.partition("=")[0].lstrip("~")
        if override.startswith("~") and "@" in key:
            continue
        known = {each for each in keys(composed) if not HYDRA.match(each)}
        section = key.partition(".")[0]
        if "checkpoint" in known and section not in known and folders.options(directory, section):
            return f"{override}: {groups.of_checkpoint(name, section)}"
        if key not in known:
            known |= set(groups.holders(directory, override.partition("=")[2]))
            return f"{override}: there is no key {key!r} in configs/{name}.yaml.{suggest(key, known)}"
    return re.split(r"\n\s*full_key", str(error))[0].strip()


def keys(config: Any, prefix: str = "") -> set[str]:
    """Dotted paths of all keys and sections of a composed config, without resolving interpolations."""
    from omegaconf import DictConfig, OmegaConf

    paths: set[str] = set()
    for key in config:
        path = f"{prefix}{key}"
        paths.add(path)
        section = not (OmegaConf.is_missing(config, key) or OmegaConf.is_interpolation(config, key))
        if section and isinstance(config[key], DictConfig):
            paths |= keys(config[key], f"{path}.")
    return paths


def explain_unreadable(overrides: Sequence[str]) -> str | None:
    """Message for the first override that Hydra's grammar cannot read, with a corrected one; None if all can be."""
    for each in overrides:
        key, _, value = each.partition("=")
        if not _is_readable(each):
            better = _with_closed_brackets(key, value) if value[:1] in CLOSING else quoted(key, value.strip("'\""))
            return (
                f"{each}: this value cannot be read. Letters beyond English ones, brackets, quotes, = and most signs "
                f"stand in two pairs of quotes, the outer one for the shell{f': {better}' if better else ''}"
            )
    return None


def explain_sweep(overrides: Sequence[str]) -> str | None:
    """Message for the first value with a comma outside quotes and brackets, which is a sweep; None if there is none."""
    for each in overrides:
        if _parsed(each).is_sweep_override():
            key, _, value = each.partition("=")
            return (
                f"{each}: commas stand between several values. For a list: {shlex.quote(f'{key}=[{value}]')}; for a "
                f"text: {quoted(key, value)}; for a run with each of them add -m: las train -m {shlex.quote(each)}"
            )
    return None


def combinations(overrides: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the overrides of each run of a sweep, in Hydra's order: the last key that has several values changes
    fastest.

    Hydra's own keys are left out. Raises ConfigError for an override that cannot be parsed.
    """
    from hydra.errors import HydraException

    swept = [override for override in overrides if not HYDRA.match(override)]
    try:
        if message := explain_unreadable(swept):
            raise ConfigError(message)
        parsed = map(_parsed, swept)
        choices = [
            [f"{parsed_override.get_key_element()}={value}" for value in parsed_override.sweep_string_iterator()]
            if parsed_override.is_sweep_override()
            else [override]
            for override, parsed_override in zip(swept, parsed, strict=True)
        ]
    except HydraException as error:
        raise ConfigError(str(error)) from error
    except RecursionError as error:
        raise ConfigError("an override has lists or sections inside each other, too deep for a config") from error
    return list(itertools.product(*choices))


def _with_closed_brackets(key: str, value: str) -> str | None:
    """Override with its brackets closed, quoted for the shell; None if it is still not readable then."""
    missing: list[str] = []
    for character in value:
        if character in CLOSING:
            missing.append(CLOSING[character])
        elif missing and character == missing[-1]:
            missing.pop()
    whole = f"{key}={value}{''.join(reversed(missing))}"
    return shlex.quote(whole) if _is_readable(whole) else None


def _is_readable(text: str) -> bool:
    from hydra.errors import HydraException

    try:
        _parsed(text)
    except HydraException:
        return False
    return True
