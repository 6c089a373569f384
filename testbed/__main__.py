"""`python -m testbed`: the same as the console script `testbed`."""

import sys

from testbed.cli import main

sys.exit(main())
