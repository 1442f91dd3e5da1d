"""`python scripts/analyze.py key=value ...` is `las analyze key=value ...`."""

import sys

from las.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["analyze", *sys.argv[1:]]))
