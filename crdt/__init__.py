"""Replicated memory as pure values: dots, clocks, registers, records, and their joins.

No I/O, no clock, no randomness: every time is an argument. The rooms, from the bottom up:

======================  ==============================================================
:mod:`crdt.dot`         the names of writes
:mod:`crdt.clock`       sets of dots
:mod:`crdt.register`    siblings at a key and their join
:mod:`crdt.expiry`      what lives at a given time
:mod:`crdt.record`      the causal record inside a payload, its edits and its join
:mod:`crdt.codec`       the encodings of all of these
:mod:`crdt.fold`        the one record a reader sees
:mod:`crdt.write`       what a local write makes of a register
:mod:`crdt.key`         the keys of entries
======================  ==============================================================
"""
