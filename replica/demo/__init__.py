"""The demo, `python -m replica.demo`: three replicas on this machine, and a tour of what they do.

The replicas are processes of `ricordo serve`, the links between them can be cut, and what is shown is the
command line itself. Every step checks what it tells; the demo fails when something does not hold.
"""
