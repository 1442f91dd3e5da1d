"""`python scripts/export.py key=value ...` is `las export key=value ...`."""

import sys

from las.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["export", *sys.argv[1:]]))
