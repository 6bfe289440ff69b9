"""Log: the persistent part of a node's stream, live in its store and sealed in Parquet files."""
