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
from dataclasses import dataclass, field, replace
from typing import NoReturn

from las.config import build, folders, groups
from las.config.overrides import keys, value_of
from las.config.targets import package_names
from las.runtime.errors import ConfigError, MissingValueError, suggest

INFOS = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
SHELLS = ("bash", "zsh", "fish")
SEARCH_PATH = "hydra.searchpath"
MEANINGLESS = {
    ("--config-path", "-cp"): "the configs of verbs are the package's. Options of your own lie in a folder that "
    "--config-dir=DIR adds",
    ("--experimental-rerun",): "a run continues with the command that began it, typed again",
    ("--hydra-help",): "`las <verb> --help` explains a verb, `las <verb> --info` shows what Hydra composes of it, and "
    "docs/configuration.md lists the flags",
}
"""Flags of Hydra that mean nothing here, with what to do instead."""


@dataclass
class Flags:
    """Hydra's flags of one command, and its overrides without them and without `hydra.searchpath`."""

    overrides: list[str] = field(default_factory=list)
    help: bool = False
    cfg: str | None = None
    info: str | None = None
    resolve: bool = False
    package: str | None = None
    run: bool = False
    multirun: bool = False
    shell_completion: bool = False
    config_name: str | None = None
    config_dir: list[str] = field(default_factory=list)
    trust: list[str] = field(default_factory=list)
    """Packages that the command trusts; this flag is not Hydra's."""

    @property
    def has_config_flags(self) -> bool:
        """True if a flag was given that only a verb with a config has."""
        return replace(self, overrides=[], help=False, trust=[]) != Flags()


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are raised."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}. `las --help` lists the flags")


def _parser() -> _Parser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--help", "-h", action="store_true")
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--run", "-r", action="store_true")
    one.add_argument("--multirun", "-m", action="store_true")
    one.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    one.add_argument("--info", "-i", nargs="?", const="all")
    one.add_argument("--shell-completion", "-sc", action="store_true")
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("--package", "-p")
    parser.add_argument("--config-name", "-cn")
    parser.add_argument("--config-dir", "-cd", action="append", default=[])
    parser.add_argument("--trust", action="append", default=[])
    for names in MEANINGLESS:
        parser.add_argument(*names, nargs="?", const="", dest=names[0])
    parser.add_argument("overrides", nargs="*")
    return parser


def parse(arguments: Sequence[str]) -> Flags:
    """Sort flags and overrides. Raises ConfigError for an unknown flag, a wrong value, conflicting flags."""
    if not any(each.startswith("-") or SEARCH_PATH in each for each in arguments):
        return Flags(list(arguments))
    parser = _parser()
    given, unknown = parser.parse_known_intermixed_args(arguments)
    for flag in unknown:
        known = [name for action in parser._actions for name in action.option_strings]
        raise ConfigError(f"{flag}: there is no such flag.{suggest(flag.partition('=')[0], known)}")
    values = vars(given)
    for (flag, *_), instead in MEANINGLESS.items():
        if values.pop(flag) is not None:
            raise ConfigError(f"{flag}: {instead}")
    flags = Flags(**values)
    if flags.info is not None and "=" in flags.info:  # `--info corpus=an4`: a flag without a value, and an override
        flags.overrides.append(flags.info)
        flags.info = "all"
    if flags.info not in (None, *INFOS):
        raise ConfigError(f"--info {flags.info}: it takes {', '.join(INFOS[:-1])} or {INFOS[-1]}")
    for flag, value in (("--resolve", flags.resolve), ("--package", flags.package)):
        if value and flags.cfg is None:
            raise ConfigError(f"{flag} belongs to --cfg: --cfg job {flag}{' optim' if flag == '--package' else ''}")
    flags.trust = package_names(flags.trust, "--trust")
    of_path = [each for each in flags.overrides if each.lstrip("+").partition("=")[0] == SEARCH_PATH]
    flags.config_dir += [folder for override in of_path for folder in _searched(override)]
    flags.overrides = [each for each in flags.overrides if each not in of_path]
    return flags


def _searched(override: str) -> Iterator[str]:
    """Yield the folders of `hydra.searchpath=[...]`."""
    listed = value_of(SEARCH_PATH, [override.lstrip("+")])
    if not isinstance(listed, list):
        raise ConfigError(f"{override}: a list of folders, '{SEARCH_PATH}=[/my/configs]', or --config-dir=/my/configs")
    for folder in map(str, listed):
        if folder.startswith("pkg://"):
            raise ConfigError(f"{override}: {folder} is inside a package: give the folder itself, --config-dir=DIR")
        yield folder


def show(name: str, overrides: list[str], flags: Flags) -> None:
    """Print what `configs/<name>.yaml` composes to (`--cfg`), or what Hydra knows about that (`--info`).

    Raises ConfigError for what does not compose, and for a package that is not in the config.
    """
    with contextlib.suppress(MissingValueError):  # values may be missing still
        build.compose(name, overrides)
    overrides = groups.with_parts_of_a_search(overrides)
    with folders.hydra(build.config_directory()) as hydra, folders.plain_errors():
        if flags.info is not None:
            with _logging_restored():
                hydra.show_info(flags.info, name, overrides)
            return
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                hydra.show_cfg(name, overrides, flags.cfg, flags.package, flags.resolve)
        except SystemExit as error:  # Hydra's answer to a package that is not there
            known = keys(folders.load(build.config_directory(), name, overrides))
            message = f"the config has no such part, or it is null.{suggest(str(flags.package), known)}"
            raise ConfigError(f"--package {flags.package}: {message}") from error


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
    with folders.hydra(build.config_directory()) as hydra:
        hydra.shell_completion(name, [f"{action}={shell}"])
