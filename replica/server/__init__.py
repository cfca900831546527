"""A replica as a process: gRPC services, peer tasks and timers over the core (DESIGN 2, 5, 8 and 10).

A shell decides nothing about meaning. The rooms, from the outside in:

==============================================  ======================================================
:mod:`replica.server.serve`                     from a configuration to an exit code
:mod:`replica.server.replica`                   a whole replica, put together and taken apart in order
:mod:`replica.server.listener`, ``guard``       a gRPC server, and what stands around every call
``memory_service``, ``admin_service``,          requests to commands, results to responses
``replication_service``
``peers``, ``pulling``, ``stream``, ``fleet``   the streams: when, whence, how driven, what they share
``asking``, ``healing``                         what peers are asked beside the streams
``compaction``, ``housekeeping``                what is done from time to time
``status``                                      what an operator sees of it all
``peer_book``                                   what is known of each peer
:mod:`replica.server.runtime`                   the store, who this replica is, how reads and writes run
==============================================  ======================================================
"""
