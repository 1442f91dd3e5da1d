"""`python -m las` is the console command `las`."""

import sys

from las import cli

sys.exit(cli.main())
