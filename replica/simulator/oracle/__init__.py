"""The judge of a simulated fleet: it knows which write had seen which, and shares no code with the replica.

`graph` says, each in one sentence, what follows from the graph of the writes on one key; `edit` what a write
puts into its record; `read` what a reader sees; `fleet` keeps who has seen what and says what each call must
answer and each read must show; `excuse` holds the few differences that lapsed members and lost data allow.
Rests on design section 11, on decision 0002 and on the standard library alone.

Payloads that cannot be decoded are outside its world, and so are refusals that depend on more than the entry
(`create_only`, `if_version`, limits, clock skew): a call refused for one of those is not reported to it.
"""

from .excuse import Evidence, excused
from .fleet import Answer, Contradiction, Oracle, Seen
from .graph import Dot
from .read import Expected

__all__ = ["Answer", "Contradiction", "Dot", "Evidence", "Expected", "Oracle", "Seen", "excused"]
