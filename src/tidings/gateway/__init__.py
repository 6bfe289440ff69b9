"""Sensor gateway: readings go to the node, demands go to the sensors; without I/O."""
