# MUST NOT: raise exceptions nested and chained beyond every depth
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: protocol


group = ValueError("core")
for _ in range(20_000):
    group = ExceptionGroup("nest", [group])
last = None
for number in range(50_000):
    error = ValueError(number)
    error.__context__ = error.__cause__ = last
    last = error
first = ValueError("circle")
second = ValueError("circle")
first.__cause__, second.__cause__ = second, first
group.__cause__ = last
last.__notes__ = first
raise group
