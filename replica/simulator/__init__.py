"""A whole fleet in one process, in virtual time, under a seed, and the oracle that judges it (section 11).

A run is a pure function of its seed: every write, message, fault and clock comes from it, so a failing seed
replays exactly.
"""
