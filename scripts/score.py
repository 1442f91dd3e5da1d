"""`python scripts/score.py key=value ...` is `las score key=value ...`."""

import sys

from las.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["score", *sys.argv[1:]]))
