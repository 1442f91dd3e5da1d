"""A recipe: a table or figure of a paper as data (`recipes/<name>.yaml`), and the settings its rows are trained with.

A row is a name, overrides of the training config, and what the paper prints for it. What all rows share stands in
`recipes/settings/<setting>.yaml`: per tier, the overrides, the number of seeds, and what had to be assumed. The tier
`smoke` is the same for all (`recipes/settings/smoke.yaml`); there a setting lists only what it adds, or has a section
with what it replaces.

Tiers: `paper` is the paper's corpus and size, `open` the same claims on open data at a size for two CPU cores, `smoke`
a few steps of a tiny model, which shows that every row can be trained.

Families: `paper-faithful` keeps everything that the paper changed together, `clean` changes one thing at a time.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from las.config import build
from las.runtime.errors import ConfigError, suggest

SMOKE = "smoke"
TIERS = ("paper", "open", SMOKE)
FAMILIES = ("paper-faithful", "clean")
REPEATS = ("seeds", "runs")


class PaperColumn(NamedTuple):
    """A number of the paper: what it is called in print, how it is written, and which of our numbers it compares with
    (`las.reproduction.results`); None where we have none of the kind."""

    heading: str
    kind: str
    ours: str | None = None


PAPER = {
    "phone_error_rate": PaperColumn("PER", "rate", "test"),
    "wer": PaperColumn("WER", "rate", "test"),
    "hub5_00_swb": PaperColumn("SWB", "rate", "hub5_00_swb"),
    "hub5_00_ch": PaperColumn("CH", "rate", "hub5_00_ch"),
    "hub5_01": PaperColumn("Hub5'01", "rate", "hub5_01"),
    "wer_min": PaperColumn("WER min", "rate"),
    "wer_max": PaperColumn("WER max", "rate"),
    "wer_sigma": PaperColumn("WER sigma as printed (≈ population SE)", "rate"),
    "hub5_01_min": PaperColumn("Hub5'01 min", "rate"),
    "hub5_01_max": PaperColumn("Hub5'01 max", "rate"),
    "hub5_01_sigma": PaperColumn("Hub5'01 sigma as printed (≈ population SE)", "rate"),
    "steps_to_converge": PaperColumn("steps", "count", "steps_to_converge"),
    "epoch": PaperColumn("epoch", "number"),
    "sub_epoch": PaperColumn("sub-epoch", "count"),
    "outcome": PaperColumn("outcome", "text"),
}
"""Every number that a recipe may quote, in the order of columns. Rates are fractions here and in the files."""

Overrides = tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """A row of the table. `at` are further overrides by tier; `repeat` says whether more trainings of it are other
    seeds or the same seed once more; `note` is printed below the table; `after` names the row whose training with the
    same seed each of its trainings begins with (`warm_start.from`), empty for none; `rates` stand in place of those of
    tiers that have learning rates."""

    name: str
    label: str
    family: str
    overrides: Overrides
    at: Mapping[str, Overrides]
    paper: Mapping[str, Any]
    repeat: str
    note: str
    after: str = ""
    rates: tuple[float, ...] = ()


@dataclass(frozen=True)
class Tier:
    """Settings that all rows share: overrides, further ones by corpus name, how many seeds and runs, what had to be
    assumed at this tier, and the learning rates of which each row takes the best one on dev (none: it is not chosen).
    """

    overrides: Overrides
    per_corpus: Mapping[str, Overrides]
    seeds: int
    runs: int
    assumed: tuple[str, ...]
    rates: tuple[float, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """`assumed` holds at every tier, `assumed_at` at some. `look_every` are the updates from one measurement of
    covariate shift and smoothness to the next, None without any."""

    name: str
    title: str
    source: str
    assumed: tuple[str, ...]
    assumed_at: Mapping[str, tuple[str, ...]]
    rows: tuple[Row, ...]
    tiers: Mapping[str, Tier]
    look_every: int | None = None

    def columns(self) -> list[str]:
        """Keys of the paper's numbers that any row has, in print order."""
        return [key for key in PAPER if any(key in row.paper for row in self.rows)]

    def tier(self, name: str) -> Tier:
        """Return a tier by name. Raises ConfigError for an unknown one, and for one that this recipe does not have."""
        if name not in TIERS:
            raise ConfigError(f"tier={name}: there is no such tier.{suggest(name, TIERS)}")
        return self.tiers[name]

    def assumptions(self, tier: str) -> tuple[str, ...]:
        """All that had to be assumed for trainings at a tier."""
        return (*self.tier(tier).assumed, *self.assumed, *self.assumed_at.get(tier, ()))

    @property
    def paper_corpus(self) -> str:
        """The corpus whose numbers the paper reports: that of the tier `paper`; empty if it names none."""
        chosen = [each.partition("=")[2] for each in self.tiers["paper"].overrides if each.startswith("corpus=")]
        return chosen[-1] if chosen else ""


def directory() -> Path:
    """`recipes/` beside `configs/`, in the checkout or the wheel."""
    return build.config_directory().parent / "recipes"


def names() -> list[str]:
    """All recipes."""
    return sorted(path.stem for path in directory().glob("*.yaml"))


