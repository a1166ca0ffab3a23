"""What each notebook calls: one module a kind of stage."""
