"""Makes `pytest examples` work: each example imports modules of its own folder."""

import sys
from pathlib import Path

sys.path[:0] = [str(path) for path in sorted(Path(__file__).parent.iterdir()) if path.is_dir()]
