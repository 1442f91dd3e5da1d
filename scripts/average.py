"""`python scripts/average.py key=value ...` is `las average key=value ...`."""

import sys

from las.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["average", *sys.argv[1:]]))
