"""Programs that speak to a sensor gateway as sensor networks do: simulated, recorded, and devices of MQTT."""
