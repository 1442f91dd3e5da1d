"""`python -m las` is the console command `las`.

The working directory, which Python puts first on the path of modules for `-m`, is taken off it: a folder that somebody
works in is no place that code is imported from. PYTHONPATH names such places.
"""

import sys

if not sys.flags.safe_path:
    del sys.path[0]

from las.cli import main

sys.exit(main.main())
