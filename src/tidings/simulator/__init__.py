"""Simulator: the cores of node and client in virtual time, with faults, all chance drawn from one seed."""

from tidings.simulator.overlay_storm import OverlayVerdict, overlay_storm
from tidings.simulator.peer_storm import PeerVerdict, peer_storm
from tidings.simulator.queue_storm import QueueVerdict, queue_storm
from tidings.simulator.storm import Verdict, storm
from tidings.simulator.world import World

__all__ = [
    "OverlayVerdict",
    "PeerVerdict",
    "QueueVerdict",
    "Verdict",
    "World",
    "overlay_storm",
    "peer_storm",
    "queue_storm",
    "storm",
]
