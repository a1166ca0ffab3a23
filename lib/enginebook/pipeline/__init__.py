"""The study as a plan of stages, each one notebook, run through Snakemake."""
