"""The papers' claims as sentences, each with the recipe that tests it and the rule that gives its verdict.

C1 to C10 are of Ben Othman 2018, C11 to C22 of Zeineldeen et al. 2020, the others of their background: Santurkar
et al. 2018 (C23 to C25) and Ba et al. 2016 (C26). C27 to C38 are our own controls, C39 to C43 our questions to other
norms and cells, C44 to C49 to criteria.

A family of claims, whose verdicts share 5 % of false ones, is fixed here: one paper on one corpus, its secondary
measures apart. All verdicts that pages print are those of `claims.json`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from las.reproduction.convergence import STEPS_TO_COMMON
from las.reproduction.rules import (
    LARGE_GAIN,
    attention_fails,
    best_of,
    both,
    breaks,
    elsewhere,
    far_worse,
    gain_grows,
    gains,
    less_spread_over,
    lower,
    narrower,
    not_lower,
    small_gains,
)
from las.reproduction.verdicts import Rule

PAPERS = {
    "Ben Othman 2018": 10,
    "Zeineldeen et al. 2020": 22,
    "their background": 26,
    "our controls": 38,
    "norms and cells": 43,
    "criteria": 49,
}
"""The number of the last claim of each paper."""
AT_OWN_RATES = (
    "the published verdict compared rows at learning rates of their own, which this measure changes with; at equal "
    "rates {}"
)

VARIANTS = ("joined_cell", "global_cell", "per_gate_cell", "joined", "global", "per_gate")
PRETRAINED = [f"z20_pre_{variant}" for variant in ("lstm", *VARIANTS)]
NOT_PRETRAINED = [f"z20_nopre_{variant}" for variant in ("lstm", *VARIANTS)]
HYBRID = {layers: [f"z20_hybrid_{layers}_{variant}" for variant in VARIANTS] for layers in (6, 8)}
CELLS = ("gru", "li_gru", "min_gru", "min_lstm", "projected_lstm", "slstm")
RATES = ("0.0005", "0.001", "0.002", "0.004", "0.008")


@dataclass(frozen=True)
class Claim:
    """`recipe` is the one whose table the rule reads; it is empty where no table answers.

    `is_secondary` is true of claims about other measures than errors and times. `withdrawn` is the reason why an
    verdict on tables of earlier releases does not hold.
    """

    id: str
    sentence: str
    recipe: str
    rule: Rule
    is_secondary: bool = False
    withdrawn: str = ""

    @property
    def family(self) -> str:
        """The claims that are judged together: a paper's, its secondary measures apart."""
        number = int(self.id.removeprefix("C"))
        paper = next(paper for paper, last in PAPERS.items() if number <= last)
        return f"{paper}, secondary measures" if self.is_secondary else paper


def _not_joined(rows: Sequence[str]) -> list[str]:
    return [row for row in rows if row != "z20_nopre_joined"]


