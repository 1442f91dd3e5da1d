"""The console command: `las <verb> key=value ...`; the scripts of `scripts/` call it with their own verb.

This module imports nothing heavy, so that `las --help` answers at once.
"""

import errno
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from las.config import flags as hydra_flags
from las.config import folders as config_folders
from las.config import overrides as config_overrides
from las.config import tracebacks
from las.config.build import config_directory
from las.config.targets import trust
from las.runtime import progress, signals
from las.runtime.errors import ConfigError, LasError, MissingValueError, StorageError, suggest


class Verb(NamedTuple):
    """A command: one line of help, an example of its arguments, and what the same command does after a signal.

    It is the function of its name in `module`, by default the module of its name here; `config` is its config, by
    default that of its name, "" for none.
    """

    help: str
    example: str = ""
    again: str = "the same command begins again"
    module: str = "las.cli.{name}"
    config: str = "{name}"


READS_ON = "the same command reads what is left"
TRAINS_ON = "the same command continues from the last checkpoint, or begins again where there is none yet"
PACKS_ON = "shards that were written are whole; the same command writes the others"
TRANSCRIBES_AGAIN = "files that were written are whole; the same command transcribes all recordings again"
REPRODUCES_ON = "the same command keeps the rows that are finished and continues the next from its last checkpoint"
ANALYZES_AGAIN = "the same command measures again; with every=... it continues the training from its last checkpoint"
LOOKS_AGAIN = "trainings go on; the same command looks again"
EXPERIMENT = "+experiment=ln_encoder_only"
OF_RUN = "checkpoint=runs/ln_encoder_only/synthetic/seed1"
AN4 = "corpus=an4 corpus.root=/corpora/an4"
LM = "las.cli.language_model"
TUNED = "checkpoint=runs/ln_encoder_only/an4/seed1 search.lm.path=an4.arpa"
SEEN = "alignments, distributions, gradients, smoothness: of a checkpoint or during training"

VERBS = {
    "prepare": Verb("read or synthesise a corpus, check it, print its table or a page", "corpus=synthetic", READS_ON),
    "check": Verb(
        "read every file of a corpus, name each bad one", "corpus=synthetic", READS_ON, "las.cli.prepare", "train"
    ),
    "pack": Verb(
        "put a corpus into a few large tar files", "corpus=synthetic output=shards", PACKS_ON, "las.cli.prepare"
    ),
    "listen": Verb("write augmented utterances as wav, with what was done to each", "corpus=synthetic augment=noisy"),
    "train": Verb("train, then decode and score dev and test", EXPERIMENT, TRAINS_ON),
    "decode": Verb("write a checkpoint's hypotheses for audio files or a split", f"{OF_RUN} audio=x.wav"),
    "transcribe": Verb(
        "text, words with times or captions of recordings of any length",
        f"{OF_RUN} input=talk.flac output=talk.srt",
        TRANSCRIBES_AGAIN,
    ),
    "demo_app": Verb("a page in the browser: record or upload, see text, times and attention", OF_RUN),
    "models": Verb("pretrained models, which las transcribe takes by name", module="las.cli.options", config=""),
    "average": Verb(
        "the mean of a run's last or best checkpoints",
        "run=runs/ln_encoder_only/synthetic/seed1 best=3",
        module="las.cli.export",
    ),
    "export": Verb("one file for another machine, programs that need no las", f"{OF_RUN} output=model.las"),
    "score": Verb("compare hypotheses with references", "reference=test.jsonl hypothesis=hypotheses.jsonl"),
    "rover": Verb(
        "vote on the hypotheses of several systems, word by word",
        "hypotheses=[a.jsonl,b.jsonl] output=voted.jsonl",
    ),
    "rescore": Verb(
        "rank n-best lists again with another language model",
        "hypotheses=dev.jsonl language_model=runs/lm/an4/seed1 output=rescored.jsonl",
    ),
    "train_lm": Verb("train an LSTM language model of transcripts or a text", AN4, TRAINS_ON, LM, "language_model"),
    "align": Verb("times of phones and words, by HMMs trained from a flat start", f"{AN4} output=an4.ctm"),
    "lexicon": Verb("make a pronouncing dictionary of a corpus and a text", f"{AN4} output=words.dic"),
    "ngram": Verb("estimate an n-gram language model, write it as ARPA", "n=5 output=lm.arpa", module=LM),
    "perplexity": Verb(
        "how well language models predict a split or a text", f"{AN4} models=[an4.arpa,runs/lm/an4/seed1]", module=LM
    ),
    "tune": Verb("find the best weights of a search on a development split", TUNED),
    "tune_lr": Verb("find a learning rate in a few hundred updates, with a plot", EXPERIMENT),
    "reproduce": Verb("train the rows of a paper's table, report on them", "recipe=bo18_table3", REPRODUCES_ON),
    "analyze": Verb(SEEN, OF_RUN, ANALYZES_AGAIN),
    "doctor": Verb("check this machine, and whether a training's longest batches fit"),
    "demo": Verb("the whole job on the embedded corpus, in minutes", "", TRAINS_ON, config="train"),
    "list": Verb(
        "the config groups, the options of one and where they are mounted", "cell", module="las.cli.options", config=""
    ),
    "show": Verb(
        "an option composed, and the equation of its class", "cell=ln_global", module="las.cli.options", config=""
    ),
    "runs": Verb(
        "the runs in a folder: listed, two compared, those that train followed", "sort=test", LOOKS_AGAIN, config=""
    ),
}
VERBS = {
    name: verb._replace(module=verb.module.format(name=name), config=verb.config.format(name=name))
    for name, verb in VERBS.items()
}

