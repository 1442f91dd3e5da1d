"""Public names of the package: the module of each, and its names in earlier releases.

`import las` offers these names and a config's `_target_` may name the classes among them (`las.LNGlobalLSTMCell`), so
that files may move without a change in any config or checkpoint. Names are strings here: nothing is imported.
"""

from typing import Any

_CLASSES = {
    # cells
    "las.nn.cells.base": "RecurrentCell LSTMCell",
    "las.nn.cells.norms": "CellNorm LayerNorm RMSNorm DynamicTanh NoNorm",
    "las.nn.cells.lstm": "PlainLSTMCell",
    "las.nn.cells.ln_global": "LNGlobalLSTMCell",
    "las.nn.cells.ln_joined": "LNJoinedLSTMCell",
    "las.nn.cells.ln_per_gate": "LNPerGateLSTMCell",
    "las.nn.cells.ln_per_gate_capped": "LNPerGateCappedLSTMCell",
    "las.nn.cells.ln_one_projection": "LNOneProjectionLSTMCell",
    "las.nn.cells.ln_selected_gates": "LNSelectedGatesLSTMCell",
    "las.nn.cells.bn_input": "BNInputLSTMCell",
    "las.nn.cells.bn_recurrent": "BNRecurrentLSTMCell",
    "las.nn.cells.gate_noise": "GateNoiseLSTMCell",
    "las.nn.cells.recurrent_dropout": "RecurrentDropoutLSTMCell",
    "las.nn.cells.swapped_state": "SwappedStateLSTMCell",
    "las.nn.cells.weight_norm": "WeightNormLSTMCell",
    "las.nn.cells.zoneout": "ZoneoutLSTMCell",
    "las.nn.cells.gru": "GRUCell",
    "las.nn.cells.ln_gru": "LNGRUCell",
    "las.nn.cells.li_gru": "LiGRUCell",
    "las.nn.cells.sli_gru": "SLiGRUCell",
    "las.nn.cells.min_gru": "MinGRUCell",
    "las.nn.cells.min_lstm": "MinLSTMCell",
    "las.nn.cells.projected_lstm": "ProjectedLSTMCell",
    "las.nn.cells.slstm": "SLSTMCell",
    # attention
    "las.nn.attention.additive": "AdditiveAttention",
    "las.nn.attention.ctc_triggered": "CTCTriggeredAttention",
    "las.nn.attention.dot": "DotAttention",
    "las.nn.attention.location": "LocationAttention",
    "las.nn.attention.mocha": "MonotonicChunkwiseAttention",
    "las.nn.attention.multi_head": "MultiHeadAttention",
    "las.nn.attention.weight_feedback": "WeightFeedbackAttention",
    # model
    "las.nn.features": "LogMel MFCC",
    "las.nn.gammatone": "Gammatone",
    "las.nn.front_end": "ConvolutionFrontEnd",
    "las.nn.listener": "Listener",
    "las.nn.latency_controlled": "LatencyControlledListener",
    "las.nn.rnn": "BidirectionalLayer UnidirectionalLayer",
    "las.nn.speller": "Speller",
    "las.nn.dropout": "Dropout UtteranceDropout BatchDropout",
    "las.nn.ctc": "CTC IntermediateCTC",
    "las.nn.ctc_model": "CTCModel",
    "las.nn.prediction": "PredictionNetwork",
    "las.nn.transducer_model": "TransducerModel JointNetwork",
    "las.nn.model": "ListenAttendSpell",
    "las.nn.acoustic_model": "AcousticModel",
    "las.hmm.gmm": "GaussianModel",
    "las.nn.initialisation": "ConstructorInitialisation Initialisation LSTMInitialisation",
    "las.nn.scheduled": "PiecewiseLinear",
    "las.nn.losses": (
        "LabelSmoothedCrossEntropy JointCTCLoss CTCLoss IntermediateCTCLoss TransducerLoss FrameCrossEntropy"
    ),
    "las.lm.lstm": "LSTMLanguageModel",
    # data
    "las.data.augmentation.augmentation": "Augmentation",
    "las.data.augmentation.noise": "AdditiveNoise",
    "las.data.augmentation.room": "Reverberation",
    "las.data.augmentation.channel": "TelephoneBand RandomGain MuLaw",
    "las.data.tokenizers": "Phones Characters SentencePieces TrainedSentencePieces",
    "las.data.quality": "QualityLimits",
    "las.data.loader": "BucketSampler ChunkedSampler CurriculumSampler",
    "las.data.text_rules": "TextRules",
    "las.data.corpora.an4": "AN4",
    "las.data.corpora.files": "FilesCorpus",
    "las.data.corpora.librispeech": "LibriSpeech",
    "las.data.corpora.switchboard": "Switchboard",
    "las.data.corpora.synthetic": "SyntheticSpeech",
    "las.data.corpora.timit": "TIMIT",
    # search
    "las.decoding.search": "GreedySearch BeamSearch",
    "las.decoding.hybrid.phone_bigram": "PhoneBigramSearch",
    "las.decoding.hybrid.word_graph": "WordGraphSearch",
    "las.decoding.scorers.rewards": "CoverageReward LengthReward",
    "las.decoding.scorers.ctc_prefix": "CTCPrefixScorer",
    "las.decoding.scorers.constraints": "EndThreshold MinLength RepetitionConstraint",
    "las.decoding.scorers.word_lists": "HotWordBonus LexiconConstraint",
    "las.decoding.scorers.internal_lm": "InternalLMScorer",
    "las.decoding.scorers.language_model": "LanguageModelScorer WordNGramScorer",
    # training
    "las.training.lattice_free_mmi": "LatticeFreeMMI",
    "las.training.minimum_word_error": "MinimumWordErrorLoss",
    "las.training.optimization": "Nadam GradientTransform AnnealedNoise ConstantNoise WeightNoise",
    "las.training.schedules": "Schedule ExponentialSchedule NewbobSchedule NewbobMultiEpochSchedule",
}
"""Names of classes by their modules."""

