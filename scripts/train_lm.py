"""`python scripts/train_lm.py key=value ...` is `las train_lm key=value ...`."""

import sys

from las.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["train_lm", *sys.argv[1:]]))
