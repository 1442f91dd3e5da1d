"""The flags `--cfg` and `--info`: what Hydra composes for a verb, with the overrides that the verb itself adds."""

import sys
from collections.abc import Sequence

from las.runtime import hydra_flags


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
    from las.decoding import tuned_search

    if name == "demo":
        from las.cli import demo

        return [*demo.OVERRIDES, *overrides]
    if name == "benchmark":
        from las.cli import benchmark

        return benchmark.with_experiment(overrides)
    if name == "reproduce":
        from las.cli import reproduce

        return reproduce.split(overrides)[0]  # the others go to the rows
    return tuned_search.written_out(overrides)
