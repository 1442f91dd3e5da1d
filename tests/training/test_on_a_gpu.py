"""Updates and searches where tensors claim to be on a GPU: nothing is mixed, and the host seldom waits for it."""

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

import pytest
import torch
from gpu_stand_in import GPU, StandInGPU, stand_in
from graph_stand_in import graphs
from tiers import needs_gpu, rest_slow
from tiny import MODEL
from torch import nn
from update_cases import LETTERS, batch, keyed, training

from las.config.build import config_directory
from las.data.augmentation.augmentation import Augmentation
from las.data.loader import Batch
from las.decoding.base import Hypothesis, Search
from las.decoding.hybrid.phone_bigram import PhoneBigramSearch
from las.decoding.scorers.base import SearchComponent
from las.decoding.scorers.constraints import EndThreshold, MinLength, RepetitionConstraint
from las.decoding.scorers.ctc_prefix import CTCPrefixScorer
from las.decoding.scorers.language_model import LanguageModelScorer, WordNGramScorer
from las.decoding.scorers.rewards import CoverageReward, LengthReward
from las.decoding.scorers.word_lists import HotWordBonus, LexiconConstraint
from las.decoding.search import STEPS_BETWEEN_CHECKS, BeamSearch, GreedySearch
from las.lm import arpa, kneser_ney
from las.lm.lstm import LSTMLanguageModel
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.kernels.graphs.replayed import bucket
from las.nn.losses import LabelSmoothedCrossEntropy
from las.nn.model import SpeechModel
from las.training.optimization import GradientTransform, WeightNoise
from las.training.step import TrainingStep

WAITS = 1
"""Greatest number of waits for an update: its loss and the norm of its gradient are read at once."""


def cards(group: str, *without: str) -> list[str]:
    """Names of the cards of a group."""
    return [path.stem for path in sorted((config_directory() / group).glob("*.yaml")) if path.stem not in without]


def two_updates(gpu: StandInGPU, step: TrainingStep) -> Counter[str]:
    """Run two updates; every parameter must lie on the GPU and have a gradient. Returns the waits of the second."""
    given = keyed(batch())
    assert step([given], 1).finite
    gpu.waits.clear()
    assert step([given], 2).finite
    waits = Counter(gpu.waits)
    for name, parameter in step.model.named_parameters():
        assert gpu.device(parameter) == GPU and parameter.grad is not None, name
        assert gpu.claimed(parameter.grad) in (GPU, None), name
    return waits


def decoded(
    model: nn.Module, search: Search, device: str = "cuda", given: Batch | None = None
) -> list[list[Hypothesis]]:
    """Search with a model on the GPU. The search is bound unless utterances are given."""
    if given is None:
        search.bind(LETTERS, has_ctc=True)
    given = (given or batch()).to(device)
    with torch.no_grad():
        decoder, num_states = model.eval().search_inputs(given.waveforms, given.num_samples)
        nbest = search(decoder, num_states)
    assert len(nbest) == len(given.ids)
    return nbest


def cell(name: str) -> list[str]:
    return [f"cell@model.{part}.cell={name}" for part in ("listener", "speller")]


LIBRISPEECH = ("librispeech5", "librispeech5_ctc", "librispeech5_hybrid")
"""Experiments of models that other cases have, of a corpus that is not here."""
CASES: dict[str, Sequence[str]] = {
    **{f"cell {name}": [*MODEL, *cell(name)] for name in ["ln_global", *cards("cell", "ln_global")]},
    **{
        f"attention {name}": [*MODEL, "loss=joint_ctc", f"attention@model.speller.attention={name}"]
        for name in cards("attention")
    },
    **{f"features {name}": [f"features@model.features={name}"] for name in cards("features")},
    **{
        f"experiment {name}": [f"+experiment={name}", *MODEL]
        for name in cards("experiment", "an4_ctc", "hybrid", "hybrid_phones", *LIBRISPEECH)
    },
    **{f"optimiser {name}": [*MODEL, f"optim={name}"] for name in cards("optim", "adam")},
    **{f"gradients {name}": [*MODEL, f"gradients={name}"] for name in cards("gradients", "default")},
    "weight noise": [*MODEL, "weight_noise=park_b", "weight_noise.start_step=0"],
    "masks": [*MODEL, "augment=specaugment_ld"],
    "front end": [*MODEL, "+front_end@model.listener.front_end=park2019"],
    "scheduled sampling": [*MODEL, "model.speller.scheduled_sampling=0.5"],
    "ctc": [*(each for each in MODEL if "speller" not in each), "model=ctc_small"],
    "transducer": [*(each for each in MODEL if "speller" not in each), "model=transducer_small", "model.joint.size=8"],
    "loss mwer": [*MODEL, "loss=mwer"],
    "loss mwer_joint_ctc": [*MODEL, "loss=mwer_joint_ctc"],
}


