"""Store of a node: events, durable subscriptions, queues, records, and the counters of producers."""
