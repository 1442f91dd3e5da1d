"""Paths and texts among the overrides of a command, quoted for the override grammar, and as they were typed."""

from collections.abc import Sequence

from las.runtime.errors import ConfigError

SOURCE_KEYS = ("corpus.dev", "corpus.test", "corpus.train")
"""Keys whose values may be paths; commas in them stand between the values of a sweep."""

TEXT_KEYS = ("corpus.text.drop", "corpus.text.map")
"""Keys whose values are lists of texts, or texts with their replacements: `{ß: ss}`, passed on as `['ß: ss']`."""

PATH_KEYS = (
    "alignments",
    "audio",
    "augment.noise.folder",
    "augment.reverberation.folder",
    "checkpoint",
    "compare",
    "corpus.audio_root",
    "corpus.root",
    "data_dir",
    "dev",
    "example",
    "glm",
    "hypothesis",
    "input",
    "output",
    "page",
    "programs",
    "reference",
    "results_dir",
    "run",
    "run_dir",
    "runs_dir",
    "search.lm.path",
    "search.second_lm.path",
    "text",
    "warm_start.from",
)


FILES = {"decode": "audio", "transcribe": "input"}
"""Keys of the recordings that verbs take without a key too: `las transcribe checkpoint=RUN talk.wav other.flac`."""


def with_files(verb: str, arguments: Sequence[str]) -> list[str]:
    """The arguments of a verb with its recordings, which need no key, in one override.

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
    """An override as it is typed, without the quotes that `protect` puts around its value."""
    key, _, value = override.partition("=")
    if len(value) < 2 or not (value[0] == value[-1] == "'"):
        return override
    return f"{key}={value[1:-1]}".replace("\\'", "'").replace("\\\\", "\\")
