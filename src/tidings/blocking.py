"""The client without `await`, for `import tidings.blocking` and `from tidings.blocking import Message`.

It is one module with two names: its home is `tidings.client.blocking`.
"""

from __future__ import annotations

import sys

from tidings.client import blocking
from tidings.client.blocking import *  # noqa: F403 - for programs that look at types

sys.modules[__name__] = blocking
