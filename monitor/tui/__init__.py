"""The Textual dashboard: it draws Views, and knows nothing of where they come from."""

import os

# Those of Textual are meant for the program: a driver of its own, a screenshot, pressed keys. Its test plugin's stay.
for _name in [name for name in os.environ if name.startswith("TEXTUAL")]:
    if not _name.startswith("TEXTUAL_SNAPSHOT_"):
        del os.environ[_name]
