"""Pipeline on Spark: the same events and filters, over history and streams, on one machine or many."""
