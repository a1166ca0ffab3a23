"""The engines: one module each for command line, readiness, versions, memory and metric names."""
