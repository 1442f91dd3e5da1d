"""Hydra's own flags, `--cfg job`, `--info defaults-tree`, `--shell-completion` and the others, and `--trust`.

`parse` sorts them from the overrides of a command, with errors that say what to type; the rest hands over to Hydra.
Parsing imports nothing heavy.
"""

import argparse
import contextlib
import io
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, NoReturn

from las.config import build, groups
from las.config import folders as config_folders
from las.config.overrides import keys, value_of
from las.config.trust import split
from las.runtime.errors import ConfigError, MissingValueError, suggest

CONFIGS = ("job", "hydra", "all")
INFOS = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
SHELLS = ("bash", "zsh", "fish")
SEARCH_PATH = "hydra.searchpath"

MEANINGLESS = {
    ("--config-path", "-cp"): "the configs of verbs are the package's. Your own cards lie in a folder that "
    "--config-dir=DIR adds",
    ("--experimental-rerun",): "a run continues with the command that began it, typed again",
    ("--hydra-help",): "`las <verb> --help` explains a verb, `las <verb> --info` shows what Hydra composes of it, and "
    "docs/configuration.md lists the flags",
}
"""Flags of Hydra that mean nothing here, with what to do instead."""


class Flags(NamedTuple):
    """Hydra's flags of one command, and its overrides without them and without `hydra.searchpath`."""

    overrides: list[str]
    help: bool = False
    cfg: str | None = None
    info: str | None = None
    resolve: bool = False
    package: str | None = None
    multirun: bool = False
    completion: bool = False
    config_name: str | None = None
    folders: tuple[str, ...] = ()
    trust: tuple[str, ...] = ()
    """Packages that the command trusts; this flag is not Hydra's."""

    @property
    def has_config_flags(self) -> bool:
        """True if a flag was given that only a verb with a config has."""
        return self._replace(overrides=[], help=False, trust=()) != Flags([])


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are raised."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}. `las --help` lists the flags")


def _parser() -> _Parser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--cfg", "-c")
    parser.add_argument("--info", "-i", nargs="?", const="all")
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("--package", "-p")
    parser.add_argument("--run", "-r", action="store_true")
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--shell-completion", "-sc", action="store_true")
    parser.add_argument("--config-name", "-cn")
    parser.add_argument("--config-dir", "-cd", action="append", default=[])
    parser.add_argument("--trust", action="append", default=[])
    for names in MEANINGLESS:
        parser.add_argument(*names, nargs="?", const="", dest=names[0])
    parser.add_argument("overrides", nargs="*")
    return parser


def parse(arguments: Sequence[str]) -> Flags:
    """Sort flags and overrides. Raises ConfigError for an unknown flag, a wrong value, two flags at odds."""
    if not any(each.startswith("-") or SEARCH_PATH in each for each in arguments):
        return Flags(list(arguments))
    parser = _parser()
    given, unknown = parser.parse_known_intermixed_args(arguments)
    for flag in unknown:
        known = [name for action in parser._actions for name in action.option_strings]
        raise ConfigError(f"{flag}: there is no such flag.{suggest(flag.partition('=')[0], known)}")
    for names, instead in MEANINGLESS.items():
        if getattr(given, names[0]) is not None:
            raise ConfigError(f"{names[0]}: {instead}")
    if given.info is not None and "=" in given.info:  # `--info corpus=an4`: a flag without a value, and an override
        given.overrides.append(given.info)
        given.info = "all"
    _require_one_of("--cfg", given.cfg, CONFIGS)
    _require_one_of("--info", given.info, INFOS)
    _require_compatible(given)
    folders = (*given.config_dir, *_search_path(given.overrides))
    return Flags(
        [override for override in given.overrides if not _is_search_path(override)],
        help=given.help,
        cfg=given.cfg,
        info=given.info,
        resolve=given.resolve,
        package=given.package,
        multirun=given.multirun,
        completion=given.shell_completion,
        config_name=given.config_name,
        folders=folders,
        trust=tuple(split(given.trust, "--trust")),
    )


def _require_one_of(flag: str, value: str | None, values: Sequence[str]) -> None:
    if value is not None and value not in values:
        raise ConfigError(f"{flag} {value}: it takes {', '.join(values[:-1])} or {values[-1]}")


