"""The verbs `list`, `show` and `models`: the config groups, their options with equations, and pretrained models.

Docstrings are read from the source, without importing it, so that no torch is needed but for the parameters of cells.
"""

import ast
import functools
import importlib
import importlib.util
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from las.config import folders, groups, public
from las.config.build import config_directory, shown
from las.runtime.errors import ConfigError, suggest
from las.storage import pretrained

MOUNTING = ("train", "language_model")
"""Configs of verbs in which keys are looked for; the first that has a place for a group counts."""
WIDTH = 110
"""Columns of what a line says about an option."""
SHOWN = 3
"""Keys of a group that the list of groups has."""
SIZES = 80, 256
"""Input and hidden size of a cell whose parameters are shown."""


def show(arguments: Sequence[str]) -> None:
    """Print an option composed, its file, and the documentation of its class with the equation.

    Of a cell also the parameters, the state, the kernels that compute it on this machine and their kind of speed.

    las show GROUP=OPTION, for example cell=ln_global; a place, cell@model.listener.cell=ln_global, is left aside.
    --config-dir=DIR shows options of your own too.
    """
    if len(arguments) != 1 or "=" not in arguments[0]:
        raise ConfigError(_which_option(arguments))
    key, _, name = arguments[0].partition("=")
    group = _known_group(key.lstrip("+/").partition("@")[0])
    path = _known_option(group, name)
    print(f"# {path}\n{composed(group, name)}")
    if target := target_of(path):
        print(documentation(target))
    if group == "cell":
        print(f"\n{on_this_machine(name)}")


def on_this_machine(cell: str) -> str:
    """Return the parameters of a cell at usual sizes, the kernels that compute it here and how these work.

    Says why where it cannot be made: without torch, or for a class of a package that is not trusted.
    """
    try:
        torch: Any = importlib.import_module("torch")
        choice: Any = importlib.import_module("las.nn.kernels.choice")
        build: Any = importlib.import_module("las.config.build")
        made = build.build(build.option("cell", cell), where=f"cell={cell}")(*SIZES)
    except (ImportError, OSError, ConfigError) as error:
        return f"parameters and kernels: not listed here ({error})"
    made.to("cuda" if torch.cuda.is_available() else "cpu")
    shapes = [f"  {name} {[*parameter.shape]}" for name, parameter in made.named_parameters()]
    state = ", ".join(f"{name} {[*part.shape[1:]]}" for name, part in made.initial_state(1)._asdict().items())
    count = sum(parameter.numel() for parameter in made.parameters())
    like = next(made.parameters())
    kernel = choice.select_kernel(made, like)
    first = f"parameters with input_size={SIZES[0]} and hidden_size={SIZES[1]}: {count:,}"
    where = f"kernels on {like.device.type}, fastest first: {choice.available(made)}"
    return "\n".join([first, *shapes, f"state: {state}", where, f"speed: {kernel.speed}"])


def list(arguments: Sequence[str]) -> None:
    """Print the config groups, with the number of their options and the keys that choose them.

    las list GROUP, for example cell: its options, a line about each, and the keys that choose one.
    --config-dir=DIR lists options of your own too.
    """
    if len(arguments) > 1:
        raise ConfigError(f"one group at a time: las list {arguments[0]}")
    directory = config_directory()
    if not arguments:
        known = folders.groups(directory)
        width = max(map(len, known))
        for group in known:
            count = len(folders.options(directory, group))
            mounted = keys(group)
            listed = "  ".join([*mounted[:SHOWN], *(["..."] if len(mounted) > SHOWN else [])])
            print(f"{group:{width}}  {count:3} option{'s' if count > 1 else ' '}  {listed}".rstrip())
        print("\n`las list cell` lists the options of a group, `las show cell=ln_global` shows one")
        return
    group = _known_group(arguments[0])
    found = folders.options(directory, group)
    for number, key in enumerate(keys(group)):
        print(f"{'or' if number else 'choose one with'} {key}=...")
    width = max(map(len, found))
    for name, path in found.items():
        line = textwrap.shorten(summary(path), WIDTH, placeholder=" ...")
        print(f"{name:{width}}  {line}".rstrip())


def models(arguments: Sequence[str]) -> None:
    """Print the pretrained models: errors, size, licence, and the training that made each.

    las transcribe model=NAME talk.wav; las.load("NAME").
    """
    if arguments:
        raise ConfigError(f"models takes no arguments: las transcribe model={arguments[0]} talk.wav")
    for number, (name, model) in enumerate(pretrained.models().items()):
        place = f"downloaded from {model.url}" if model.url else "in this package"
        print(f"{name}{'' if number else ' (default)'}: {model.task}")
        print(f"  {model.error}; {model.parameters:,} parameters, {model.size / 1e6:.1f} MB, {place}")
        print(f"  data: {model.licence}\n  {model.command}")