def read(name: str) -> Recipe:
    """Return a recipe by name. Raises ConfigError with the nearest names for an unknown one, naming file and key."""
    if name not in names():
        raise ConfigError(f"recipe={name}: there is no such recipe.{suggest(name, names())}")
    where = f"recipes/{name}.yaml"
    values = _section(
        _yaml(directory() / f"{name}.yaml"), where, ("title", "source", "setting", "rows"), _RECIPE_OPTIONS
    )
    setting = values["setting"]
    settings = sorted({path.stem for path in (directory() / "settings").glob("*.yaml")} - {SMOKE})
    if setting not in settings:
        raise ConfigError(f"{where}: setting: {setting} does not exist.{suggest(str(setting), settings)}")
    shared = _setting(setting)
    shared |= {
        tier: _resolved(shared[tier], tier, settings, f"recipes/settings/{setting}.yaml: {tier}") for tier in TIERS
    }
    tiny = _yaml(directory() / "settings" / f"{SMOKE}.yaml")
    own = shared[SMOKE]
    shared[SMOKE] = {**tiny, **(own if isinstance(own, dict) else {"overrides": [*tiny["overrides"], *own]})}
    family = _one_of(values["family"], FAMILIES, f"{where}: family")
    rows = tuple(
        _row(row, family, values["at"], f"{where}: row {number}") for number, row in enumerate(values["rows"], start=1)
    )
    for number, row in enumerate(rows, start=1):
        if row.after:
            _one_of(row.after, [each.name for each in rows[: number - 1]], f"{where}: row {number}: after")
    build.check_value(f"{where}: look_every", values["look_every"], int | None)
    return Recipe(
        name=name,
        title=values["title"],
        source=values["source"],
        assumed=(*shared["assumed"], *values["assumed"]),
        assumed_at={
            _one_of(tier, TIERS, f"{where}: assumed_at"): tuple(lines) for tier, lines in values["assumed_at"].items()
        },
        rows=rows,
        tiers={tier: _tier(shared[tier], f"recipes/settings/{setting}.yaml: {tier}") for tier in TIERS},
        look_every=values["look_every"],
    )


def _setting(name: str) -> dict[str, Any]:
    """Return a file of settings, in which a tier may name another one (`_resolved`)."""
    path = directory() / "settings" / f"{name}.yaml"
    return _section(_yaml(path), f"recipes/settings/{name}.yaml", ("assumed", *TIERS))


def _resolved(values: Any, tier: str, settings: Collection[str], where: str) -> Any:
    """Return a tier of a setting; one that names another setting, alone or as `like`, is that setting's tier with what
    is its own: lists go on after those of the other, everything else replaces.
    """
    own = {"like": values} if isinstance(values, str) else dict(values) if isinstance(values, dict) else {}
    if "like" not in own:
        return values
    other = _setting(_one_of(own.pop("like"), settings, where))[tier]
    for key in ("assumed", "overrides"):
        own[key] = [*other.get(key, []), *own.get(key, [])]
    return {**other, **own}


_RECIPE_OPTIONS: dict[str, Any] = {"family": FAMILIES[0], "assumed": [], "assumed_at": {}, "at": {}, "look_every": None}


def _row(values: Any, family: str, at: Mapping[str, list[str]], where: str) -> Row:
    options = {"overrides": [], "at": {}, "rates": [], "paper": {}, "note": "", "after": ""}
    section = _section(values, where, ("name", "label"), options | {"family": family, "repeat": REPEATS[0]})
    build.check_value(f"{where}: rates", section["rates"], list[float])
    for tier in (*at, *section["at"]):
        _one_of(tier, TIERS, f"{where}: at")
    for key, value in section["paper"].items():
        if key not in PAPER:
            raise ConfigError(f"{where}: paper: {key} is no number of a paper.{suggest(str(key), PAPER)}")
        kinds = {"text": str, "count": int}
        build.check_value(f"{where}: paper.{key}", value, kinds.get(PAPER[key].kind, float))
    return Row(
        **section
        | {
            "family": _one_of(section["family"], FAMILIES, f"{where}: family"),
            "repeat": _one_of(section["repeat"], REPEATS, f"{where}: repeat"),
            "overrides": tuple(section["overrides"]),
            "rates": tuple(section["rates"]),
            "at": {tier: (*at.get(tier, ()), *section["at"].get(tier, ())) for tier in (*at, *section["at"])},
        }
    )


def _tier(values: Any, where: str) -> Tier:
    options = {"per_corpus": {}, "runs": 2, "assumed": [], "rates": []}
    section = _section(values, where, ("overrides", "seeds"), options)
    build.check_value(f"{where}: rates", section["rates"], list[float])
    per_corpus = {corpus: tuple(overrides) for corpus, overrides in section["per_corpus"].items()}
    return Tier(
        overrides=tuple(section["overrides"]),
        per_corpus=per_corpus,
        seeds=section["seeds"],
        runs=section["runs"],
        assumed=tuple(section["assumed"]),
        rates=tuple(section["rates"]),
    )


def _section(
    values: Any, where: str, required: Collection[str], options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a section with the keys it must have and may have, and no others."""
    known = {*required, *(options or {})}
    if not isinstance(values, dict):
        raise ConfigError(f"{where} should be a section with the keys {', '.join(sorted(known))}")
    for key in values:
        if key not in known:
            raise ConfigError(f"{where}: there is no key {key!r}.{suggest(str(key), known)}")
    for key in required:
        if key not in values:
            raise ConfigError(f"{where}: {key} is missing")
    return {**(options or {}), **values}


def _one_of(value: Any, known: Collection[str], where: str) -> str:
    if value not in known:
        raise ConfigError(f"{where}: {value} does not exist.{suggest(str(value), known)}")
    return str(value)


def _yaml(path: Path) -> Any:
    """Return a file as plain data: what a recipe holds may look like an interpolation and must stay as it is."""
    from omegaconf import OmegaConf

    try:
        return OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    except RecursionError as error:
        raise ConfigError(f"{path}: sections and lists inside each other, too deep for a recipe") from error
