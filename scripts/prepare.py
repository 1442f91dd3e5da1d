"""`python scripts/prepare.py key=value ...` is `las prepare key=value ...`."""

import sys

from las.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["prepare", *sys.argv[1:]]))
