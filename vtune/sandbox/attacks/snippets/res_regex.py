# MUST NOT: stay inside one regular expression
# CHECK: killed or timeout within soft+grace
# SOFT: 1
# LAYER: timer

import re

print(re.match(r"(\w+\s?)*$", "word " * 12 + "!" * 3 + "word " * 8))
print(re.match(r"(x+x+)+y", "x" * 60))
