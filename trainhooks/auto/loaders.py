"""How the loader of a training is set, where no framework tells it by its own arguments."""

from __future__ import annotations

from typing import Any, Dict

from trainhooks import session
from trainhooks.auto import claims
from trainhooks.entries import FACTS

# The names that Hugging Face's arguments have for them: one name for one thing, whatever the program.
SETTINGS = (
    ("dataloader_num_workers", "num_workers"),
    ("dataloader_pin_memory", "pin_memory"),
    ("dataloader_prefetch_factor", "prefetch_factor"),
    ("dataloader_persistent_workers", "persistent_workers"),
    ("batch_size", "batch_size"),
)

_told: Dict[str, Any] = {}


def tell(loader: Any) -> None:
    """Its iterator was made and nothing has been learnt so far: the last such loader is the training's."""
    global _told
    if claims.loss:
        return  # a framework is at work, and says more
    settings = {name: getattr(loader, attribute, None) for name, attribute in SETTINGS}
    settings = {name: value for name, value in settings.items() if isinstance(value, (bool, int))}
    if settings and settings != _told:
        _told = settings
        session.quiet_put()((FACTS, {"facts": {"loader": settings}}))
