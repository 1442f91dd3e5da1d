"""`python scripts/decode.py key=value ...` is `las decode key=value ...`."""

import sys

from las.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["decode", *sys.argv[1:]]))