def _known_group(name: str) -> str:
    if name not in (known := folders.groups(config_directory())):
        raise ConfigError(f"{name}: there is no such group of configs.{suggest(name, known)} `las list` shows them")
    return name


def _known_option(group: str, name: str) -> Path:
    found = folders.options(config_directory(), group)
    if name not in found:
        raise ConfigError(
            f"{group}={name}: there is no configs/{group}/{name}.yaml.{suggest(name, found)} (las list {group})"
        )
    return found[name]


def _which_option(arguments: Sequence[str]) -> str:
    """Message for an option without its group, with the groups that have it."""
    directory = config_directory()
    for name in arguments[:1]:
        if holders := groups.holders(directory, name):
            return f"{name}: say of which group: {' or '.join(f'las show {group}={name}' for group in holders)}"
        if name in folders.groups(directory):
            some = next(iter(folders.options(directory, name)))
            return f"{name}: say which option: las show {name}={some} (las list {name})"
    return "show takes one option, for example: las show cell=ln_global"


def keys(group: str) -> Sequence[str]:
    """Keys that choose an option of a group: `cell@model.listener.cell`, `corpus`, `+experiment`."""
    directory = config_directory()
    for name in MOUNTING:
        if found := groups.places(directory, name, group, _composed_groups(name, folders.own())):
            return sorted(found)
    return []


@functools.cache
def _composed_groups(name: str, own_folders: folders.Folders) -> Sequence[str]:
    """Return the groups that a config composes with their places, by default; `own_folders` are those in use."""
    return groups.chosen(config_directory(), name, [])


def summary(path: Path) -> str:
    """Return a line about an option: the comment that it begins with, else the first line of its class's docstring."""
    lines = path.read_text("utf-8-sig").splitlines()
    comment = []
    for line in lines:
        if not line.startswith("#"):
            break
        if not line.startswith("# @package"):
            comment.append(line.lstrip("# "))
    if comment:
        return " ".join(comment)
    of_class = _docstrings(name)[1].partition("\n")[0] if (name := target_of(path)) else ""
    return " ".join(filter(None, [of_class, _values(path)]))


def _values(path: Path) -> str:
    """Return the plain values of an option, `biases=input cell_norm=output`, in brackets; empty without any."""
    from omegaconf import OmegaConf

    values: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    own = [(key, value) for key, value in values.items() if key not in ("defaults", "_target_", "_partial_")]
    plain = " ".join(f"{key}={shown(value)}" for key, value in own if not isinstance(value, dict))
    return f"[{plain}]" if plain else ""


def target_of(path: Path) -> str | None:
    """Return the class that an option names, as it is written there, or in the option that it builds on."""
    from omegaconf import OmegaConf

    values: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    if not isinstance(values, dict):
        return None
    if "_target_" in values:
        return str(values["_target_"])
    bases = [each for each in values.get("defaults", []) if isinstance(each, str) and each != "_self_"]
    options = folders.options(config_directory(), path.parent.name)
    return next((name for base in bases if base in options and (name := target_of(options[base]))), None)


def composed(group: str, name: str) -> str:
    """Return an option as yaml, with the options that it builds on, interpolations as they are written.

    An option that sets keys anywhere (an experiment) is shown as its file, because it composes only within a config.
    """
    from omegaconf import OmegaConf

    directory = config_directory()
    path = folders.options(directory, group)[name]
    text = path.read_text("utf-8-sig")
    if text.startswith(groups.GLOBAL):
        return text
    return OmegaConf.to_yaml(folders.load(directory, f"{group}/{name}", [])[group])


def documentation(name: str) -> str:
    """Return the docstrings of a class and of its module, without their examples; where a paper's equation is."""
    where, of_class, of_module = _docstrings(name)
    if not where:
        return f"# {name}: see the documentation of {name.partition('.')[0]}"
    return "\n\n".join([f"{name}: {where}", *filter(None, [of_class, of_module])])


@functools.cache
def _docstrings(name: str) -> tuple[str, str, str]:
    """Return the file of a class of las, its docstring and its module's; empty for one of another package."""
    module, _, cls = name.rpartition(".")
    module = public.COMPONENTS.get(cls, "") if module == "las" else module
    if not module.startswith("las."):
        return "", "", ""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text("utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls]
    own = ast.get_docstring(classes[0]) if classes else None
    return module.replace(".", "/") + ".py", _without_examples(own), _without_examples(ast.get_docstring(tree))


def _without_examples(docstring: str | None) -> str:
    return re.split(r"\n\s*>>>", docstring or "")[0].strip()