CLAIMS = (
    Claim(
        "C1",
        "LN in the listener converges in fewer steps (TIMIT).",
        "bo18_table1",
        lower("ln_encoder_only", "baseline", STEPS_TO_COMMON),
    ),
    Claim("C2", "... and gives a lower PER.", "bo18_table1", lower("ln_encoder_only", "baseline")),
    Claim(
        "C3",
        "LN in the listener converges in fewer steps on LibriSpeech.",
        "bo18_table2",
        lower("ln_encoder_only", "baseline", STEPS_TO_COMMON),
    ),
    Claim("C4", "... and gives a lower WER.", "bo18_table2", lower("ln_encoder_only", "baseline")),
    Claim("C5", "LN in the listener alone is better than in both.", "bo18_table3", lower("ln_encoder_only", "ln_both")),
    Claim(
        "C6",
        "LN in the speller alone is far worse.",
        "bo18_table3",
        far_worse("ln_decoder_only", ["baseline", "ln_encoder_only", "ln_both"]),
    ),
    Claim(
        "C7",
        "LN does not make the distributions of the trained variables steadier.",
        "bo18_table3",
        not_lower("ln_encoder_only", "baseline", "weight_drift"),
        is_secondary=True,
        withdrawn=AT_OWN_RATES.format("the sign turns on phones, and AN4's own interval says 5 to 9 % steadier"),
    ),
    Claim(
        "C8",
        "LN makes the loss change more smoothly.",
        "smoothness",
        lower("ln_encoder_only_monitored", "baseline_monitored", "loss_change"),
        is_secondary=True,
        withdrawn=AT_OWN_RATES.format("three seeds decide nothing"),
    ),
    Claim(
        "C9",
        "Attention with LN in the listener keeps the alignment, and is more intense.",
        "bo18_table3",
        both(not_lower("ln_encoder_only", "baseline", "diagonality"), lower("ln_encoder_only", "baseline", "entropy")),
        is_secondary=True,
        withdrawn=AT_OWN_RATES.format("entropy differs by 0.0 and -0.7 %"),
    ),
    Claim(
        "C10",
        "Attention fails with LN in the speller.",
        "bo18_table3",
        attention_fails("ln_decoder_only", "baseline"),
        is_secondary=True,
    ),
    Claim(
        "C11",
        "Hybrid models gain little by LN.",
        "z20_hybrid",
        both(small_gains("z20_hybrid_6_lstm", HYBRID[6]), small_gains("z20_hybrid_8_lstm", HYBRID[8])),
    ),
    Claim(
        "C12",
        "Hybrid: Global is best.",
        "z20_hybrid",
        best_of("z20_hybrid_8_global", [row for row in HYBRID[8] if row != "z20_hybrid_8_global"]),
    ),
    Claim(
        "C13",
        "Hybrid: the gain grows with depth.",
        "z20_hybrid",
        gain_grows(("z20_hybrid_6_lstm", "z20_hybrid_6_global"), ("z20_hybrid_8_lstm", "z20_hybrid_8_global")),
    ),
    Claim(
        "C14",
        "End to end, LN gains about 10 % relative.",
        "z20_end_to_end",
        gains("z20_nopre_lstm", "z20_nopre_joined", LARGE_GAIN),
    ),
    Claim(
        "C15",
        "Joined without cell norm and without pretraining is best.",
        "z20_end_to_end",
        best_of("z20_nopre_joined", _not_joined([*PRETRAINED, *NOT_PRETRAINED])),
    ),
    Claim(
        "C16",
        "Without pretraining, Joined and Per Gate with cell norm break.",
        "z20_end_to_end",
        breaks(["z20_nopre_joined_cell", "z20_nopre_per_gate_cell"], sound=["z20_nopre_lstm", "z20_nopre_joined"]),
    ),
    Claim(
        "C17",
        "LN converges faster.",
        "z20_end_to_end",
        lower("z20_nopre_joined", "z20_nopre_lstm", STEPS_TO_COMMON),
    ),
    Claim(
        "C18",
        "LN needs less tuning: a narrower range of errors over learning rates.",
        "lr_sweep",
        less_spread_over([f"ln_encoder_only_lr_{rate}" for rate in RATES], [f"baseline_lr_{rate}" for rate in RATES]),
    ),
    Claim("C19", "LN narrows the spread over seeds.", "z20_variance", narrower("z20_nopre_joined", "z20_nopre_lstm")),
    Claim(
        "C20", "... and over repeated runs.", "z20_variance", narrower("z20_nopre_joined_runs", "z20_nopre_lstm_runs")
    ),
    Claim(
        "C21",
        "7 and 8 encoder layers converge only with LN.",
        "z20_depth",
        breaks(["z20_nopre_lstm_7", "z20_nopre_lstm_8"], sound=["z20_nopre_joined_7", "z20_nopre_joined_8"]),
    ),
    Claim(
        "C22",
        "Deeper is worse because of overfitting: lower training loss, higher dev loss.",
        "z20_depth",
        both(
            lower("z20_nopre_joined_8", "z20_nopre_joined", "train_loss"),
            lower("z20_nopre_joined", "z20_nopre_joined_8", "dev_loss"),
        ),
        is_secondary=True,
    ),
    Claim(
        "C23",
        "Normalisation does not lower the measure of internal covariate shift.",
        "smoothness",
        not_lower("ln_encoder_only_monitored", "baseline_monitored", "ics"),
        is_secondary=True,
        withdrawn=AT_OWN_RATES.format("three seeds decide nothing"),
    ),
    Claim(
        "C24",
        "It smooths the landscape: loss range, gradient predictiveness, effective beta.",
        "smoothness",
        both(
            lower("ln_encoder_only_monitored", "baseline_monitored", "loss_range"),
            both(
                lower("ln_encoder_only_monitored", "baseline_monitored", "gradient_change"),
                lower("ln_encoder_only_monitored", "baseline_monitored", "beta"),
            ),
        ),
        is_secondary=True,
        withdrawn=AT_OWN_RATES.format("three seeds decide nothing"),
    ),
    Claim(
        "C25", "Noise after the norm does not remove its benefit.", "noisy_norm", lower("ln_encoder_noisy", "baseline")
    ),
    Claim(
        "C26",
        "Ba et al.'s table of invariances.",
        "",
        elsewhere("a property, not a training: las analyze what=[invariance] prints the table, its tests hold it"),
    ),
    Claim(
        "C27",
        "Global breaks by the first value of its recurrent gain: with 0.1 it trains.",
        "z20_controls",
        breaks(
            ["z20_nopre_global", "z20_nopre_global_cell"],
            sound=["z20_nopre_global_gain01", "z20_nopre_global_cell_gain01"],
        ),
    ),
    Claim(
        "C28",
        "The plain LSTM starts late by its initial scale: with W x of unit variance it converges faster.",
        "z20_controls",
        lower("z20_nopre_lstm_scaled", "z20_nopre_lstm", STEPS_TO_COMMON),
    ),
    Claim(
        "C29",
        "LN gains over a plain LSTM of that scale as well.",
        "z20_controls",
        lower("z20_nopre_joined", "z20_nopre_lstm_scaled"),
    ),
    Claim(
        "C30",
        "LN gains about 10 % relative under the paper's own dropout, features and loss.",
        "z20_controls",
        gains("z20_nopre_lstm_published", "z20_nopre_joined_published", LARGE_GAIN),
    ),
    Claim(
        "C31",
        "Plain LSTMs of 7 and 8 layers break by their initial scale.",
        "z20_controls",
        breaks(
            ["z20_nopre_lstm_7", "z20_nopre_lstm_8"],
            sound=["z20_nopre_lstm_7_scaled", "z20_nopre_lstm_8_scaled"],
        ),
    ),
    Claim(
        "C32",
        "LN in the listener gains on AN4 without augmentation.",
        "an4_augmentation",
        lower("an4_clean_listener", "an4_clean"),
    ),
    Claim(
        "C33",
        "LN in the listener gains on AN4 with augmentation and three times the updates.",
        "an4_augmentation",
        lower("an4_long_listener", "an4_long"),
    ),
    Claim(
        "C34",
        "Hybrid: Global learns slowly by the first value of its recurrent gain: with 0.1 it converges faster.",
        "z20_hybrid_controls",
        both(
            lower("z20_hybrid_6_global_gain01", "z20_hybrid_6_global", STEPS_TO_COMMON),
            lower("z20_hybrid_8_global_gain01", "z20_hybrid_8_global", STEPS_TO_COMMON),
        ),
    ),
    Claim(
        "C35",
        "LN in the listener gains over a plain LSTM with W x of unit variance as well.",
        "bo18_controls",
        lower("ln_encoder_only", "baseline_scaled"),
    ),
    Claim(
        "C36",
        "LN gains over a plain LSTM that begins with the signal of LN as well.",
        "z20_controls",
        lower("z20_nopre_joined", "z20_nopre_lstm_gates_scaled"),
    ),
    Claim(
        "C37",
        "The gain of LN is one of small weights, which updates change more: drawn larger, "
        "the same function ends higher.",
        "z20_controls",
        lower("z20_nopre_joined", "z20_nopre_joined_gates_scaled"),
    ),
    Claim(
        "C38",
        "LN gains over a plain LSTM that begins with the signal of LN and with weights as small.",
        "z20_controls",
        lower("z20_nopre_joined", "z20_nopre_lstm_gains"),
    ),
    Claim(
        "C39",
        "LN needs its mean: with RMS norm in its place, Joined ends higher.",
        "norms",
        lower("norm_layer_joined", "norm_rms_joined"),
    ),
    Claim(
        "C40",
        "LN needs its statistics: with dynamic tanh in its place, Joined ends higher.",
        "norms",
        lower("norm_layer_joined", "norm_dynamic_tanh_joined"),
    ),
    Claim("C41", "Gains alone gain over a plain LSTM.", "norms", lower("norm_none_global", "norm_lstm")),
    Claim("C42", "RMS norm, Joined, gains over a plain LSTM.", "norms", lower("norm_rms_joined", "norm_lstm")),
    Claim(
        "C43",
        "At equal time per update, LSTM has the lowest error of seven cells.",
        "cells",
        best_of("cell_lstm", [f"cell_{cell}" for cell in CELLS]),
    ),
    *(
        Claim(
            name,
            f"LN in the listener gains with {criterion} on AN4.",
            "criteria",
            lower(f"criteria_{row}_joined", f"criteria_{row}"),
        )
        for name, criterion, row in (
            ("C44", "attention alone", "attention"),
            ("C45", "attention and CTC", "joint"),
            ("C46", "CTC alone", "ctc"),
            ("C47", "a transducer", "transducer"),
            ("C48", "a hybrid HMM", "hybrid"),
        )
    ),
    Claim(
        "C49",
        "Updates by expected word errors gain over as many by the loss before.",
        "criteria",
        lower("criteria_mwer", "criteria_further"),
    ),
)
