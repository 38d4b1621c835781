"""Random programs that look, or pretend to, for testing an evidence reward.

`Program` is a genome; `written` turns it into source text for one puzzle and reports where the target is in
each picture that it saves; `random_program`, `mutated` and `crossed` create new ones.
"""

from vtune.sandbox.attacks.programs.breeding import crossed, mutated, random_program
from vtune.sandbox.attacks.programs.genome import Program, Shot, Step, from_record, record_of
from vtune.sandbox.attacks.programs.writing import Picture, Written, written

__all__ = [
    "Picture",
    "Program",
    "Shot",
    "Step",
    "Written",
    "crossed",
    "from_record",
    "mutated",
    "random_program",
    "record_of",
    "written",
]
