"""dsh: an AI coding agent for the terminal and for CI. Everything in it is a plugin."""

__version__ = "0.1.0"
