"""The console command: `las <verb> key=value ...`; the scripts of `scripts/` call it with their own verb.

This module imports nothing heavy, so that `las --help` answers at once.
"""

import errno
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from las.config import flags as hydra_flags
from las.config import folders as config_folders
from las.config import quoting, tracebacks
from las.config.build import config_directory
from las.config.trust import trust
from las.runtime import signals, terminal
from las.runtime.errors import ConfigError, LasError, MissingValueError, StorageError, suggest


class Verb(NamedTuple):
    """A command: the function of its name in `module`, its config ("" for none), one line of help, an example of its
    arguments.

    `again` says what the same command does after a signal ended this one.
    """

    module: str
    config: str
    help: str
    example: str
    again: str = "the same command begins again"


READS_ON = "the same command reads what is left"
TRAINS_ON = "the same command continues from the last checkpoint, or begins again where there is none yet"

VERBS = {
    "prepare": Verb(
        "las.cli.prepare",
        "train",
        "read or synthesise a corpus, check it, print its table",
        "corpus=synthetic",
        READS_ON,
    ),
    "check": Verb(
        "las.cli.prepare", "train", "read every file of a corpus, name each bad one", "corpus=synthetic", READS_ON
    ),
    "pack": Verb(
        "las.cli.pack",
        "pack",
        "put a corpus into a few large tar files",
        "corpus=synthetic output=shards",
        "shards that were written are whole; the same command writes the others",
    ),
    "listen": Verb(
        "las.cli.listen",
        "listen",
        "write augmented utterances as wav, with what was done to each",
        "corpus=synthetic augment=noisy",
    ),
    "train": Verb(
        "las.cli.train",
        "train",
        "train, then decode and score dev and test",
        "+experiment=ln_encoder_only",
        TRAINS_ON,
    ),
    "decode": Verb(
        "las.cli.decode",
        "decode",
        "write a checkpoint's hypotheses for audio files or a split",
        "checkpoint=runs/ln_encoder_only/synthetic/seed1 audio=x.wav",
    ),
    "transcribe": Verb(
        "las.cli.transcribe",
        "transcribe",
        "text, words with times or captions of recordings of any length",
        "checkpoint=runs/ln_encoder_only/synthetic/seed1 input=talk.flac output=talk.srt",
        "files that were written are whole; the same command transcribes all recordings again",
    ),
    "demo_app": Verb(
        "las.cli.demo_app",
        "demo_app",
        "a page in the browser: record or upload, see text, times and attention",
        "checkpoint=runs/ln_encoder_only/synthetic/seed1",
    ),
    "average": Verb(
        "las.cli.export",
        "average",
        "the mean of a run's last or best checkpoints",
        "run=runs/ln_encoder_only/synthetic/seed1 best=3",
    ),
    "export": Verb(
        "las.cli.export",
        "export",
        "one file for another machine, programs that need no las",
        "checkpoint=runs/ln_encoder_only/synthetic/seed1 output=model.las",
    ),
    "score": Verb(
        "las.cli.score",
        "score",
        "compare hypotheses with references",
        "reference=test.jsonl hypothesis=hypotheses.jsonl",
    ),
    "train_lm": Verb(
        "las.cli.language_model",
        "language_model",
        "train an LSTM language model of transcripts or a text",
        "corpus=an4 corpus.root=/corpora/an4",
        TRAINS_ON,
    ),
    "align": Verb(
        "las.cli.align",
        "align",
        "times of phones and words, by HMMs trained from a flat start",
        "corpus=an4 corpus.root=/corpora/an4 output=an4.ctm",
    ),
    "ngram": Verb(
        "las.cli.ngram", "ngram", "estimate an n-gram language model, write it as ARPA", "n=5 output=lm.arpa"
    ),
    "perplexity": Verb(
        "las.cli.language_model",
        "perplexity",
        "how well language models predict a split or a text",
        "corpus=an4 corpus.root=/corpora/an4 models=[an4.arpa,runs/lm/an4/seed1]",
    ),
    "tune": Verb(
        "las.cli.tune",
        "tune",
        "find the best weights of a search on a development split",
        "checkpoint=runs/ln_encoder_only/an4/seed1 search.lm.path=an4.arpa",
    ),
    "tune_lr": Verb(
        "las.cli.tune_lr",
        "tune_lr",
        "find a learning rate in a few hundred updates, with a plot",
        "+experiment=ln_encoder_only",
    ),
    "reproduce": Verb(
        "las.cli.reproduce",
        "reproduce",
        "train the rows of a paper's table, report on them",
        "recipe=bo18_table3",
        "the same command keeps the rows that are finished and continues the next from its last checkpoint",
    ),
    "analyze": Verb(
        "las.cli.analyze",
        "analyze",
        "alignments, distributions, gradients, smoothness: of a checkpoint or during training",
        "checkpoint=runs/ln_encoder_only/synthetic/seed1",
        "the same command measures again; with every=... it continues the training from its last checkpoint",
    ),
    "doctor": Verb("las.cli.doctor", "doctor", "check this machine, and whether a training's longest batches fit", ""),
    "demo": Verb("las.cli.demo", "train", "the whole job on the embedded corpus, in minutes", "", TRAINS_ON),
    "list": Verb("las.cli.cards", "", "the config groups, the cards of one and where they are mounted", "cell"),
    "show": Verb("las.cli.cards", "", "a card composed, and the equation of its class", "cell=ln_global"),
    "runs": Verb(
        "las.cli.runs",
        "",
        "the runs in a folder: listed, two compared, those that train followed",
        "sort=test",
        "trainings go on; the same command looks again",
    ),
}

