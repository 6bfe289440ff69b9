"""Counts of which earlier ones weigh less: which hosts are often met, who reads most of a queue."""

from __future__ import annotations

HALF_LIFE_S = 6 * 3_600.0
"""Seconds after which what was counted weighs half."""
KEYS_MAX = 1_000
"""Keys that are counted; of more the one that weighs least is forgotten."""


class RecentCounts:
    """Weights by key."""

    def __init__(self, half_life_s: float = HALF_LIFE_S, keys_max: int = KEYS_MAX) -> None:
        self._half_life_s = half_life_s
        self._keys_max = keys_max
        self._counts: dict[str, tuple[float, float]] = {}  # weight, and when it was that

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, key: str, now: float) -> None:
        """Count a key once more."""
        self._counts[key] = self.weight(key, now) + 1.0, now
        if len(self._counts) > self._keys_max:
            del self._counts[min(self._counts, key=lambda one: self.weight(one, now))]

    def weight(self, key: str, now: float) -> float:
        """Return what a key weighs now."""
        weight, at = self._counts.get(key, (0.0, now))
        return float(weight * 0.5 ** (max(0.0, now - at) / self._half_life_s))

    def weights(self, now: float) -> dict[str, float]:
        """Return what each key weighs now."""
        return {key: self.weight(key, now) for key in self._counts}
