"""Environments, models, server processes and the guard that ends them."""
