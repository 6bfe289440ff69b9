"""What a node keeps on disk: stored events, durable subscriptions, and how far others counted."""
