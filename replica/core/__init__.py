"""The replica without its shells: what a node does, over a small storage interface.

Time and chance come in as arguments; a whole fleet runs in one process, in virtual time.
"""
