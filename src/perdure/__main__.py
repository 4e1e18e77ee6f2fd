"""`python -m perdure` is the command `perdure`."""

import sys

from perdure.cli import main

sys.exit(main())
