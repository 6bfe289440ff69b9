"""Columns of events as Arrow arrays: attributes, casts, ids and maps, to rows and back."""
