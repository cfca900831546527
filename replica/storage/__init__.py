"""The stores a replica can run on (in memory, LMDB), and group commit over either.

Import what you need from its own module; the in-memory store does without LMDB.
"""
