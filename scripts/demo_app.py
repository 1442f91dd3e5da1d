"""`python scripts/demo_app.py key=value ...` is `las demo_app key=value ...`."""

import sys

from las.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["demo_app", *sys.argv[1:]]))
