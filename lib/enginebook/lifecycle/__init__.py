"""From a recipe to a running engine and back: environments, server processes, host facts.

Kept free of imports: the guard process starts through this package within milliseconds.
"""
