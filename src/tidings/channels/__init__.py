"""Channels: named groups whose members get the same events, at whichever node they are."""
