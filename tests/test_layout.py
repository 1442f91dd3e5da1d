"""Imports point one way: every module has a floor and imports from floors below it, or sideways without a circle."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "las"

FLOORS = {
    0: "access archive arguments atomic audio bundle captions cells.base compat convergence corpora.phones ctc devices "
    "distributed download errors gradients health interruption lm.arpa lm.automaton lm.kneser_ney lm.vocabulary "
    "lock machine manifest masking nadam normalisation order overrides peers pieces places progress ramp randomness "
    "reader reader_process readings reports.charts reports.distributions reports.style schedule scorers.base "
    "scorers.coverage scorers.ctc_prefix "
    "scorers.end_threshold scorers.length_reward scorers.min_length scorers.panel scorers.repetition "
    "scoring.alignment scoring.bootstrap scoring.conventions scoring.ctm scoring.dynamic_programming "
    "scoring.error_rates scoring.files scoring.glm scoring.hub5 scoring.lines scoring.network scoring.pages "
    "scoring.segments scoring.significance scoring.stm scoring.tables search seats seed_statistics selection "
    "shorten sound soundness sphere stream temporary time_reduction time_warp tokens trail transcription "
    "weight_noise words",
    1: "attention.additive attention.base attention.dot attention.location attention.multi_head "
    "attention.weight_feedback augment batches build cells.bn_input cells.bn_recurrent cells.ln_chosen_gates "
    "cells.ln_global cells.ln_joined cells.ln_one_projection cells.ln_per_gate cells.lstm cells.noisy "
    "cells.recurrent_dropout cells.swapped cells.weight_norm cells.wrapped cells.zoneout corpora.an4 corpora.base "
    "corpora.calls corpora.espeak corpora.espeak_phones corpora.generated corpora.generated_calls corpora.hub5 "
    "corpora.isip corpora.librispeech corpora.librispeech_parts corpora.sentences corpora.switchboard "
    "corpora.synthesis corpora.synthetic corpora.timit corpora.timit_speakers corpora.voices drift features "
    "front_end kernels.allocation kernels.attending kernels.autograd kernels.compiled kernels.cpu "
    "kernels.cpu_attending kernels.cpu_spelling kernels.cuda_graphs kernels.equations kernels.extension "
    "kernels.onednn kernels.packing kernels.passes kernels.projecting kernels.scan kernels.spelling "
    "kernels.stepping kernels.triton kernels.triton_backward kernels.triton_forward kernels.triton_loops "
    "kernels.triton_plan kernels.triton_rows "
    "lm.kenlm lm.ngram lm.perplexity loss output_norm run",
    2: "installation plan recipe recurrent tuned",
    3: "claim_rules claims listener lm.neural outcomes report reports.curves speller",
    4: "model",
    5: "checkpoint evaluation pretraining programs updates",
    6: "analysis.alignments analysis.covariate_shift analysis.deep_linear analysis.distributions analysis.gates "
    "analysis.gradient_norms analysis.groups analysis.invariance analysis.moments analysis.objective "
    "analysis.pictures analysis.preserving analysis.smoothness analysis.steps analysis.subject analysis.watching "
    "assembly keeping lm.files preparation trainer transcribe validation",
    7: "analysis.command analysis.loading averaging check commands exporting language_models perplexities "
    "reports.examples reports.markdown reports.page reports.tables reports.transcription score scorers.language_model "
    "text_training tuning "
    "transcripts",
    8: "benchmark.baselines benchmark.candidates benchmark.command benchmark.decode benchmark.loader "
    "benchmark.lstm benchmark.material benchmark.memory benchmark.model benchmark.page benchmark.rows "
    "benchmark.safety benchmark.settings benchmark.shapes benchmark.suites benchmark.targets benchmark.timing "
    "demo demo_app ear reproduce",
    9: "__main__ cli doctor dry_run sweep",
}
FLOOR_OF = {module: floor for floor, modules in FLOORS.items() for module in modules.split()}


def modules() -> dict[str, Path]:
    """Every module with code, by its name below `las`; the package itself is the face and stands on no floor."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if path.name != "__init__.py":
            found[name] = path
    return found


def imports(path: Path) -> set[str]:
    """Modules of las that a file imports, anywhere in it, functions included. `import las` alone is the face."""
    names = set(modules())
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("las.")}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "las" or (node.module or "").startswith("las."):
                inside = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= {name if name.removeprefix("las.") in names else str(node.module) for name in inside}
    return {name.removeprefix("las.") for name in found if name != "las"}


def test_every_module_has_a_floor_and_every_floor_a_module() -> None:
    assert sorted(modules()) == sorted(FLOOR_OF)


def test_no_module_imports_from_above() -> None:
    wrong = [
        f"{name} (floor {FLOOR_OF[name]}) imports {other} (floor {FLOOR_OF[other]})"
        for name, path in modules().items()
        for other in imports(path)
        if FLOOR_OF[other] > FLOOR_OF[name]
    ]
    assert wrong == []


def test_imports_have_no_circle() -> None:
    graph = {name: imports(path) for name, path in modules().items()}
    while graph:
        free = {name for name, others in graph.items() if not others & graph.keys()}
        assert free, f"these import each other: {sorted(graph)}"
        graph = {name: others for name, others in graph.items() if name not in free}


def test_sideways_imports_stay_within_a_folder() -> None:
    """Above the lowest floor; but a kernel is written for cells and attentions one by one, and knows their classes."""
    sideways = {
        (name.rpartition(".")[0], other.rpartition(".")[0])
        for name, path in modules().items()
        for other in imports(path)
        if FLOOR_OF[other] == FLOOR_OF[name] > 0
    }
    assert {(folder, other) for folder, other in sideways if folder != other} <= {
        ("kernels", "cells"),
        ("kernels", "attention"),
    }


def test_names_come_from_modules_and_never_from_a_package() -> None:
    packages = {"las", *(f"las.{path.parent.name}" for path in PACKAGE.glob("*/__init__.py"))}
    known = {f"las.{name}" for name in modules()} | packages
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module in packages:
                inside = {f"{node.module}.{alias.name}" for alias in node.names}
                assert inside <= known | {"las.__version__"}, name


def test_only_build_knows_hydra_and_only_compat_torchaudio() -> None:
    readers = {
        "hydra": {"build", "overrides", "sweep"},
        "torchaudio": set(),
        "pickle": set(),
        "tarfile": {"archive"},
        "zipfile": {"archive"},
        "omegaconf": {"build", "recipe", "sweep"},
    }
    for library, allowed in readers.items():
        found = set()
        for name, path in modules().items():
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                named += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
                if any(each.split(".")[0] == library for each in named):
                    found.add(name)
        assert found == allowed, library


def test_files_are_short() -> None:
    for name, path in modules().items():
        assert len(path.read_text("utf-8").splitlines()) <= 300, name