COMPLETION = ("-sc", "--shell-completion")
OF_OPTIONS = ("list", "show")
"""Verbs without a config that read the user's config folders too."""
FULL_DISK = "Make room and type the same command again, or write to another disk: run_dir=... or output=..."


def help_text() -> str:
    """Return the text of `las --help`."""
    width = max(map(len, VERBS))
    lines = ["usage: las <verb> [key=value ...]", ""]
    lines += [f"  {name:{width}}  {verb.help}" for name, verb in VERBS.items()]
    lines += ["", "examples:"]
    lines += [f"  las {name} {verb.example}".rstrip() for name, verb in VERBS.items()]
    lines += [
        "",
        "`las <verb> --help` prints that verb's configuration; every key of it can be overridden.",
        "Hydra's flags: --cfg job, --info, --multirun, --config-dir DIR, --shell-completion install=bash, ...",
        "--trust mypkg lets configs name the classes of a package of yours.",
    ]
    return "\n".join(lines)


@signals.at_once()
def main(arguments: list[str] | None = None) -> int:
    """Run a verb; returns the exit code: 0 ok, 2 usage or configuration, 3 data, 4 numerical, 5 storage.

    75 and 130: a signal ended it (`las.runtime.signals`); 141: the reader of its output ended (`las runs | head`).
    """
    progress.write_any_character()
    arguments = sys.argv[1:] if arguments is None else arguments
    name, *rest = arguments or ["--help"]
    try:
        if name in ("-h", "--help", "help"):
            print(help_text(), flush=True)
            return 0
        if name == "--version":
            from las.runtime.version import __version__

            print(f"las {__version__}", flush=True)
            return 0
        if name in COMPLETION:
            complete(rest)
            return 0
        name = name.replace("-", "_")
        if name not in VERBS:
            print(f"las: there is no verb {name!r}.{suggest(name, VERBS)}", file=sys.stderr)
            return 2
        flags = hydra_flags.parse(rest)
        name = by_config(name, flags.config_name)
        with trust(*flags.trust):
            if flags.help:
                print(describe(name))
            elif flags.shell_completion:
                complete(flags.overrides)
            else:
                run(name, flags)
        sys.stdout.flush()
        return 0
    except LasError as error:
        if str(error):  # an empty message: another process of this training has printed it
            runs = known_runs(error.key) if isinstance(error, MissingValueError) else ""
            print(f"las {name}: {error}{runs}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        if isinstance(error, BrokenPipeError) and progress.is_unread():
            return signals.UNREAD
        remedy = f". {FULL_DISK}" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        print(f"las {name}: {error.filename or 'a file'}: {error.strerror or error}{remedy}", file=sys.stderr)
        return StorageError.exit_code
    except signals.Stopped as error:
        print(f"las {name}: {error}; {VERBS[name].again}", file=sys.stderr)
        return error.exit_code
    except Exception as error:  # a bug, of las or of one's own classes
        print(tracebacks.formatted(error), end="", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\nlas {name}: stopped; {VERBS[name].again}", file=sys.stderr)
        return signals.INTERRUPT


def run(name: str, flags: hydra_flags.Flags) -> None:
    """Run a verb, or do with its config what Hydra's flags ask for."""
    verb = VERBS[name]
    if not verb.config:
        if (replace(flags, config_dir=[]) if name in OF_OPTIONS else flags).has_config_flags:
            raise ConfigError(f"{name} has no config of its own, so Hydra's flags are not for it: las {name} --help")
        with own_folders(flags.config_dir) if name in OF_OPTIONS else nullcontext():
            function(name)(flags.overrides)
        return
    protect = config_overrides.protect_each if flags.multirun else config_overrides.protect
    overrides = [protect(each) for each in config_overrides.with_files(name, flags.overrides)]
    with own_folders(flags.config_dir):
        if flags.cfg or flags.info:
            show(name, overrides, flags)
        elif flags.multirun and name != "train":
            importlib.import_module("las.cli.sweep").run(name, verb.config, function(name), overrides)
        elif flags.multirun:
            importlib.import_module("las.cli.sweep").train(overrides)
        else:
            function(name)(overrides)


def function(name: str) -> Callable[[list[str]], Any]:
    """Return the function of a verb, imported now."""
    verb: Callable[[list[str]], Any] = getattr(importlib.import_module(VERBS[name].module), name)
    return verb


def show(name: str, overrides: list[str], flags: hydra_flags.Flags) -> None:
    """Print the config of a verb (`--cfg`), or Hydra's information about it (`--info`)."""
    composed = as_composed(name, overrides)
    if name == "reproduce" and (rows := [each for each in overrides if each not in composed]):
        print(f"to every row, each a config of train: {' '.join(rows)}", file=sys.stderr)
    hydra_flags.show(VERBS[name].config, composed, flags)


def as_composed(name: str, overrides: list[str]) -> list[str]:
    """Return the overrides that a verb hands to Hydra for the ones that were typed."""
    module = importlib.import_module(VERBS[name].module)
    if hasattr(module, "as_composed"):
        return list(module.as_composed(overrides))
    return list(importlib.import_module("las.decoding.tuned_search").as_composed(overrides, name))


@contextmanager
def own_folders(given: Sequence[str]) -> Iterator[None]:
    """Add the user's config folders within the block and announce them: those `given`, and `configs/` here."""
    folders = config_folders.find(config_directory(), given, Path())
    if any(folders) and os.environ.get("RANK", "0") == "0":  # of several processes one says it
        print(config_folders.announcement(config_directory(), folders), file=sys.stderr)
    with config_folders.used(folders):
        yield


def known_runs(key: str) -> str:
    """Return a sentence about the runs below `runs`, newest first, where a command lacks one; empty for another key."""
    if key not in ("checkpoint", "run"):
        return ""
    from las.storage import run_summary

    folder = Path("runs")
    runs = [run for run in run_summary.find(folder) if (run / "checkpoints").is_dir()] if folder.is_dir() else []
    if not runs:
        return f". There are no runs below {folder} yet: las train +experiment=ln_encoder_only makes one"
    newest = sorted(runs, key=lambda run: (run / "checkpoints").stat().st_mtime, reverse=True)
    listed = "\n  ".join(f"{key}={run}" for run in newest[:5])
    more = f"\n  and {len(runs) - 5:,} more: las runs" if len(runs) > 5 else ""
    return f". Runs below {folder}, the newest first:\n  {listed}{more}"


def complete(request: list[str]) -> None:
    """Print a shell's completions of this command: see `hydra_flags.complete`."""
    configs = {name: verb.config for name, verb in VERBS.items()}
    with config_folders.used(config_folders.find(config_directory(), [], Path())):
        hydra_flags.complete(request, configs, sys.argv[0])


def by_config(name: str, config: str | None) -> str:
    """Return the verb with the config of `--config-name=...`: `train --config-name=language_model` is `train_lm`."""
    if config is None:
        return name
    verbs = {
        verb.config: candidate
        for candidate, verb in VERBS.items()
        if candidate == name or candidate.startswith(f"{name}_")
    }
    config = config.removesuffix(".yaml")
    if config in verbs:
        return verbs[config]
    others = [f"las {candidate}" for candidate, verb in VERBS.items() if verb.config == config]
    raise ConfigError(
        f"--config-name={config}: every verb has its one config"
        + (f": {' or '.join(others)} has this one" if others else f", {name} has {VERBS[name].config or 'none'}")
        + ". What you change in it stands in an option of your own: --config-dir=DIR +experiment=mine"
    )


def describe(name: str) -> str:
    """Return a verb's help: what it does and its whole default configuration, or its keys where it has no config."""
    verb = VERBS[name]
    beginning = f"las {name}: {verb.help}\nexample: las {name} {verb.example}\n\n"
    if not verb.config:
        return beginning + (inspect.getdoc(function(name)) or "")
    path = config_directory() / f"{verb.config}.yaml"
    groups = ", ".join(config_folders.groups(config_directory()))
    return (
        f"{beginning}{path}:\n\n{path.read_text('utf-8')}\n"
        f"groups (choose with group=name, one yaml each; `las list GROUP` shows them): {groups}\n"
        "flags of Hydra: --cfg job|hydra|all [--resolve] [--package KEY]  --info [defaults-tree|defaults|searchpath|"
        "config|plugins]  --multirun  --config-dir DIR\nclasses of your own package in configs: --trust PACKAGE"
    )
