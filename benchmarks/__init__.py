"""Measurements, each beside fixed reference code in the same run, with its target and the verdict."""
