"""`python scripts/perplexity.py key=value ...` is `las perplexity key=value ...`."""

import sys

from las.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["perplexity", *sys.argv[1:]]))
