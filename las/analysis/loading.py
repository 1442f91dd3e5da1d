"""A training as its checkpoint kept it, ready for its next update."""

from pathlib import Path

from las import assembly, batches, build, checkpoint, manifest, places, preparation, progress, ramp
from las.analysis.subject import Subject
from las.batches import Batch
from las.checkpoint import Checkpoint
from las.corpora.base import Corpus
from las.errors import ConfigError, StorageError
from las.order import Size
from las.preparation import Splits
from las.updates import Updates


def subject(config: build.Config) -> tuple[Subject, Path]:
    """What to look at, and the folder for what is found.

    The update is the next one of the training, where its corpus is the same and no utterance of it was left out.

    Args:
        config: the keys of `configs/analyze.yaml`; the training's own come from the checkpoint, and from here those
            that it did not have yet.

    Raises StorageError when there is no checkpoint that can be read, or its parts do not fit together.
    """
    found, complaints = checkpoint.find(Path(config["checkpoint"]), config["strict"])
    for complaint in complaints:
        progress.say(complaint)
    trained = config | found.config
    trained["trainer"] = config["trainer"] | found.config.get("trainer", {}) | {"device": config["device"]}
    corpus: Corpus = build.build(trained["corpus"], where="corpus")
    built = assembly.build_parts(trained, corpus)
    updates = _updates(built, found, trained["trainer"]["precision"])
    splits = preparation.prepared(corpus, config["data_dir"])
    train, options = splits[corpus.splits[0]], trained["trainer"]
    size = Size(options["batch_size"], options["max_batch_s"])
    plan = built.parts.order.plan(train, manifest.content_hash(train), built.seed, found.state["epoch"], size)
    start, count = found.state["next_batch"], options["accumulate"]
    chosen = plan[start : start + count] or plan[:count]
    loader = batches.Loader(batches.spellable(train, corpus.tokens), corpus.tokens, corpus.sample_rate, 0)
    looked_at = Subject(
        updates,
        found.state["step"] + 1,
        [batch.to(built.device) for _, batch in loader.batches(chosen)],
        examples(corpus, splits, config["num_utterances"]).to(built.device),
        corpus.tokens.symbols,
        config["draws"],
    )
    return looked_at, places.folder(found.directory) / "analysis" / found.directory.name


def _updates(built: assembly.Built, found: Checkpoint, precision: str) -> Updates:
    """Those of the training, with parameters, optimiser and learning rate as they stood in a checkpoint."""
    parts, state = built.parts, found.state
    optimiser = parts.optim(parts.model.to(built.device).parameters())
    rates = [group["lr"] for group in optimiser.param_groups]
    try:
        parts.model.load_state_dict(found.model)
        checkpoint.unpack_optimiser(optimiser, found.optim, state["param_groups"])
        parts.schedule.load_state_dict(state["schedule"])
        factor = state["rate_scale"] * parts.schedule.factor(state["step"] + 1)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise StorageError(f"{found.directory}: its parts do not fit together ({error!r})") from error
    for group, rate in zip(optimiser.param_groups, rates, strict=True):
        group["lr"] = rate * factor
    ramp.move((parts.model, parts.loss), state["step"] + 1, parts.schedule.sub_epochs + 1)
    changing = parts.model, parts.loss, optimiser, parts.gradients, parts.weight_noise, parts.augment
    return Updates(*changing, built.seed, precision)


def examples(corpus: Corpus, splits: Splits, count: int) -> Batch:
    """The first utterances of the development split by id, side by side."""
    dev = batches.spellable(sorted(splits[corpus.splits[1]], key=lambda each: each.id)[:count], corpus.tokens)
    if not dev:
        raise ConfigError(f"{corpus.name}: its {corpus.splits[1]} split has no utterance to look at")
    loader = batches.Loader(dev, corpus.tokens, corpus.sample_rate, 0)
    ((_, batch),) = loader.batches([[*range(len(dev))]])
    return batch
