"""`python -m dsh` is the program `dsh`.

Python puts the current directory on the import path then, where a workspace's `typing.py` or `json.py`
would be imported for the real one; the program `dsh` never looks there.
"""

import sys

if not sys.flags.safe_path:
    del sys.path[0]

from dsh.cli.entry import main

sys.exit(main())
