"""`python -m las` is the console command `las`."""

import sys

from las.cli import main

sys.exit(main.main())
