"""The search of `search=tuned`: the best one of `las tune` for a run, stored in its folder as `tuned.json`."""

from pathlib import Path
from typing import Any

from las.config import build
from las.config.overrides import of_section, protect, value_of
from las.runtime import progress
from las.runtime.errors import ConfigError, LasError, MissingValueError, StorageError
from las.storage import bounded, checkpoint, pretrained

CHOICE = "search=tuned"
BASES = {
    "las.BeamSearch": "search=beam",
    "las.PhoneBigramSearch": "search=phone_bigram",
    "las.WordGraphSearch": "search=word_graph",
}
"""Options whose keys a stored search has, by its class; a search of one's own takes the place of `search=greedy`."""
GREEDY = ("max_length_ratio", "max_length")
"""Keys of `search=greedy`."""


def path_of(trained: Path) -> Path:
    """Return the path of the tuned search of a checkpoint. Raises ConfigError for a bundle."""
    if trained.is_file():
        raise ConfigError(f"{trained} is a bundle, which has no corpus to tune on: give the run folder")
    return checkpoint.run_folder(trained) / "tuned.json"


NEEDS_CHECKPOINT = {"transcribe": False, "demo_app": False, "decode": True}
"""Verbs that take a pretrained model, and whether they take none where no checkpoint is given."""


def compose(name: str, overrides: list[str]) -> build.Config:
    """Compose the config of a verb with a checkpoint, where `search=tuned` stands for the search tuned for it.

    Without a choice, a model has the search that it was trained with; the verb's own, search=beam, if that was greedy.
    """
    return build.compose(name, as_composed(overrides, name))


def with_model(overrides: list[str], default: bool) -> list[str]:
    """Return overrides whose `checkpoint` is a bundle where a pretrained model is named, by `checkpoint=` or `model=`.

    With `default`, the first one is taken, and announced, where there is neither. Raises what
    `las.storage.pretrained.path_of` raises.
    """
    names = {key: value_of(key, overrides) for key in ("checkpoint", "model")}
    if names["checkpoint"] and names["model"]:
        raise ConfigError(f"checkpoint={names['checkpoint']} and model={names['model']}: give one of them")
    if names["model"]:
        path = pretrained.path_of(str(names["model"]))
    elif names["checkpoint"]:
        if Path(str(names["checkpoint"])).exists():
            return overrides
        path = pretrained.resolved(str(names["checkpoint"]))
    elif default:
        name, model = next(iter(pretrained.models().items()))
        progress.say(f"model={name}, {model.task}: {model.error}; las models lists others")
        path = pretrained.path_of(name)
    else:
        return overrides
    others = [each for each in overrides if each.partition("=")[0] not in names]
    return [protect(f"checkpoint={path}"), *others]


def as_composed(overrides: list[str], verb: str = "") -> list[str]:
    """Return the overrides with the bundle of a pretrained model, and the settings of the tuned search for
    `search=tuned`.

    They come first, so that those of the command (`search.size=12`) override them.
    """
    if verb in NEEDS_CHECKPOINT:
        overrides = with_model(overrides, not NEEDS_CHECKPOINT[verb])
    if CHOICE not in overrides:
        return [*_own(overrides), *overrides]
    remaining = [override for override in overrides if override != CHOICE]
    run = value_of("checkpoint", remaining)
    if run is None or not Path(str(run)).exists():  # the verb itself reports what is wrong
        return ["search=beam", *remaining]
    path = path_of(Path(str(run)))
    tuned = read(path, str(run))
    progress.say(f"{CHOICE}: {path}, tuned on {tuned['tuned_on']}: {tuned['errors']}")
    base = BASES.get(tuned["search"].get("_target_"), "search=beam")
    return [base, *of_section(tuned["search"], "search"), *remaining]


def _own(overrides: list[str]) -> list[str]:
    """Return overrides with the search that a model was trained with; none where one is chosen, or where it is not
    known.

    What is wrong with a checkpoint is left to the verb, which reports it.
    """
    path = Path(str(value_of("checkpoint", overrides)))
    if any(override.startswith("search=") for override in overrides) or not path.exists():
        return []
    try:
        search = dict(checkpoint.config_of(path)["search"])
    except (LasError, KeyError, TypeError):
        return []
    target = str(search.get("_target_"))
    if target == "las.GreedySearch":
        return []
    if target in BASES:
        return [BASES[target], *of_section(search, "search")]
    # Hydra deletes no key whose value is null.
    emptied = [each for key in GREEDY if key not in search for each in (f"search.{key}=1", f"~search.{key}")]
    return ["search=greedy", *emptied, *of_section(search, "search")]


def read(path: Path, run: str) -> dict[str, Any]:
    """Return the tuned `search` as plain data, with descriptions of the data it was `tuned_on` and of its `errors`
    there.

    Raises ConfigError if no search was tuned yet, StorageError for a damaged file.
    """
    if not path.is_file():
        raise ConfigError(
            f"{CHOICE}: no search was tuned for {run} yet ({path} does not exist): "
            f"las tune checkpoint={run} search.lm.path=lm.arpa"
        )
    try:
        tuned = bounded.read_object(path)
        return {"tuned_on": tuned["tuned_on"], "errors": tuned["errors"], "search": dict(tuned["search"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        again = f"tune again: las tune checkpoint={run}"
        raise StorageError(f"{path}: damaged ({type(error).__name__}: {bounded.reason(error)}): {again}") from error


def option(name: str, path: str | Path) -> build.Config:
    """Return the config of `search=name` for a run. Raises ConfigError for an option that needs further values."""
    if f"search={name}" == CHOICE:
        return dict(read(path_of(Path(path)), str(path))["search"])
    chosen = build.option("search", name)
    for key, value in build.flatten(chosen).items():
        if value == "???":
            raise MissingValueError(
                f"search={name!r}: {key} has no value: give a search: las.load(run, search=las.BeamSearch(...))"
            )
    return chosen
