"""Starts a kernel: `python -I -B start.py`, with the channel to the kernel host as file descriptor 3."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from everturn_kernel import driver  # noqa: E402

del sys.path[0]
driver.main()
