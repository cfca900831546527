"""The replica without its shells: what a node does, over a small storage interface, with time and chance as arguments."""
