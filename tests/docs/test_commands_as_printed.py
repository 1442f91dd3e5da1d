"""Every verb by a command as README.md or docs print it, on the default corpora: only sizes are limited, and what would
be written into the checkout goes into the folder of the test. The commands are read from the pages, so that one that
is changed there is the one that runs here."""

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from console import Las
from places import REPOSITORY

from las.cli import main

Run = Callable[..., str]
README, RECIPES, ANALYSIS, SWEEPS = "README.md", "docs/results.md", "docs/analysis.md", "docs/runs.md"
TRAINING_PAGE, LM_PAGE = "docs/training.md", "docs/language_models.md"
CORPUS = [
    *("corpus.train_utterances=16", "corpus.dev_utterances=4", "corpus.test_utterances=4"),
    *("corpus.train_speakers=4", "corpus.dev_speakers=2", "corpus.test_speakers=2"),
]
TEXT_TRAINING = ["lm.hidden_size=16", "lm.embedding_size=8", "trainer.max_steps=2", "trainer.validate_every=1"]
STEPS = ["trainer=smoke", "trainer.max_steps=2", "trainer.validate_every=1", "trainer.batch_size=4"]
TRAINING = [*CORPUS, *STEPS, "+scale=tiny"]
SEARCH = ["search.max_length=8"]
PAIR = ["length_normalisation=[1.0]", "weights.lm=[0.0,0.1]", "weights.coverage=[0.0]"]
RUN = Path("runs/ln_encoder_only/synthetic/seed1")