COMPLETION = ("-sc", "--shell-completion")
OF_CARDS = ("list", "show")
"""Verbs without a config that read the cards of own folders too."""
FULL_DISK = "Make room and type the same command again, or write to another disk: run_dir=... or output=..."


def help_text() -> str:
    """The text of `las --help`."""
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

    75 and 130: a signal ended it (`las.runtime.signals`).
    """
    terminal.write_any_character()
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(help_text())
        return 0
    name, *rest = arguments
    try:
        if name == "--version":
            from las.runtime.version import __version__

            print(f"las {__version__}")
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
            elif flags.completion:
                complete(flags.overrides)
            else:
                run(name, flags)
        return 0
    except LasError as error:
        if str(error):  # an empty message: another process of this training has printed it
            runs = known_runs(error.key) if isinstance(error, MissingValueError) else ""
            print(f"las {name}: {error}{runs}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
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
        if (flags._replace(folders=()) if name in OF_CARDS else flags).has_config_flags:
            raise ConfigError(f"{name} has no config of its own, so Hydra's flags are not for it: las {name} --help")
        with own_folders(flags.folders if name in OF_CARDS else None):
            function(name)(flags.overrides)
        return
    given = quoting.with_files(name, flags.overrides)
    overrides = [quoting.protect_each(each) if flags.multirun else quoting.protect(each) for each in given]
    with own_folders(flags.folders):
        if flags.cfg or flags.info:
            importlib.import_module("las.cli.show_config").show(name, verb.config, overrides, flags)
        elif flags.multirun and name != "train":
            importlib.import_module("las.cli.multirun").run(name, verb.config, function(name), overrides)
        elif flags.multirun:
            importlib.import_module("las.cli.sweep").train(overrides)
        else:
            function(name)(overrides)


def function(name: str) -> Callable[[list[str]], Any]:
    """The function of a verb, imported now."""
    verb: Callable[[list[str]], Any] = getattr(importlib.import_module(VERBS[name].module), name)
    return verb


@contextmanager
def own_folders(given: Sequence[str] | None) -> Iterator[None]:
    """Use the own folders of configs in the body (those `given`, and `configs/` here), and say so; None for none."""
    if given is None:
        yield
        return
    folders = config_folders.find(config_directory(), given, Path())
    if any(folders) and os.environ.get("RANK", "0") == "0":  # of several processes one says it
        print(config_folders.announcement(config_directory(), folders), file=sys.stderr)
    with config_folders.used(folders):
        yield


def known_runs(key: str) -> str:
    """A sentence about the runs below `runs`, newest first, where a command lacks one; empty for another key."""
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
    """The verb that uses the config of `--config-name=...`: `train --config-name=language_model` is `train_lm`."""
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
        + ". What you change in it stands in a card of your own: --config-dir=DIR +experiment=mine"
    )


def describe(name: str) -> str:
    """A verb's help: what it does and its whole default configuration, or its keys where it has no config."""
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
