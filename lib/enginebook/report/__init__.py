"""Charts, tables, theme and the offline HTML exporter."""
