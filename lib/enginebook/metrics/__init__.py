"""Wire records to requests to summaries; pure functions over frames."""
