"""Heads for Depth: does raising the head count pay for removing layers?"""

__version__ = "0.1.0"
