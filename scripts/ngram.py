"""`python scripts/ngram.py key=value ...` is `las ngram key=value ...`."""

import sys

from las.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["ngram", *sys.argv[1:]]))
