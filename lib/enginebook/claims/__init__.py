"""The register of published claims and its judge."""
