"""`python scripts/check.py key=value ...` is `las check key=value ...`."""

import sys

from las.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["check", *sys.argv[1:]]))
