"""One module a command of the enginebook program."""
