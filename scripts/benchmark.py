"""`python scripts/benchmark.py key=value ...` is `las benchmark key=value ...`."""

import sys

from las.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["benchmark", *sys.argv[1:]]))