def printed(page: str, beginning: str) -> list[str]:
    """The verb and arguments of the one command of a page that begins, or is all, like this."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", (REPOSITORY / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    found = [line for line in lines if line == beginning] or [line for line in lines if line.startswith(beginning)]
    found = list(dict.fromkeys(found))  # a page may print it again
    assert len(found) == 1, f"{page}: {beginning}: {found}"
    program, *words = shlex.split(found[0])
    return words if program == "las" else [Path(words[0]).stem, *words[1:]]


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the first training of README.md in it, and the files that its other commands name."""
    folder = tmp_path_factory.mktemp("as_printed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        train = printed(README, "python scripts/train.py +experiment=ln_encoder_only")
        assert main.main([*train, *TRAINING, *SEARCH]) == 0
    both = folder / "runs/ln_both/synthetic/seed1"  # a training of another command
    both.mkdir(parents=True)
    for hypotheses in (folder / "hypotheses.jsonl", both / "hypotheses.test.jsonl"):
        shutil.copy(folder / RUN / "hypotheses.test.jsonl", hypotheses)
    return folder


@pytest.fixture
def run(session: Path, las: Las, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command of a page, with limits of size, in the folder of the session, and returns what it printed."""
    monkeypatch.chdir(session)

    def run(page: str, beginning: str, *limits: str) -> str:
        return las(*printed(page, beginning), *limits).succeeds_quietly().out

    return run


def test_a_first_session(session: Path, run: Run) -> None:
    result = json.loads((session / RUN / "result.json").read_text())
    assert result["corpus"] == "synthetic" and result["train_utterances"] == 16
    again = run(README, "python scripts/train.py +experiment=ln_encoder_only", *TRAINING, *SEARCH)
    assert again.startswith(f"{RUN} is finished: dev PER ")
    checkpoint = f"python scripts/decode.py checkpoint={RUN}"
    recording = sorted((session / "data/synthetic/TEST").rglob("*.WAV"))[0]  # README names one of the whole corpus
    assert f"{recording}: " in run(README, f"{checkpoint} audio=data", *SEARCH, f"audio={recording}")
    assert "test: PER " in run(README, f"{checkpoint} split=test", *SEARCH)
    folder = recording.parent
    assert f"{recording}: " in run(README, f"las decode checkpoint={RUN} audio=data", *SEARCH, f"audio={folder}")
    assert len((session / "recordings.jsonl").read_text().splitlines()) == len([*folder.glob("*.WAV")])
    run(README, "las transcribe checkpoint=", *SEARCH, f"input={recording}")
    assert (session / "captions.srt").exists()


def test_scoring(session: Path, run: Run) -> None:
    assert "PER" in run(README, "python scripts/score.py reference=")
    result = json.loads((session / RUN / "result.json").read_text())
    counts = json.loads(run(README, f"las score reference={RUN}/references.test.jsonl hypothesis={RUN}"))
    assert counts["substitutions"] == result["splits"]["test"]["substitutions"] > 0
    run(README, f"las score reference={RUN}/references.test.jsonl hypothesis=hypotheses.jsonl compare=")
    assert (session / "errors.html").exists()
    pair = f"hypotheses=[{RUN}/hypotheses.test.jsonl,hypotheses.jsonl]"
    assert "2 systems" in run("docs/scoring.md", "las rover hypotheses=[runs", pair)


def test_a_corpus_and_this_machine(run: Run) -> None:
    assert "0 of 16" in run(README, "las prepare corpus=synthetic_hard", *CORPUS)
    run(README, "las check corpus=synthetic_hard", *CORPUS)
    packed = run("docs/data.md", "las pack corpus=synthetic output=shards", *CORPUS)
    assert "corpus=files corpus.name=synthetic corpus.train=shards/train.jsonl" in packed
    assert "augmentation.json" in run(README, "las listen ", *CORPUS)
    assert "ready" in run(README, "las doctor")
    assert "longest batch" in run(README, "las doctor dry_run=true", *TRAINING)


def test_a_learning_rate(session: Path, run: Run) -> None:
    limits = [*CORPUS, "updates=10", "+scale=tiny", "trainer.batch_size=4"]
    out = run(TRAINING_PAGE, "las tune_lr ", *limits)
    assert "+experiment=ln_encoder_only " in out
    assert (session / "learning_rates/ln_encoder_only_synthetic.png").exists()


def test_what_is_made_of_a_run(session: Path, run: Run) -> None:
    assert "2 checkpoints" in run(README, "las average ")
    assert "written and verified" in run(README, "las export ") and (session / "phones.las").exists()
    assert "numbers" in run(README, "las analyze ", "num_utterances=2")


def test_language_models(session: Path, run: Run) -> None:
    run(README, "las ngram ", *CORPUS)
    run(README, "las train_lm ", *CORPUS, *TEXT_TRAINING)
    assert "phones.arpa" in run(README, "las perplexity ", *CORPUS)
    assert "known times" in run(README, "las align ", *CORPUS)
    run(LM_PAGE, "las decode checkpoint=runs", f"checkpoint={RUN}", "search.size=2", "search.nbest=2")
    of_run = ["language_model=runs/lm/synthetic_hard/seed1", f"references={RUN}/references.dev.jsonl"]
    assert "oracle" in run(LM_PAGE, "las rescore hypotheses=dev.jsonl", *of_run)
    imported = run("docs/hybrid.md", "las align corpus=synthetic_hard import=", *CORPUS)
    assert "24 utterances" in imported
    run(README, "las tune ", *PAIR, *SEARCH, "output=tuned.yaml")
    assert (session / "tuned.yaml").exists()


@pytest.mark.slow
def test_a_hybrid_of_phones(run: Run) -> None:
    small = [*CORPUS, *STEPS, "model.listener.hidden_size=8"]
    assert "test: PER " in run("docs/hybrid.md", "las train +experiment=hybrid_phones", *small)
    grid = ["scales.lm_scale=[1.0]", "scales.insertion=[0.0]", "batch_size=4"]
    run("docs/hybrid.md", "las tune checkpoint=runs/hybrid_phones", *grid)
    assert "test: PER " in run("docs/hybrid.md", "las decode checkpoint=runs/hybrid_phones")


def test_options_and_configs(run: Run) -> None:
    assert "\nln_global " in run(README, "las list cell")
    assert "_target_: las.LNGlobalLSTMCell" in run(README, "las show ")
    assert run(README, "las train +experiment=ln_both --cfg job").startswith("# @package model.listener\n")


def test_runs(session: Path, run: Run) -> None:
    assert f"  {RUN}\n" in run(README, "las runs sort=test")
    pair = [f"compare=[{RUN},{RUN}]", "page=compared.html"]
    assert "McNemar" in run(README, "las runs compare=", *pair) and (session / "compared.html").exists()


def test_a_benchmark(run: Run) -> None:
    smallest = ["shapes=[C5]", "kernels=[cpu]", "baselines=[lstm]", "repeats=1", "threads=1"]
    assert "C5" in run(README, "python scripts/benchmark.py ", *smallest)


def test_a_table_at_the_tier_smoke(session: Path, run: Run) -> None:
    out = run(RECIPES, "las reproduce recipe=bo18_table1 tier=smoke")
    assert "2 to train" in out and "C1: undecided" in out
    table = json.loads((session / "results/bo18_table1-smoke-synthetic_smoke.json").read_text())
    assert [len(line["outcomes"]) for line in table["lines"]] == [1, 1]


@pytest.mark.slow
def test_a_table_of_the_project_is_planned_and_reported(run: Run) -> None:
    dry = run(RECIPES, "las reproduce recipe=bo18_table3 dry_run=true", "seeds=1")
    stored = dry.count("finished elsewhere")  # those of other recipes that have the same settings
    assert f"12 trainings, {stored} finished" in dry  # four rows, three learning rates
    report = run(README, "las reproduce ", "seeds=1")
    assert "written to results" in report


@pytest.mark.slow
def test_trainings_that_readme_and_docs_add(run: Run) -> None:
    limits = [*TRAINING, *SEARCH]
    run(README, "las train +experiment=ln_both corpus=synthetic_hard", *limits)
    run(README, "las train +experiment=ln_encoder_only cell@model.listener.cell=tf_contrib", *limits)
    assert run(SWEEPS, "las train -m seed=1,2,3", *limits).startswith("6 trainings")
    assert "numbers" in run(ANALYSIS, "las analyze +experiment=ln_encoder_only every=50", *limits, "name=looked")


def test_every_verb_runs_here() -> None:
    source = Path(__file__).read_text("utf-8")
    run_here = set(re.findall(r"\blas (\w+)|\bscripts/(\w+)\.py", source))
    # make demo is the training above at its full size; tests/cli/test_demo_app_server.py runs the page,
    # tests/cli/test_lexicon.py makes a dictionary, and tests/storage/test_pretrained.py lists models
    elsewhere = {"demo", "demo_app", "lexicon", "models"}
    assert main.VERBS.keys() - {verb for pair in run_here for verb in pair} == elsewhere
