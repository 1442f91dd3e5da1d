"""Public names of the package: the module of each, and its names in earlier releases.

`import las` offers these names and a config's `_target_` may name the classes among them (`las.LNGlobalLSTMCell`), so
that files may move without a change in any config or checkpoint. Names are strings here: nothing is imported.
"""

from typing import Any

COMPONENTS = {
    # cells
    "LSTMCell": "las.nn.cells.base",
    "PlainLSTMCell": "las.nn.cells.lstm",
    "LNGlobalLSTMCell": "las.nn.cells.ln_global",
    "LNJoinedLSTMCell": "las.nn.cells.ln_joined",
    "LNPerGateLSTMCell": "las.nn.cells.ln_per_gate",
    "LNPerGateCappedLSTMCell": "las.nn.cells.ln_per_gate_capped",
    "LNOneProjectionLSTMCell": "las.nn.cells.ln_one_projection",
    "LNSelectedGatesLSTMCell": "las.nn.cells.ln_selected_gates",
    "BNInputLSTMCell": "las.nn.cells.bn_input",
    "BNRecurrentLSTMCell": "las.nn.cells.bn_recurrent",
    "GateNoiseLSTMCell": "las.nn.cells.gate_noise",
    "RecurrentDropoutLSTMCell": "las.nn.cells.recurrent_dropout",
    "SwappedStateLSTMCell": "las.nn.cells.swapped_state",
    "WeightNormLSTMCell": "las.nn.cells.weight_norm",
    "ZoneoutLSTMCell": "las.nn.cells.zoneout",
    # attention
    "AdditiveAttention": "las.nn.attention.additive",
    "DotAttention": "las.nn.attention.dot",
    "LocationAttention": "las.nn.attention.location",
    "MultiHeadAttention": "las.nn.attention.multi_head",
    "WeightFeedbackAttention": "las.nn.attention.weight_feedback",
    # model
    "LogMel": "las.nn.features",
    "MFCC": "las.nn.features",
    "Gammatone": "las.nn.gammatone",
    "ConvolutionFrontEnd": "las.nn.front_end",
    "Listener": "las.nn.listener",
    "BidirectionalLayer": "las.nn.rnn",
    "UnidirectionalLayer": "las.nn.rnn",
    "Speller": "las.nn.speller",
    "Dropout": "las.nn.dropout",
    "UtteranceDropout": "las.nn.dropout",
    "BatchDropout": "las.nn.dropout",
    "CTC": "las.nn.ctc",
    "ListenAttendSpell": "las.nn.model",
    "AcousticModel": "las.nn.acoustic_model",
    "GaussianModel": "las.hmm.gmm",
    "ConstructorInitialisation": "las.nn.initialisation",
    "Initialisation": "las.nn.initialisation",
    "LSTMInitialisation": "las.nn.initialisation",
    "PiecewiseLinear": "las.nn.scheduled",
    "LabelSmoothedCrossEntropy": "las.nn.losses",
    "JointCTCLoss": "las.nn.losses",
    "FrameCrossEntropy": "las.nn.losses",
    "LSTMLanguageModel": "las.lm.lstm",
    # data
    "Augmentation": "las.data.augmentation.augmentation",
    "AdditiveNoise": "las.data.augmentation.noise",
    "Reverberation": "las.data.augmentation.room",
    "TelephoneBand": "las.data.augmentation.channel",
    "RandomGain": "las.data.augmentation.channel",
    "MuLaw": "las.data.augmentation.channel",
    "Phones": "las.data.tokenizers",
    "Characters": "las.data.tokenizers",
    "SentencePieces": "las.data.tokenizers",
    "TrainedSentencePieces": "las.data.tokenizers",
    "QualityLimits": "las.data.quality",
    "BucketSampler": "las.data.sampler",
    "ChunkedSampler": "las.data.sampler",
    "TextRules": "las.data.text_rules",
    "AN4": "las.data.corpora.an4",
    "FilesCorpus": "las.data.corpora.files",
    "LibriSpeech": "las.data.corpora.librispeech",
    "Switchboard": "las.data.corpora.switchboard",
    "SyntheticSpeech": "las.data.corpora.synthetic",
    "TIMIT": "las.data.corpora.timit",
    # search
    "GreedySearch": "las.decoding.search",
    "BeamSearch": "las.decoding.search",
    "PhoneBigramSearch": "las.decoding.hybrid.phone_bigram",
    "WordGraphSearch": "las.decoding.hybrid.word_graph",
    "CoverageReward": "las.decoding.scorers.rewards",
    "CTCPrefixScorer": "las.decoding.scorers.ctc_prefix",
    "EndThreshold": "las.decoding.scorers.constraints",
    "HotWordBonus": "las.decoding.scorers.word_lists",
    "LanguageModelScorer": "las.decoding.scorers.language_model",
    "LengthReward": "las.decoding.scorers.rewards",
    "LexiconConstraint": "las.decoding.scorers.word_lists",
    "MinLength": "las.decoding.scorers.constraints",
    "RepetitionConstraint": "las.decoding.scorers.constraints",
    "WordNGramScorer": "las.decoding.scorers.language_model",
    # training
    "Nadam": "las.training.optimization",
    "Schedule": "las.training.schedules",
    "ExponentialSchedule": "las.training.schedules",
    "NewbobSchedule": "las.training.schedules",
    "NewbobMultiEpochSchedule": "las.training.schedules",
    "GradientTransform": "las.training.optimization",
    "AnnealedNoise": "las.training.optimization",
    "ConstantNoise": "las.training.optimization",
    "WeightNoise": "las.training.optimization",
}
"""Classes that a config may name, with their modules."""

