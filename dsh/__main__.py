"""`python -m dsh` is the program `dsh`."""

import sys

from dsh.cli.main import main

sys.exit(main())