COMPONENTS = {name: module for module, names in _CLASSES.items() for name in names.split()}
"""Classes that a config may name, with their modules."""

PACKAGES = tuple(sorted({module.rpartition(".")[0] for module in COMPONENTS.values()}))
"""Packages of components: a config may also name a class in them by its module, so that a new one needs no entry."""

PARTS = {
    "corpus": "las.data.corpora.base.Corpus",
    "tokens": "las.data.tokenizers.Tokenizer",
    "limits": "las.data.quality.QualityLimits",
    "augment": "las.data.augmentation.augmentation.Augmentation",
    "order": "las.data.loader.BatchSampler",
    "model": "las.nn.model.Trainable",
    "features": "las.nn.features.Features",
    "gaussian_features": "las.nn.features.Features",
    "init": "las.nn.initialisation.InitialisationProtocol",
    "loss": "las.nn.losses.TrainingLoss",
    "optim": "torch.optim.Optimizer",
    "schedule": "las.training.schedules.Schedule",
    "gradients": "las.training.optimization.GradientTransform",
    "weight_noise": "las.training.optimization.WeightNoise",
    "search": "las.decoding.base.Search",
    "validation_search": "las.decoding.base.Search",
    "scales": "las.decoding.base.Search",
}
"""Parts at the top of a config: the base class of each. The base classes of parts inside others are the annotations of
their constructors."""

_TOOLS = {
    "las.decoding.transcriber": "load Transcriber",
    "las.decoding.transcription": "Transcription",
    "las.decoding.stream": "Stream",
    "las.nn.lstm": "LSTM",
    "las.nn.cells.base": "LSTMState HiddenState",
    "las.nn.attention.base": "Attention",
    "las.nn.losses": "TrainingLoss",
    "las.nn.kernels.base": "unroll",
    "las.nn.kernels.choice": "use_kernel",
    "las.nn.rnn": "RecurrentLayer",
    "las.decoding.base": "Hypothesis",
    "las.lm.ngram": "NGram",
    "las.data.corpora.base": "Corpus",
    "las.data.tokenizers": "Tokenizer",
    "las.data.manifest": "Utterance",
    "las.data.loader": "Batch Loader",
    "las.scoring.error_rates": "error_rate wer cer Score",
    "las.scoring.significance": "compare",
    "las.cli.train": "train",
    "las.config.build": "compose",
    "las.config.targets": "trust",
}

TOOLS = {name: module for module, names in _TOOLS.items() for name in names.split()}
"""Functions and classes for a researcher's own code, with their modules."""

