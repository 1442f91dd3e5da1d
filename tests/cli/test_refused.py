"""Commands that are refused before anything is read: exit code 2, key words that say what to type, nothing written."""

from pathlib import Path

import pytest
from console import Las
from tiers import rest_slow

FLAGS = {
    "train --cfg jbo": "--cfg 'jbo' hydra",
    "train --info tree": "--info tree: defaults-tree,",
    "train --cfgg job": "--cfgg: --cfg",
    "train --cfg": "--cfg --help",
    "train --resolve": "--resolve --cfg",
    "train -p optim": "--package --cfg",
    "train --cfg job -p optm": "optm: optim",
    "train --cfg job optm.lr=1": "'optm.lr' optim.lr",
    "train -m --cfg job": "--multirun --cfg",
    "train -m --run": "--multirun --run",
    "train --config-path x": "--config-path: --config-dir=DIR",
    "train --config-name=mine": "--config-name=mine: experiment=mine",
    "train --config-name=langage_model": "--config-name=langage_model: experiment=mine",
    "tune -cn decode": "--config-name=decode: decode",
    "train --experimental-rerun=x": "--experimental-rerun:",
    "train --hydra-help": "--hydra-help: --info",
    "train -cd nowhere": "nowhere:",
    "train -sc install=tcsh": "install=tcsh: install=fish",
    "list --cfg job": "list --help",
}
HYDRA = {
    "train hydra.run.dir=/tmp/x": "hydra.run.dir=/tmp/x: run_dir=/tmp/x",
    "train +hydra.run.dir=/tmp/x": "+hydra.run.dir=/tmp/x: run_dir=/tmp/x",
    "train hydra.sweep.dir=/tmp/x": "hydra.sweep.dir=/tmp/x: run_dir=/tmp/x",
    "train hydra/launcher=joblib": "hydra/launcher=joblib: sweeps",
    "score hydra.run.dir=/tmp/x reference=a hypothesis=b": "hydra.run.dir=/tmp/x: sweeps",
    "train hydra.searchpath=[pkg://x]": "pkg://x --config-dir=DIR",
    "train hydra.searchpath=x": "hydra.searchpath=x: list",
    "train -m seed=1,2 hydra.run.dir=/tmp/x": "hydra.run.dir=/tmp/x: hydra/launcher, run_dir",
    "train -m seed=1,2 hydra.job.chdir=true": "hydra.job.chdir=true: hydra/launcher, run_dir",
    "train -m seed=1,2 +hydra.output_subdir=y": "+hydra.output_subdir=y: hydra/launcher, run_dir",
}
NAMES = {
    "train trainr=smoke": "'trainr' configs/train.yaml. trainer,",
    "train trainer.max_step=3": "'trainer.max_step' trainer.max_steps,",
    "train model.listener.hiden_size=3": "model.listener.hidden_size,",
    "train corpus=timt": "configs/corpus/timt.yaml. timit, (all: an4,",
    "train cell@model.listener.cell=ln_globl": "configs/cell/ln_globl.yaml. ln_global,",
    "train cell@model.listner.cell=lstm": "cell@model.listener.cell=lstm cell@model.speller.cell=lstm",
    "train sell@model.listener.cell=lstm": "'sell' cell@model.listener.cell=lstm.",
    "train +experiment=baselin": "configs/experiment/baselin.yaml. baseline,",
    "train experiment=baseline": "+experiment=baseline",
    "train +experimnt=ln_both": "experimnt: experiment",
    "train cel=lstm": "'cel' cell",
    "train scale=tiny": "+scale=tiny",
    "train lm=lstm": "lm=lstm: configs/train.yaml place",
    "train +foo=1": "foo: configs/train.yaml",
    "train corpus=timit": "corpus.root corpus.root=...",
    "train baseline": "'baseline' key=value,",
    "train trainer.max_steps=[1": "'trainer.max_steps=[1]'",
    "train model.listener.time_reduction=[2,1": "'model.listener.time_reduction=[2,1]'",
    "train name=a,b": """name=a,b: 'name=[a,b]'; 'name="a,b"'; name=a,b""",
    "train ~augment": "~augment: augment=none (all: noise,",
    "train ~corpus": "~corpus: corpus=... (all: an4,",
    "train ~search@validation_search": "~search@validation_search: search@validation_search=... beam,",
    "train ~cell@model.listener.cell": "~cell@model.listener.cell: cell@model.listener.cell=... ba2016,",
    "train ~seed": "~seed: seed=...",
    "train ~sell": "'sell' seed",
    "prepare corpus=timit corpus.root=x tokens@corpus.tokens=bpe_1k": "corpus.tokens timit",
    "list sell": "sell: cell",
    "list cell loss": "las list cell",
    "show": "cell=ln_global",
    "show ln_global": "ln_global: cell=ln_global",
    "show cell": "cell: cell=ba2016",
    "show cell=ln_glob": "cell=ln_glob: ln_global",
}
SIZES = {
    "decode checkpoint=x search=beam search.size=1000000000": "search.size=1000000000 4,096",
    "train model.features.num_mels=10000000": "model.features.num_mels=10000000 4,096",
    "train trainer.batch_size=10000000000": "trainer.batch_size=10000000000 100,000",
    "train trainer.num_workers=1000000": "trainer.num_workers=1000000 4,096",
    "train model.listener.time_reduction=[1,1000000000]": "model.listener.time_reduction=1000000000 1,000",
    "ngram output=x n=1000000": "n=1000000 20",
    "reproduce recipe=bo18_table3 jobs=1000000": "jobs=1000000 4,096",
    "train trainer.patience=9999999999999999": "trainer.patience=9999999999999999 1,000,000,000,000",
}
SWEEPS = {
    "train -m +experiment=baseline,ln_bth": "ln_both",
    "train -m seed=1,2 trainer.max_step=3": "trainer.max_steps",
    "train -m seed=1,2 name": "name",
    "train -m optim.lr=0.1,0.01": "runs/baseline/synthetic/seed1: 'name=x_${optim.lr}'",
    "decode -m checkpoint=a split=dev search.size=1,4": "'output=x_${search.size}'",
    "tune -m checkpoint=a search.lm.path=x split=dev,test": "'output=x_${split}'",
    "demo -m optim.lr=0.1,0.2": "'name=x_${optim.lr}'",
    "decode -m checkpoint=a split=dev,test hydra/launcher=joblib": "hydra/launcher=joblib:",
}
LISTEN = "listen corpus=timit corpus.root=x augment=noise"
VALUES = {
    "train_lm lm.num_layers=0": "lm.num_layers=0 1",
    "train_lm text=[a,b]": "text=['a', text null",
    "prepare corpus.vocabulary=-1": "corpus.vocabulary=-1:",
    "doctor dry_rn=true": "dry_run",
    "doctor dry_run=3": "dry_run=3",
    "tune_lr updates=3": "tune_lr.updates=3 10",
    "tune_lr low=2": "tune_lr.low=2 high=1",
    "tune_lr output=rates.png": "output=rates.json",
    "tune_lr lowest=1": "'lowest' configs/tune_lr.yaml",
    "average run=x": "last=5",
    "average run=x last=1 best=1": "last=5 both",
    "average run=x last=0": "last=0",
    "average run=x best=x": "best='x'",
    "decode checkpoint=x split=test augment=noisy": "augment: masks",
    "decode checkpoint=x audio=x.wav augment=noise": "augment: split=test",
    "listen corpus=timit corpus.root=x augment=none": "augment=noisy",
    f"{LISTEN} count=0": "count=0",
    f"{LISTEN} augment.noise.snr_db=[9,1]": "augment.noise.snr_db=[9,1]",
    f"{LISTEN} augment.noise.snr_db=loud": "augment.noise.snr_db='loud'",
    f"{LISTEN} distortion@augment.noise=noise_files": "augment.noise.folder value",
    f"{LISTEN} distortion@augment.noise=noise_files augment.noise.folder=nowhere": "augment.noise.folder=nowhere",
    "decode checkpoint=x split=test search=beam_words": "search.word_lm.path=None:",
    "decode checkpoint=x split=test search=greedy search.lexicon=x.txt": "search.lexicon: GreedySearch",
    "decode checkpoint=x split=test search.lexicn=x.txt": "search.lexicn",
    "decode checkpoint=x split=test +scorer@search.word_lm=word_ngram search.word_lm.word=x": "search.word_lm.words",
    "demo_app checkpoint=x port=0": "port=0 1 65535",
    "demo_app checkpoint=x port=high": "port='high'",
    "demo_app checkpoint=x host=192.0.2.1": "host=192.0.2.1 port=7860:",
    "demo_app checkpoint=x bem=3": "bem",
    "demo_app checkpoint=x max_upload_mb=0": "max_upload_mb=0 0.001 10000",
    "demo_app checkpoint=x max_duration_s=-1": "max_duration_s=-1 0.1 1e+06",
    "demo_app checkpoint=x max_upload_mb=lots": "max_upload_mb='lots'",
    "demo_app checkpoint=x allow_hosts=[7]": "allow_hosts=[7]",
    "demo_app checkpoint=x allow_hosts=http://x.example": "allow_hosts: 'http://x.example'",
    "benchmark suite=lstm budget_s=-1": "budget_s=-1 0",
    "benchmark suite=model seconds=[3.0,1.0]": "seconds=[3.0,1.0] shortest",
    "benchmark suite=lstm threads=4000": "threads=4000 cores",
}
NGRAM = {
    "ngram": "output=...",
    "ngram output=x n=0": "n=0 1",
    "ngram output=x order=4": "order=4: n=4",
    "ngram output=x n=two": "n='two'",
    "ngram output=x units=letters": "units=letters tokens words",
    "ngram output=x unit=words": "'unit' units",
}
ANALYZE = {
    "analyze what=alignment": "what=alignment alignments",
    "analyze": "checkpoint=runs/... every=100",
    "analyze checkpoint=x every=2": "checkpoint= every= both",
    "analyze every=0": "every=0 1",
    "analyze checkpoint=x draws=on": "draws=on frozen off",
    "analyze checkpoint=x num_utterances=0": "num_utterances=0 1",
    "analyze checkpoint=x num_utterances=many": "num_utterances='many'",
    "analyze checkpoint=x grid.unit=updates": "grid.unit=updates update",
    "analyze checkpoint=x grid.low=0.0": "grid.low=0.0 high=4.0",
    "analyze checkpoint=x grid.points=0": "grid.points=0 1",
    "analyze checkpoint=x +grid.lowest=1": "grid.lowest low",
    "analyze what=deep_linear seeds=0": "seeds=0 1",
}
BEAM, PHONES = "tune checkpoint=x search=beam_lm search.lm.path=x", "tune checkpoint=x search=phone_bigram"
TUNE = {
    f"{BEAM} weights.ctc=[0.1]": "weights.ctc:",
    f"{BEAM} weights.lm=[]": "weights.lm=[]",
    f"{BEAM} weights.lm=[nan]": "weights.lm=[nan]",
    f"{BEAM} weights.lm=[-0.1]": "search.lm.weight=-0.1",
    f"{BEAM} weights.lm=much": "weights.lm='much'",
    f"{BEAM} length_normalisation=[-1.0]": "search.length_normalisation=-1.0",
    f"{BEAM} search.lm.path=null": "search.lm.path",
    f"{PHONES} scales.lm_scale=[]": "scales.lm_scale=[]",
    f"{PHONES} scales.lm_scale=2": "scales.lm_scale=2",
    f"{PHONES} scales.prior_scale=[-1.0]": "search.prior_scale=-1.0",
    f"{PHONES} ++scales.lm=[1.0]": "lm",
    f"{PHONES} search=beam_lm": "search.lm.path",
    "tune checkpoint=x search=greedy ~scorer@search.coverage ~scorer@search.length_reward": "search=beam_lm",
}
TABLE, SMOKE = "reproduce recipe=bo18_table3", "reproduce recipe=bo18_table3 tier=smoke"
REPRODUCE = {
    "reproduce recipe=bo18_table": "recipe=bo18_table bo18_table1",
    "reproduce": "recipe=...",
    f"{TABLE} tier=smal": "tier=smal smoke",
    f"{TABLE} seeds=many": "seeds='many'",
    f"{TABLE} rows=[basline]": "rows basline baseline",
    f"{TABLE} rows=basline": "rows basline baseline",
    f"{TABLE} rows=1": "rows=1",
    f"{TABLE} seeds=0": "seeds=0 1",
    f"{TABLE} jobs=0": "jobs=0 1",
    f"{TABLE} look_every=0": "look_every=0 1",
    f"{TABLE} report=yes": "report='yes'",
    f"{TABLE} seed=3": "seed=... seeds=...",
    f"{TABLE} optim.lrr=1": "bo18_table3 baseline optim.lr",
    f"{TABLE} tier=paper": "corpus.root=",
    f"{SMOKE} corpus.vocabulary=60": "baseline vocabulary=60 150",
    f"{SMOKE} corpus.vocabulary=60 dry_run=true": "baseline vocabulary=60 150",
    f"{SMOKE} model.listener.hidden_size=0 dry_run=true": "baseline hidden_size=0 1",
    f"{SMOKE} search=beam_ctc dry_run=true": "baseline search.ctc CTC",
}
ALL = (FLAGS, HYDRA, NAMES, SIZES, SWEEPS, VALUES, NGRAM, ANALYZE, TUNE, REPRODUCE)


@pytest.mark.parametrize(("command", "words"), [case for each in ALL for case in rest_slow(each.items(), keep=5)])
def test_a_refused_command_says_what_to_type(
    command: str, words: str, tmp_path: Path, las: Las, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = las(*command.split()).fails(2, f"las {command.split()[0]}: {words}")
    assert answer.out == "" or command.startswith("reproduce"), "the plan of a recipe comes first"
    assert list(tmp_path.iterdir()) == []