def test_the_stand_in_refuses_what_a_gpu_refuses() -> None:
    with stand_in() as gpu:
        there, here = torch.zeros(3).to("cuda"), torch.zeros(3)
        assert there.device == GPU and (2 * there + torch.tensor(1.0)).is_cuda and not here.is_cuda
        with pytest.raises(RuntimeError, match="cuda:0 and cpu"):
            there + here
        with pytest.raises(TypeError, match="numpy"):
            there.numpy()
        gpu.waits.clear()
        assert there[torch.zeros(3, dtype=torch.bool, device="cuda")].tolist() == [] and float(there.sum()) == 0.0
        assert gpu.waits.keys() == {"boolean index at the test", "tolist at the test", "item at the test"}
        layer = nn.Linear(3, 3).to("cuda")
        layer(there).sum().backward()
        assert layer.weight.grad is not None and layer.weight.grad.device == GPU


@pytest.mark.parametrize("name", rest_slow(CASES))
def test_updates_and_a_search_mix_no_devices(name: str) -> None:
    with stand_in() as gpu:
        step = training(*CASES[name])
        waits = two_updates(gpu, step)
        of_hypotheses = name.startswith("loss mwer")  # it waits for a search, and reads the targets on the host
        on_host = "ctc_triggered.py" if "ctc_triggered" in name else "at decoding/" if of_hypotheses else "nowhere"
        outside = sum(count for place, count in waits.items() if on_host not in place)
        assert outside <= WAITS + of_hypotheses, waits
        decoded(step.model, BeamSearch(3, max_length=4))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a list of words, an n-gram of letters and one of words."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "words.txt").write_text("ab\nbad\nface\n")
    for name, sentences, symbols in (
        ("letters", [list("abc"), list("bad"), list("face")], LETTERS.symbols[1:]),
        ("words", [["ab", "bad"], ["face", "ab"]], ["ab", "bad", "face"]),
    ):
        estimate = kneser_ney.estimate(sentences, 2, [each if each.strip() else "<space>" for each in symbols])
        arpa.write(folder / f"{name}.arpa", estimate.model)
    return folder


def neural() -> LSTMLanguageModel:
    return LSTMLanguageModel(LETTERS.size, cell=PlainLSTMCell, embedding_size=3, hidden_size=4)


COMPONENTS: dict[str, Callable[[Path], SearchComponent]] = {
    "ctc": lambda _: CTCPrefixScorer(0.4),
    "lm": lambda folder: LanguageModelScorer(str(folder / "letters.arpa")),
    "neural_lm": lambda _: LanguageModelScorer(lm=neural()),
    "word_lm": lambda folder: WordNGramScorer(str(folder / "words.arpa")),
    "hot_words": lambda _: HotWordBonus(["bad", "face"]),
    "lexicon": lambda folder: LexiconConstraint(str(folder / "words.txt")),
    "coverage": lambda _: CoverageReward(),
    "length_reward": lambda _: LengthReward(),
    "end_threshold": lambda _: EndThreshold(),
    "min_length": lambda _: MinLength(),
    "repetition": lambda _: RepetitionConstraint(),
}


ON_HOST = ("word_lm", "hot_words", "lexicon")
"""Components whose automata grow on the host, so that no step with them can be captured."""


def slot(name: str) -> str:
    """The argument of a search that takes a component."""
    return "lm" if name == "neural_lm" else name


@pytest.fixture(scope="module")
def recogniser() -> SpeechModel:
    """The tiny model with CTC, on the CPU; its hypotheses have several tokens."""
    model = training(*MODEL, "loss=joint_ctc", device="cpu").model
    with torch.no_grad():
        model.get_submodule("speller.output").get_parameter("bias")[0] = -3.0
    return model


FIRST = ("greedy", "together")
"""A search of each kind: `together` has the components that `make slow` searches with one by one."""


@pytest.mark.parametrize("name", rest_slow(dict.fromkeys([*FIRST, *COMPONENTS]), keep=len(FIRST)))
def test_replayed_searches_find_the_same(name: str, models: Path, recogniser: SpeechModel) -> None:
    """A step that is captured once gives what a CPU computes each time, with every scorer and constraint."""

    def search() -> Search:
        if name == "greedy":
            return GreedySearch(max_length=12)
        names = [name] if name in COMPONENTS else [each for each in COMPONENTS if each != "neural_lm"]
        return BeamSearch(3, nbest=2, max_length=12, **{slot(each): COMPONENTS[each](models) for each in names})

    searching, parts = search(), (batch(slice(0, 3)), batch(slice(3, 6)))
    searching.bind(LETTERS, has_ctc=True)
    right = [*chain(*(decoded(recogniser, searching, "cpu", part) for part in parts))]
    with stand_in(), graphs() as made:
        model = copy.deepcopy(recogniser).to("cuda")
        found = [*chain(*(decoded(model, searching, given=part) for part in parts))]
        num_captured = len(made)
        again = [*chain(*(decoded(model, searching, given=part) for part in parts))]
        assert made.refused == 0 and len(made) == num_captured, "later searches only replay"
        assert (sum(graph.num_replays for graph in made) >= 5) == (name not in (*ON_HOST, "together"))
    for ours, expected in zip(chain(*found, *again), chain(*right, *right), strict=True):
        assert ours.tokens == expected.tokens and ours.finished_by == expected.finished_by
        assert ours.score == pytest.approx(expected.score, rel=1e-6) and ours.scores.keys() == expected.scores.keys()


