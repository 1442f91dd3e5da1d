"""Options of parts of a model that cannot be: each is refused with its key, its value, and what would do."""

from functools import partial
from typing import Any

import cell_cases
import pytest
import speller_cases
from options import attention

from las.nn.acoustic_model import AcousticModel
from las.nn.cells.bn_recurrent import BNRecurrentLSTMCell
from las.nn.cells.li_gru import LiGRUCell
from las.nn.cells.ln_gru import LNGRUCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.cells.norms import RMSNorm
from las.nn.features import MFCC, LogMel
from las.nn.front_end import ConvolutionFrontEnd
from las.nn.gammatone import Gammatone
from las.nn.initialisation import Initialisation, LSTMInitialisation
from las.nn.listener import Listener
from las.nn.losses import JointCTCLoss, LabelSmoothedCrossEntropy
from las.nn.rnn import BidirectionalLayer, RecurrentLayer
from las.nn.scheduled import PiecewiseLinear
from las.runtime.errors import ConfigError

listener = partial(Listener, 3, cell=PlainLSTMCell, hidden_size=4)
front_end = partial(ConvolutionFrontEnd, 12)
log_mel, mfcc, gammatone = partial(LogMel, 16000), partial(MFCC, 16000), partial(Gammatone, 8000)
acoustic = partial(AcousticModel, 16000, 4, features=partial(LogMel, num_mels=8))
glorot = dict.fromkeys(("embedding", "attention", "score", "output", "front_end"), "glorot")
lstm = LSTMInitialisation(weights="joint")
initialisation = partial(Initialisation, listener=lstm, speller=lstm, **glorot)


