"""Training of models that write tokens: dev loss, decoded dev error and attention diagnostics."""

from torch.utils.tensorboard import SummaryWriter

from las.data.loader import Batch
from las.decoding import evaluation
from las.nn.attention import diagnostics
from las.nn.losses import LabelSmoothedCrossEntropy
from las.storage.run_directory import RunDirectory
from las.training import plots
from las.training.chance import ChanceLevel
from las.training.tasks.base import Measured, Task, Validator


class TokenValidator(Validator):
    """Validates a recogniser: cross-entropy and accuracy of tokens, errors of the decoded texts, attention."""

    def measure_batch(self, batch: Batch) -> Measured:
        output, inputs, num_states = self.model.output_and_search_inputs(batch)
        sums = LabelSmoothedCrossEntropy()(output.logits, batch.targets, batch.num_tokens)
        alignments = []
        if (weights := getattr(output, "weights", None)) is not None:
            sizes = zip(weights, batch.num_tokens.tolist(), num_states.tolist(), strict=True)
            alignments = [diagnostics.measure(rows[: tokens + 1, :states]) for rows, tokens, states in sizes]
        texts = self.texts(batch, inputs, num_states.to(self.model.device))
        objective = self.objective(output, batch)
        return Measured(float(sums.cross_entropy), int(sums.correct), int(sums.tokens), objective, texts, alignments)

    def describe_chance(self, level: ChanceLevel) -> str:
        written = repr(level.sentence) if level.sentence else "nothing"
        return (
            f"chance level: {100 * level.token_accuracy:.1f} % of the dev tokens right by a bigram, dev "
            f"{self.format_error(level.error)} by writing {written} each time"
        )

    def log_attention(self, board: SummaryWriter, run: RunDirectory, step: int) -> None:
        """Write a picture of the attention of the first dev utterance by id."""
        if not (self.dev and plots.available()):
            return
        first = min(range(len(self.dev)), key=lambda index: self.dev[index].id)
        ((_, batch),) = self.loader.batches([[first]])
        weights = evaluation.attention_weights(self.model, batch)
        if weights is None:
            return
        symbols = [*(self.corpus.tokens.symbols[i] for i in batch.targets[0].tolist()), "(end)"]
        path = run.directory / "attention" / f"step{step:08d}.png"
        plots.attention_picture(weights, symbols, self.model.state_ms, path, f"{batch.ids[0]}, step {step}")
        board.add_image("attention", plots.pixels(path), step, dataformats="HWC")


class TokenTask(Task):
    """Targets are the tokens of texts."""

    validator = TokenValidator