@pytest.mark.parametrize("size", [1, 3])
def test_a_search_waits_once_in_eight_steps(size: int, recogniser: SpeechModel) -> None:
    counts = []
    with stand_in() as gpu:
        model = copy.deepcopy(recogniser).to("cuda")
        with torch.no_grad():
            model.get_submodule("speller.output").get_parameter("bias")[0] = -1e4  # no hypothesis ends early
        for steps in (STEPS_BETWEEN_CHECKS, 4 * STEPS_BETWEEN_CHECKS):
            limits = {"max_length": steps, "max_length_ratio": 1e3}
            search = GreedySearch(**limits) if size == 1 else BeamSearch(size, **limits)
            gpu.waits.clear()
            decoded(model, search)
            counts.append(gpu.waits.total())
    assert counts[1] - counts[0] == 3


def test_one_utterance_at_a_time_is_captured_once_for_each_number_of_states() -> None:
    with stand_in():
        model = training(*MODEL).model
        search = BeamSearch(3, max_length=6)
        with torch.no_grad():
            model.get_submodule("speller.output").get_parameter("bias")[0] = -3.0
        with graphs() as made:
            for given in batch().split(1) * 2:
                decoded(model, search, given=given)
        states = {bucket(count) for count in model.num_states(batch().num_samples).tolist()}
        assert 1 < len(states) == len(made) < 6


def test_a_replayed_update_waits_no_more() -> None:
    with stand_in() as gpu:
        step = training(*MODEL, "loss=joint_ctc")
        with graphs() as made:
            assert step([keyed(batch())], 1).finite
            gpu.waits.clear()
            assert step([keyed(batch())], 2).finite
        assert [graph.num_replays > 0 for graph in made] == [True] * 2 and gpu.waits.total() <= WAITS, gpu.waits


def test_an_update_is_started_without_waiting_for_the_one_before() -> None:
    with stand_in() as gpu:
        step, given = training(*MODEL), keyed(batch())
        assert step.reads_later
        gpu.waits.clear()
        results = [step.start([given], number) for number in (1, 2, 3)]
        assert not gpu.waits, gpu.waits
        assert all(read().finite for read in results) and gpu.waits.total() == 3
    with stand_in():
        sgd = training(*MODEL, "optim=sgd")
        assert not sgd.reads_later and sgd.start([keyed(batch())], 1)().finite


def test_an_acoustic_model_mixes_no_devices() -> None:
    with stand_in() as gpu:
        layer = [f"model.listener.{each}" for each in ("num_layers=1", "time_reduction=[1]", "hidden_size=8")]
        step = training("model=hybrid_small", *layer, "model.features.num_mels=8")
        given = batch()
        labels = torch.randint(0, 3 * (LETTERS.size - 1), (len(given.ids), 60))
        frames = Batch(given.ids, given.waveforms, given.num_samples, labels, torch.full((len(given.ids),), 60))
        gpu.waits.clear()
        assert step([frames.to("cuda")], 1).finite
        decoded(step.model, PhoneBigramSearch())


def test_a_language_model_mixes_no_devices() -> None:
    with stand_in():
        torch.manual_seed(1)
        model, given = neural().to("cuda"), batch()
        loss, optimiser = LabelSmoothedCrossEntropy(0.1), torch.optim.Adam(model.parameters())
        step = TrainingStep(model, loss, optimiser, GradientTransform(), WeightNoise(), Augmentation(), 1, "fp32")
        text = Batch(given.ids, torch.zeros(6, 0), torch.zeros(6, dtype=torch.long), given.targets, given.num_tokens)
        assert step([text.to("cuda")], 1).finite


STILL = ("model.listener.dropout=0.0", "model.listener.input_noise=0.0", "model.speller.dropout=0.0")
"""Settings without random numbers, which are others on a GPU."""
RANDOM = (
    *("weight noise", "masks", "scheduled sampling", "experiment ", "gradients annealed_noise"),
    *("cell noisy", "cell zoneout", "cell recurrent_dropout"),
)
"""Cases that draw them nevertheless."""


@needs_gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", CASES)
def test_on_a_real_gpu_updates_are_those_of_a_cpu(
    name: str, precision: str, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = [*CASES[name], f"trainer.precision={precision}", *(() if name.startswith(RANDOM) else STILL)]
    losses = []
    for device in ("cpu", "cuda"):
        step, given = training(*keys, device=device), keyed(batch(), device)
        updates = [step([given], number) for number in (1, 2, 3)]
        assert all(update.finite for update in updates)
        losses.append([update.loss for update in updates])
        decoded(step.model, BeamSearch(3, max_length=4), device)
    if not name.startswith(RANDOM):
        assert losses[1] == pytest.approx(losses[0], rel=1e-3 if precision == "fp32" else 0.03)
    assert "CUDA graph" not in capsys.readouterr().out