MODULES = {
    "cells": "las.nn.cells",
    "attention": "las.nn.attention",
    "corpora": "las.data.corpora",
    "scorers": "las.decoding.scorers",
    "errors": "las.runtime.errors",
}
"""Packages and modules that are reached by a short name."""

_KEPT = """
attention.additive.AdditiveAttention attention.dot.DotAttention attention.location.LocationAttention
attention.multi_head.MultiHeadAttention attention.weight_feedback.WeightFeedbackAttention
cells.bn_input.BNInputLSTMCell cells.bn_recurrent.BNRecurrentLSTMCell cells.ln_global.LNGlobalLSTMCell
cells.ln_joined.LNJoinedLSTMCell cells.ln_one_projection.LNOneProjectionLSTMCell cells.ln_per_gate.LNPerGateLSTMCell
cells.lstm.PlainLSTMCell cells.recurrent_dropout.RecurrentDropoutLSTMCell cells.weight_norm.WeightNormLSTMCell
cells.zoneout.ZoneoutLSTMCell corpora.an4.AN4 corpora.librispeech.LibriSpeech corpora.switchboard.Switchboard ctc.CTC
features.LogMel features.MFCC front_end.ConvolutionFrontEnd gradients.AnnealedNoise gradients.ConstantNoise
listener.Listener loss.LabelSmoothedCrossEntropy model.ListenAttendSpell nadam.Nadam schedule.Schedule
scorers.end_threshold.EndThreshold scorers.length_reward.LengthReward scorers.min_length.MinLength speller.Speller
tokens.Characters tokens.Phones tokens.SentencePieces weight_noise.WeightNoise
"""

FORMER = {f"las.{each}": f"las.{each.rpartition('.')[2]}" for each in _KEPT.split()} | {
    "las.augment.Augment": "las.Augmentation",
    "las.cells.ln_chosen_gates.LNChosenGatesLSTMCell": "las.LNSelectedGatesLSTMCell",
    "las.cells.noisy.NoisyLSTMCell": "las.GateNoiseLSTMCell",
    "las.cells.swapped.SwappedLSTMCell": "las.SwappedStateLSTMCell",
    "las.corpora.synthetic.Synthetic": "las.SyntheticSpeech",
    "las.corpora.timit.Timit": "las.TIMIT",
    "las.gradients.Gradients": "las.GradientTransform",
    "las.lm.neural.LanguageModel": "las.LSTMLanguageModel",
    "las.loss.JointCTC": "las.JointCTCLoss",
    "las.order.Buckets": "las.BucketSampler",
    "las.order.SortedChunks": "las.ChunkedSampler",
    "las.ramp.Ramp": "las.PiecewiseLinear",
    "las.schedule.Exponential": "las.ExponentialSchedule",
    "las.schedule.Newbob": "las.NewbobSchedule",
    "las.schedule.NewbobMultiEpoch": "las.NewbobMultiEpochSchedule",
    "las.scorers.coverage.Coverage": "las.CoverageReward",
    "las.scorers.ctc_prefix.CTCPrefix": "las.CTCPrefixScorer",
    "las.scorers.language_model.LanguageModel": "las.LanguageModelScorer",
    "las.scorers.repetition.Repetition": "las.RepetitionConstraint",
    "las.search.Beam": "las.BeamSearch",
    "las.search.Greedy": "las.GreedySearch",
    "las.soundness.Limits": "las.QualityLimits",
    "las.tokens.LearnedPieces": "las.TrainedSentencePieces",
}
"""Targets of release 0.1.0, which its checkpoints and run directories contain, and their public names: of classes that
kept their own, and of those that have another."""


def with_public_names(config: Any) -> Any:
    """Copy a config read from a checkpoint, bundle or run directory, with public names for every `_target_`."""
    return _rename_targets(config, FORMER)


def with_former_names(config: Any) -> Any:
    """Copy a config with the targets of release 0.1.0, for digests that must not change."""
    return _rename_targets(config, {public: former for former, public in FORMER.items()})


def _rename_targets(config: Any, names: dict[str, str]) -> Any:
    if isinstance(config, list):
        return [_rename_targets(item, names) for item in config]
    if not isinstance(config, dict):
        return config
    renamed = {key: _rename_targets(value, names) for key, value in config.items()}
    if isinstance(target := renamed.get("_target_"), str):
        renamed["_target_"] = names.get(target, target)
    return renamed
