"""`python scripts/tune.py key=value ...` is `las tune key=value ...`."""

import sys

from las.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["tune", *sys.argv[1:]]))
