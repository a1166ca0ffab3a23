"""The load generator: prompts, arrivals, client, wire records."""
