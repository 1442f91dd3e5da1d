"""`python scripts/reproduce.py key=value ...` is `las reproduce key=value ...`."""

import sys

from las.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["reproduce", *sys.argv[1:]]))
