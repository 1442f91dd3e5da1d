"""The flags `--cfg` and `--info`: what Hydra composes for a verb, with the overrides that the verb itself adds."""

import importlib
import sys
from collections.abc import Sequence

from las.cli.main import VERBS
from las.config import flags as hydra_flags
from las.decoding import tuned_search


def show(name: str, config: str, overrides: Sequence[str], flags: hydra_flags.Flags) -> None:
    """Print the config of a verb, or Hydra's information about it."""
    composed = as_composed(name, list(overrides))
    if name == "reproduce" and (rows := [each for each in overrides if each not in composed]):
        print(f"to every row, each a config of train: {' '.join(rows)}", file=sys.stderr)
    if flags.cfg is not None:
        hydra_flags.show_config(config, composed, flags.cfg, flags.package, flags.resolve)
    elif flags.info is not None:
        hydra_flags.show_info(config, composed, flags.info)


def as_composed(name: str, overrides: list[str]) -> list[str]:
    """The overrides that a verb hands to Hydra for the ones that were typed."""
    module = importlib.import_module(VERBS[name].module)
    if (composed := getattr(module, "as_composed", None)) is not None:
        return list(composed(overrides))
    return tuned_search.written_out(overrides)
