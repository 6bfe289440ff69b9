"""What a node keeps on disk: stored events, durable subscriptions, queues, and how far others counted."""
