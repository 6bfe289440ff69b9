"""Back-tests: what filters, or access rules, would have matched in the history of nodes, counted on Spark."""