def attended(name: str, **options: Any) -> None:
    attention(name, **options)(3, 6)


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (partial(cell_cases.make, "lstm"), {"cell_norm": "outptu"}, "cell_norm='outptu' .* output"),
        (partial(cell_cases.make, "ln_global"), {"biases": "al"}, "biases='al' .* all"),
        (partial(cell_cases.make, "lingvo_simple"), {"cell_cap": 0.0}, "cell_cap=0.0 .* above 0"),
        (partial(cell_cases.make, "bn_recurrent"), {"num_steps": 0}, "num_steps=0 .* at least 1"),
        (partial(cell_cases.make, "bn_input"), {"momentum": 0.0}, "momentum=0.0 .* above 0"),
        (partial(cell_cases.make, "zoneout"), {"zoneout_cell": 1.5}, "zoneout_cell=1.5 .* from 0 to 1"),
        (partial(cell_cases.make, "recurrent_dropout"), {"dropout": 1.0}, "dropout=1.0 .* less than 1"),
        (partial(cell_cases.make, "recurrent_dropout"), {"cell": BNRecurrentLSTMCell}, "BNRecurrentLSTMCell"),
        (partial(cell_cases.make, "recurrent_dropout"), {"cell": cell_cases.factory_of("zoneout")}, "ZoneoutLSTMCell"),
        (partial(cell_cases.make, "noisy"), {"cell": BNRecurrentLSTMCell}, "BNRecurrentLSTMCell"),
        (partial(PlainLSTMCell, 3, 4), {"norm": RMSNorm()}, "norm is one RMSNorm, .* norm=RMSNorm"),
        (partial(LiGRUCell, 3, 4), {"norm": RMSNorm()}, "norm is one RMSNorm"),
        (
            partial(BidirectionalLayer, input_size=3, hidden_size=4),
            {"cell": PlainLSTMCell(3, 4)},
            "cell is one PlainLSTM",
        ),
        (partial(attended, "multi_head"), {"num_heads": 3}, "key_size=4"),
        (partial(attended, "multi_head"), {"num_heads": 4}, "the 6 values"),
        (partial(attended, "multi_head"), {"num_heads": 0}, "num_heads=0"),
        (partial(attended, "location"), {"width": 50}, "49 or 51"),
        (partial(attended, "additive"), {"key_size": 0}, "key_size=0"),
        (log_mel, {"normalisation": "globl"}, "normalisation='globl' .* global"),
        (log_mel, {"log_floor": 0.0}, "log_floor=0.0 .* 1.0e-10"),
        (log_mel, {"low_hz": 9000.0}, "high_hz=8000 .* low_hz=9000"),
        (gammatone, {"high_hz": 4500.0}, "high_hz=4500 .*low_hz=100 .*4000"),
        (gammatone, {"low_hz": 10.0}, "low_hz=10"),
        (mfcc, {"num_coefficients": 41}, "num_coefficients=41 .* num_mels=40"),
        (front_end, {"norm": "bach"}, "norm='bach' .* batch"),
        (front_end, {"activation": "rely"}, "activation='rely' .* relu"),
        (front_end, {"stride": [2]}, r"stride=\[2\] .* two numbers"),
        (front_end, {"pool": [2, 0]}, r"pool=\[2, 0\] .* two numbers"),
        (front_end, {"input_channels": 5}, "input_channels=5 .* 12 features"),
        (front_end, {"width": 4}, "width=4 .* 3 or 5"),
        (listener, {"dropout_at": "betwen"}, "dropout_at='betwen' .* between"),
        (listener, {"output_norm": "instnce"}, "output_norm='instnce' .* instance"),
        (listener, {"output_norm": ["none", "lyer", "none"]}, "output_norm='lyer' .* layer"),
        (listener, {"output_norm": ["layer"]}, "output_norm=.* the 3 layers"),
        (listener, {"residual_from": 0}, "residual_from=0 .* at least 1"),
        (listener, {"residual_from": 1}, "residual_from=1: layer 1 .* 16 .* 8"),
        (listener, {"time_reduction": [2, 2]}, r"time_reduction=\[2,2\] .*\[2,2,1\]"),
        (listener, {"time_reduction": [2, 0, 1]}, r"time_reduction=\[2,0,1\]"),
        (listener, {"reduction": "conct"}, "reduction='conct' .* concat"),
        (listener, {"layer": RecurrentLayer}, "RecurrentLayer .* ListenerLayer"),
        (speller_cases.make, {"readout": "maxot"}, "readout='maxot' .* maxout"),
        (speller_cases.make, {"readout": "maxout"}, "readout_size=7 .* multiple of 2"),
        (speller_cases.make, {"readout_reads": "stat"}, "readout_reads='stat' .* state"),
        (speller_cases.make, {"dropout_at": "outpt"}, "dropout_at='outpt' .* output"),
        (acoustic, {"listener": listener, "chunk_step": 60}, "chunk_step=60 .* chunk_size=50"),
        (LSTMInitialisation, {"weights": "per_gates"}, "weights='per_gates' .* per_gate"),
        (initialisation, {"embedding": "glorott"}, "embedding='glorott' .* glorot"),
        (LabelSmoothedCrossEntropy, {"reduction": "summ"}, "reduction=summ .* sum"),
        (LabelSmoothedCrossEntropy, {"smoothing": 1.5}, "smoothing=1.5 .* from 0 to 1"),
        (LabelSmoothedCrossEntropy, {"smoothing": PiecewiseLinear(points=[[1, 0.1], [2, 1.5]])}, "smoothing=1.5"),
        (JointCTCLoss, {"ctc_weight": 1.5}, "ctc_weight=1.5 .* from 0 to 1"),
        (PiecewiseLinear, {"points": []}, "one at least"),
        (PiecewiseLinear, {"points": [[1.0, 2.0, 3.0]]}, "give pairs"),
        (PiecewiseLinear, {"points": [[5.0, 0.1], [4.0, 0.2]]}, "in order"),
        (PiecewiseLinear, {"points": [[1.0, 0.1]], "unit": "epochs"}, "unit=epochs: .* sub_epochs"),
    ],
)
def test_it_is_refused(make: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make(**options)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (partial(cell_cases.make, "noisy"), {"cell": "lstm"}, "cell='lstm': .* takes a class"),
        (partial(PlainLSTMCell, 3, 4), {"norm": "rms"}, "norm='rms': .* takes a class"),
        (partial(LNGRUCell, 3, 4), {"norm": "rms"}, "norm='rms'"),
        (partial(AcousticModel, 16000, 4, listener=listener), {"features": "log_mel"}, "features='log_mel'"),
    ],
)
def test_a_name_is_no_class(make: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make(**options)
