"""Interest: which filters demand what each source advertises, kept up as they come and go."""

from tidings.interest.audience import Advertisement
from tidings.interest.interests import Interests

__all__ = ["Advertisement", "Interests"]
