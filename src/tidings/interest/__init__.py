"""Interest: the filters that demand the events of each source, updated as subscriptions come and go."""

from tidings.interest.audience import Advertisement
from tidings.interest.interests import Interests

__all__ = ["Advertisement", "Interests"]
