"""The console command: `las <verb> key=value ...`; the scripts of `scripts/` call it with their own verb.

This module imports nothing heavy, so that `las --help` answers at once.
"""

import errno
import importlib
import sys
from typing import NamedTuple

from las.runtime import signals
from las.runtime.errors import ConfigError, LasError, StorageError, suggest


class Verb(NamedTuple):
    """A command: the function of its name in `module`, its config, one line of help, an example of its arguments.

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
    "benchmark": Verb(
        "las.cli.benchmark",
        "benchmark",
        "measure how fast it is",
        "suite=lstm shapes=[C1]",
        "no file was written; the same command measures everything again",
    ),
    "demo": Verb("las.cli.demo", "train", "the whole job on the embedded corpus, in minutes", "", TRAINS_ON),
}

SWEEPS = {"-m", "--multirun"}
FULL_DISK = "Make room and type the same command again, or write to another disk: run_dir=... or output=..."

PATH_KEYS = (
    "alignments",
    "audio",
    "checkpoint",
    "compare",
    "corpus.root",
    "data_dir",
    "dev",
    "example",
    "glm",
    "hypothesis",
    "input",
    "output",
    "page",
    "programs",
    "reference",
    "results_dir",
    "run",
    "run_dir",
    "runs_dir",
    "search.lm.path",
    "search.second_lm.path",
    "text",
)


def help_text() -> str:
    """The text of `las --help`."""
    width = max(map(len, VERBS))
    lines = ["usage: las <verb> [key=value ...]", ""]
    lines += [f"  {name:{width}}  {verb.help}" for name, verb in VERBS.items()]
    lines += ["", "examples:"]
    lines += [f"  las {name} {verb.example}".rstrip() for name, verb in VERBS.items()]
    lines += ["", "`las <verb> --help` prints that verb's configuration; every key of it can be overridden."]
    return "\n".join(lines)


@signals.at_once()
def main(arguments: list[str] | None = None) -> int:
    """Run a verb; returns the exit code: 0 ok, 2 usage or configuration, 3 data, 4 numerical, 5 storage.

    75 and 130: a signal ended it (`las.runtime.signals`).
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(help_text())
        return 0
    name, *overrides = arguments
    try:
        if name == "--version":
            from las.runtime.version import __version__

            print(f"las {__version__}")
            return 0
        name = name.replace("-", "_")
        if name not in VERBS:
            print(f"las: there is no verb {name!r}.{suggest(name, VERBS)}", file=sys.stderr)
            return 2
        name, overrides = by_config(name, overrides)
        if {"-h", "--help"} & set(overrides):
            print(describe(name))
        else:
            module = importlib.import_module(module_of(name, overrides))
            getattr(module, name)([protect(override) for override in overrides])
        return 0
    except LasError as error:
        if str(error):  # an empty message: another process of this training has printed it
            print(f"las {name}: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        remedy = f". {FULL_DISK}" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        print(f"las {name}: {error.filename or 'a file'}: {error.strerror or error}{remedy}", file=sys.stderr)
        return StorageError.exit_code
    except signals.Stopped as error:
        print(f"las {name}: {error}; {VERBS[name].again}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"\nlas {name}: stopped; {VERBS[name].again}", file=sys.stderr)
        return signals.INTERRUPT


def module_of(name: str, overrides: list[str]) -> str:
    """The module of a verb's function; with `-m` that of the sweep."""
    if not SWEEPS & set(overrides):
        return VERBS[name].module
    if name != "train":
        raise ConfigError(f"only train runs sweeps: las train {' '.join(overrides)}")
    return "las.cli.sweep"


def by_config(name: str, overrides: list[str]) -> tuple[str, list[str]]:
    """The verb that uses the config of `--config-name=...`: `train --config-name=language_model` is `train_lm`."""
    option = "--config-name="
    remaining = [override for override in overrides if not override.startswith(option)]
    verbs = {
        verb.config: candidate
        for candidate, verb in VERBS.items()
        if candidate == name or candidate.startswith(f"{name}_")
    }
    for override in overrides:
        if (config := override.removeprefix(option)) == override:
            continue
        if config not in verbs:
            raise ConfigError(f"{override}: {name} has no such config.{suggest(config, verbs)}")
        name = verbs[config]
    return name, remaining


def describe(name: str) -> str:
    """A verb's help: what it does and its whole default configuration."""
    from las.runtime.config import config_directory

    verb = VERBS[name]
    path = config_directory() / f"{verb.config}.yaml"
    groups = sorted(group.name for group in path.parent.iterdir() if group.is_dir())
    return (
        f"las {name}: {verb.help}\nexample: las {name} {verb.example}\n\n{path}:\n\n{path.read_text()}\n"
        f"groups (choose with group=name, one yaml each): {', '.join(groups)}"
    )


def protect(override: str) -> str:
    """Quote a path so that the override grammar reads spaces, brackets and commas in file names literally."""
    key, separator, value = override.partition("=")
    if key not in PATH_KEYS or not separator or value[:1] in "'\"[" or value == "null":
        return override
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{key}='{escaped}'"