def _require_compatible(given: argparse.Namespace) -> None:
    commands = {
        "--run": given.run,
        "--multirun": given.multirun,
        "--cfg": given.cfg is not None,
        "--info": given.info is not None,
        "--shell-completion": given.shell_completion,
    }
    if len(chosen := [flag for flag, is_given in commands.items() if is_given]) > 1:
        raise ConfigError(f"{' and '.join(chosen)}: only one of them at a time")
    for flag, is_given in (("--resolve", given.resolve), ("--package", given.package is not None)):
        if is_given and given.cfg is None:
            raise ConfigError(f"{flag} belongs to --cfg: --cfg job {flag}{' optim' if flag == '--package' else ''}")


def _is_search_path(override: str) -> bool:
    return override.lstrip("+").partition("=")[0] == SEARCH_PATH


def _search_path(overrides: Sequence[str]) -> Iterator[str]:
    """The folders of `hydra.searchpath=[...]`."""
    for override in filter(_is_search_path, overrides):
        folders = value_of(SEARCH_PATH, [override.lstrip("+")])
        if not isinstance(folders, list):
            raise ConfigError(
                f"{override}: a list of folders, '{SEARCH_PATH}=[/my/configs]', or --config-dir=/my/configs"
            )
        for folder in map(str, folders):
            if folder.startswith("pkg://"):
                raise ConfigError(f"{override}: {folder} is inside a package: give the folder itself, --config-dir=DIR")
            yield folder


def show_config(name: str, overrides: list[str], kind: str, package: str | None, resolve: bool) -> None:
    """Print what `configs/<name>.yaml` composes to, as Hydra does: the job's part, Hydra's own or all; with
    interpolations, or `resolve`d.

    Raises ConfigError for what does not compose, and for a package that is not in the config.
    """
    from hydra.types import RunMode

    overrides = _composable(name, overrides)
    with config_folders.hydra(build.config_directory()) as hydra, config_folders.plain_errors():
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                hydra.show_cfg(name, overrides, kind, package, resolve)
        except SystemExit as error:  # Hydra's answer to a package that is not there
            known = keys(hydra.compose_config(name, overrides, RunMode.RUN))
            message = f"--package {package}: the config has no such part, or it is null.{suggest(str(package), known)}"
            raise ConfigError(message) from error


def show_info(name: str, overrides: list[str], topic: str) -> None:
    """Print what Hydra knows about the composition of `configs/<name>.yaml`: `topic` is one of `INFOS`."""
    overrides = _composable(name, overrides)
    with config_folders.hydra(build.config_directory()) as hydra, config_folders.plain_errors(), _logging_restored():
        hydra.show_info(topic, name, overrides)


def complete(request: Sequence[str], configs: Mapping[str, str], program: str) -> None:
    """Print a shell's script of completions (`install=bash`, `uninstall=bash`), or the completions of the line that
    the shell is at (`query=bash`, in COMP_LINE).

    Hydra completes the overrides of each verb; the verbs themselves, with the names of their `configs`, are ours.
    """
    action, _, shell = " ".join(request).partition("=")
    if action not in ("install", "uninstall", "query") or shell not in SHELLS:
        raise ConfigError(f"--shell-completion {' '.join(request)}: install=bash, install=zsh or install=fish")
    name = None
    if action == "query":
        line = os.environ.get("COMP_LINE", "")
        words = line.split()
        if len(words) < 2 or (len(words) == 2 and not line.endswith(" ")):
            verbs = [verb for verb in configs if verb.startswith("".join(words[1:]))]
            print(("\n" if shell == "fish" else " ").join(verbs))
            return
        name = configs.get(words[1].replace("-", "_"))
        if not name:
            return
        os.environ["COMP_LINE"] = line.replace(f" {words[1]}", "", 1)
    elif program.endswith(".py"):
        raise ConfigError(f"--shell-completion is for the command las: las --shell-completion {action}={shell}")
    with config_folders.hydra(build.config_directory()) as hydra:
        hydra.shell_completion(name, [f"{action}={shell}"])


def _composable(name: str, overrides: list[str]) -> list[str]:
    """The overrides as Hydra gets them, after the checks of `config.compose`; only values may be missing still."""
    with contextlib.suppress(MissingValueError):
        build.compose(name, overrides)
    return groups.with_parts_of_a_search(overrides)


@contextlib.contextmanager
def _logging_restored() -> Iterator[None]:
    """Give the root logger its level and handlers back: Hydra prints its information through it."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
