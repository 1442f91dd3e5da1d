"""The verb `demo`: synthesise the embedded corpus, train, decode, score, and show the result, in minutes."""

from pathlib import Path

from las.cli import train
from las.config.build import build, compose
from las.data.corpora.base import Corpus
from las.decoding import transcriber
from las.nn.attention import diagnostics
from las.runtime import progress
from las.training import plots


def as_composed(overrides: list[str]) -> list[str]:
    """Return the overrides with the demo's experiment."""
    return ["+experiment=ln_encoder_only", *overrides]


def demo(overrides: list[str]) -> None:
    """Train `ln_encoder_only` on the embedded corpus, then decode one test utterance and draw its attention."""
    overrides = as_composed(overrides)
    config = compose("train", overrides)
    result = train.train(overrides)
    folder = Path(config["run_dir"])
    corpus: Corpus = build(config["corpus"], where="corpus")
    example = corpus.prepare(Path(config["data_dir"]) / "manifests")["test"][0]
    transcription = transcriber.load(folder).transcribe(example.audio)

    table = progress.table("phone", "seconds", title=f"{example.audio}, {transcription.duration_s:.2f} s")
    for token in transcription.tokens:
        table.add_row(token.symbol, f"{token.start_s:.2f} - {token.end_s:.2f}")
    progress.console.print(table)
    progress.say(f"reference   {example.text}")
    progress.say(f"hypothesis  {transcription.text}")
    if plots.available():
        (piece,) = transcription.pieces
        title = f"{example.id}, an unseen speaker: {config['name']}"
        picture = folder / "attention.png"
        plots.attention_picture(piece.weights, piece.symbols, transcription.state_ms, picture, title)
        share = diagnostics.measure(piece.weights).monotonicity
        progress.say(f"attention   {picture} (moves forward at {100 * share:.0f} % of the tokens)")
        progress.say(f"curves      {folder / 'curves.png'}")
    progress.say(f"result      {train.summary(result)}")
    progress.say(
        f"""
next:
  .venv/bin/las decode checkpoint={folder} audio={example.audio}
  .venv/bin/las decode checkpoint={folder} split=test
  .venv/bin/las train +experiment=baseline
  .venv/bin/las train +experiment=ln_encoder_only corpus=timit corpus.root=/corpora/TIMIT
  .venv/bin/tensorboard --logdir runs"""
    )
