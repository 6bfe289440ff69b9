"""The store of a node: stored events, durable subscriptions, queues, and how far clients have counted."""