PACKAGES = tuple(sorted({module.rpartition(".")[0] for module in COMPONENTS.values()}))
"""Packages of components: a config may also name a class in them by its module, so that a new one needs no entry."""

PARTS = {
    "corpus": "las.data.corpora.base.Corpus",
    "tokens": "las.data.tokenizers.Tokenizer",
    "limits": "las.data.quality.QualityLimits",
    "augment": "las.data.augmentation.augmentation.Augmentation",
    "order": "las.data.sampler.BatchSampler",
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

TOOLS = {
    "load": "las.decoding.transcriber",
    "Transcriber": "las.decoding.transcriber",
    "Transcription": "las.decoding.transcription",
    "LSTM": "las.nn.lstm",
    "LSTMState": "las.nn.cells.base",
    "Attention": "las.nn.attention.base",
    "TrainingLoss": "las.nn.losses",
    "unroll": "las.nn.kernels.base",
    "use_kernel": "las.nn.kernels.choice",
    "RecurrentLayer": "las.nn.rnn",
    "Hypothesis": "las.decoding.base",
    "NGram": "las.lm.ngram",
    "Corpus": "las.data.corpora.base",
    "Tokenizer": "las.data.tokenizers",
    "Utterance": "las.data.manifest",
    "Batch": "las.data.loader",
    "Loader": "las.data.loader",
    "error_rate": "las.scoring.error_rates",
    "wer": "las.scoring.error_rates",
    "cer": "las.scoring.error_rates",
    "Score": "las.scoring.error_rates",
    "compare": "las.scoring.significance",
    "train": "las.cli.train",
    "compose": "las.config.build",
    "trust": "las.config.targets",
}
"""Functions and classes for a researcher's own code, with their modules."""

MODULES = {
    "cells": "las.nn.cells",
    "attention": "las.nn.attention",
    "corpora": "las.data.corpora",
    "scorers": "las.decoding.scorers",
    "errors": "las.runtime.errors",
}
"""Packages and modules that are reached by a short name."""

FORMER = {
    "las.attention.additive.AdditiveAttention": "las.AdditiveAttention",
    "las.attention.dot.DotAttention": "las.DotAttention",
    "las.attention.location.LocationAttention": "las.LocationAttention",
    "las.attention.multi_head.MultiHeadAttention": "las.MultiHeadAttention",
    "las.attention.weight_feedback.WeightFeedbackAttention": "las.WeightFeedbackAttention",
    "las.augment.Augment": "las.Augmentation",
    "las.cells.bn_input.BNInputLSTMCell": "las.BNInputLSTMCell",
    "las.cells.bn_recurrent.BNRecurrentLSTMCell": "las.BNRecurrentLSTMCell",
    "las.cells.ln_chosen_gates.LNChosenGatesLSTMCell": "las.LNSelectedGatesLSTMCell",
    "las.cells.ln_global.LNGlobalLSTMCell": "las.LNGlobalLSTMCell",
    "las.cells.ln_joined.LNJoinedLSTMCell": "las.LNJoinedLSTMCell",
    "las.cells.ln_one_projection.LNOneProjectionLSTMCell": "las.LNOneProjectionLSTMCell",
    "las.cells.ln_per_gate.LNPerGateLSTMCell": "las.LNPerGateLSTMCell",
    "las.cells.lstm.PlainLSTMCell": "las.PlainLSTMCell",
    "las.cells.noisy.NoisyLSTMCell": "las.GateNoiseLSTMCell",
    "las.cells.recurrent_dropout.RecurrentDropoutLSTMCell": "las.RecurrentDropoutLSTMCell",
    "las.cells.swapped.SwappedLSTMCell": "las.SwappedStateLSTMCell",
    "las.cells.weight_norm.WeightNormLSTMCell": "las.WeightNormLSTMCell",
    "las.cells.zoneout.ZoneoutLSTMCell": "las.ZoneoutLSTMCell",
    "las.corpora.an4.AN4": "las.AN4",
    "las.corpora.librispeech.LibriSpeech": "las.LibriSpeech",
    "las.corpora.switchboard.Switchboard": "las.Switchboard",
    "las.corpora.synthetic.Synthetic": "las.SyntheticSpeech",
    "las.corpora.timit.Timit": "las.TIMIT",
    "las.ctc.CTC": "las.CTC",
    "las.features.LogMel": "las.LogMel",
    "las.features.MFCC": "las.MFCC",
    "las.front_end.ConvolutionFrontEnd": "las.ConvolutionFrontEnd",
    "las.gradients.AnnealedNoise": "las.AnnealedNoise",
    "las.gradients.ConstantNoise": "las.ConstantNoise",
    "las.gradients.Gradients": "las.GradientTransform",
    "las.listener.Listener": "las.Listener",
    "las.lm.neural.LanguageModel": "las.LSTMLanguageModel",
    "las.loss.JointCTC": "las.JointCTCLoss",
    "las.loss.LabelSmoothedCrossEntropy": "las.LabelSmoothedCrossEntropy",
    "las.model.ListenAttendSpell": "las.ListenAttendSpell",
    "las.nadam.Nadam": "las.Nadam",
    "las.order.Buckets": "las.BucketSampler",
    "las.order.SortedChunks": "las.ChunkedSampler",
    "las.ramp.Ramp": "las.PiecewiseLinear",
    "las.schedule.Exponential": "las.ExponentialSchedule",
    "las.schedule.Newbob": "las.NewbobSchedule",
    "las.schedule.NewbobMultiEpoch": "las.NewbobMultiEpochSchedule",
    "las.schedule.Schedule": "las.Schedule",
    "las.scorers.coverage.Coverage": "las.CoverageReward",
    "las.scorers.ctc_prefix.CTCPrefix": "las.CTCPrefixScorer",
    "las.scorers.end_threshold.EndThreshold": "las.EndThreshold",
    "las.scorers.language_model.LanguageModel": "las.LanguageModelScorer",
    "las.scorers.length_reward.LengthReward": "las.LengthReward",
    "las.scorers.min_length.MinLength": "las.MinLength",
    "las.scorers.repetition.Repetition": "las.RepetitionConstraint",
    "las.search.Beam": "las.BeamSearch",
    "las.search.Greedy": "las.GreedySearch",
    "las.soundness.Limits": "las.QualityLimits",
    "las.speller.Speller": "las.Speller",
    "las.tokens.Characters": "las.Characters",
    "las.tokens.LearnedPieces": "las.TrainedSentencePieces",
    "las.tokens.Phones": "las.Phones",
    "las.tokens.SentencePieces": "las.SentencePieces",
    "las.weight_noise.WeightNoise": "las.WeightNoise",
}
"""Targets of release 0.1.0 and their public names. Checkpoints and run directories of that release contain them."""


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
