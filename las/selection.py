"""Parameters of a model chosen by patterns of their names, for what shall not act on all of them."""

import fnmatch
from collections.abc import Iterable, Sequence

from torch import nn

from las.errors import ConfigError, suggest


def choose(
    named_parameters: Iterable[tuple[str, nn.Parameter]], patterns: Sequence[str], where: str
) -> list[nn.Parameter]:
    """The parameters whose names match one of the patterns, in their order.

    Args:
        named_parameters: as `nn.Module.named_parameters` gives them.
        patterns: as of file names: `listener.*`, `*.cell.*`, `*_weight`; a star stands for dots too.
        where: the key of the config, for errors.

    Raises ConfigError for a pattern that matches no name.
    """
    named = list(named_parameters)
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) for name, _ in named):
            raise ConfigError(f"{where}: no parameter's name matches {pattern!r}.{suggest(pattern, dict(named))}")
    return [each for name, each in named if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
