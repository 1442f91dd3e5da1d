"""`python scripts/transcribe.py key=value ...` is `las transcribe key=value ...`."""

import sys

from las.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["transcribe", *sys.argv[1:]]))
