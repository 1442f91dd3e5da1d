"""Measure how fast it is: `python scripts/benchmark.py suite=lstm 'shapes=[C1]'`; see configs/benchmark.yaml."""

import sys

from las.cli.main import VERBS, Verb, main

VERB = Verb(
    "measure how fast it is",
    "suite=lstm shapes=[C1]",
    "groups that were finished are in output=; the same command measures everything again",
    "benchmarks.main",
    "benchmark",
)

if __name__ == "__main__":
    VERBS["benchmark"] = VERB
    sys.exit(main(["benchmark", *sys.argv[1:]]))
