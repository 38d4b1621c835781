"""The unit at the end of an answer. math-verify drops units, so to it 45 m equals 45 cm."""

import re

from vtune.verifiers.typesetting import said_by

_SPELLINGS = """
nm: nanometer nanometers nanometre nanometres
µm: um μm micrometer micrometers micrometre micrometres micron microns
mm: millimeter millimeters millimetre millimetres
cm: cms centimeter centimeters centimetre centimetres
dm: decimeter decimeters decimetre decimetres
m: mtr meter meters metre metres
km: kms kilometer kilometers kilometre kilometres
in: inch inches
ft: foot feet
yd: yard yards
mi: mile miles
mg: milligram milligrams
g: gm gms gram grams
kg: kgs kilogram kilograms kilo kilos
t: ton tons tonne tonnes
lb: lbs
oz: ounce ounces
ml: cc milliliter milliliters millilitre millilitres
cl: centiliter centiliters centilitre centilitres
l: lt liter liters litre litres
gal: gallon gallons
ha: hectare hectares
acre: acres
ms: msec millisecond milliseconds
s: sec secs second seconds
min: mins minute minutes
h: hr hrs hour hours
d: day days
week: weeks
month: months
yr: yrs year years
am: a.m
pm: p.m
mph:
kmh: kmph kph
n: newton newtons
kn: kilonewton kilonewtons
j: joule joules
kj: kilojoule kilojoules
w: watt watts
kw: kilowatt kilowatts
v: volt volts
mv: millivolt millivolts
kv: kilovolt kilovolts
a: amp amps ampere amperes
ma: milliamp milliamps
ohm: ohms Ω
hz: hertz
khz: kilohertz
pa: pascal pascals
kpa: kilopascal kilopascals
mol: mole moles
°: deg degree degrees
°c: c
°f: f
%: percent pct percentage
$: dollar dollars usd
€: euro euros eur
£: gbp
₹: rs rupee rupees inr
¥: yen yuan
¢: cent cents
"""
"""A unit and its other spellings, regardless of case. Pound, a weight or money, is left out."""

_NAMES = {
    spelling.casefold(): one
    for line in _SPELLINGS.split("\n")
    if line
    for one, _, more in [line.partition(":")]
    for spelling in (one, *more.split())
}
_SIMPLE = rf"""(?:(square|sq\.?|cubic|cu\.?)\s*)?
    ({"|".join(sorted(map(re.escape, _NAMES), key=len, reverse=True))})
    (?:\s*\^\s*\{{?(-?[0-9])\}}?)?"""
_AT_END = re.compile(
    rf"(?<=[0-9)}}\s]){_SIMPLE}(?:\s*(?:/|per\b)\s*{_SIMPLE})?\Z", re.VERBOSE | re.IGNORECASE
)
_RAISED = str.maketrans({"²": "^2", "³": "^3", "℃": "°C", "℉": "°F"})
_SPACE = re.compile(r"(?:\\[ ,:;!]|~|\s)+")
"""Collapses runs of spaces: patterns with several optional spaces take cubic time on a long run."""
_DEGREE = re.compile(r"\s*\^?\s*\{?\s*\\(?:circ|degree)(?![A-Za-z])\s*\}?")
_LETTER = re.compile(r"(?<![\\A-Za-z])[A-Za-z]")
_MONEY = re.compile(r"[^$€£₹¥0-9]*(\\\$|[$€£₹¥])")

Unit = tuple[tuple[str, int], ...]
"""Names with their powers: first the numerator, then the denominator."""

_SAME: dict[Unit, Unit] = {
    (("cm", 3),): (("ml", 1),),
    (("dm", 3),): (("l", 1),),
    (("km", 1), ("h", 1)): (("kmh", 1),),
    (("mi", 1), ("h", 1)): (("mph", 1),),
    (("kg", 1), ("l", 1)): (("g", 1), ("ml", 1)),
    (("kg", 1), ("m", 3)): (("g", 1), ("l", 1)),
    (("mg", 1), ("l", 1)): (("g", 1), ("m", 3)),
    (("n", 1), ("m", 2)): (("pa", 1),),
    (("j", 1), ("s", 1)): (("w", 1),),
    (("v", 1), ("m", 1)): (("n", 1), ("°c", 1)),  # a volt per metre is a newton per coulomb
}
"""Units exactly equal to others: first single parts, then quotients of such parts."""
_UNCLEAR = {"M", "Mg", "Nm", "NM", "c"}
"""Ambiguous: metres or molar, milligrams or tonnes, nanometres or newton metres, degrees or cents."""
_RATES = "%$€£₹¥¢"
"""What is often given per year, month or hour, and just as often without."""


def unit(text: str) -> Unit | None:
    """The unit at the end of an answer, or the currency at its beginning; None if neither is known."""
    money = _MONEY.match(text)
    # A single dollar sign is money, a pair delimits math.
    if money and (money[1] != "$" or text.count("$") % 2):
        return ((money[1].removeprefix("\\"), 1),)
    plain = _SPACE.sub(" ", said_by(text.translate(_RAISED)))
    value = _DEGREE.sub("°", plain).rstrip("$. ").rpartition("=")[2]
    found = _AT_END.search(value)
    # If letters precede it, it may be one of them: 3ma + 2mv is 2mv + 3ma.
    if found is None or _LETTER.search(value[: found.start()]):
        return None
    power, name, raised, power_below, name_below, raised_below = found.groups()
    above = _part(name, _power(power, raised))
    # ms^{-1} means m/s, not 1/ms.
    if above[1] < 0 or found[0] in _UNCLEAR:
        return None
    if name_below is None or above[0] in _RATES:
        return (above,)
    below = _part(name_below, _power(power_below, raised_below))
    return _SAME.get((above, below), (above, below))


def contradict(one: str, other: str) -> bool:
    """Whether two answers end in different units. No unit fits any unit, plain degrees fit any scale."""
    units = unit(one), unit(other)
    if None in units or units[0] == units[1]:
        return False
    names = {found[0][0] for found in units if found is not None}
    return not ("°" in names and names <= {"°", "°c", "°f"})


def _part(name: str, power: int) -> tuple[str, int]:
    part = (_NAMES[name.casefold()], power)
    return _SAME.get((part,), (part,))[0]


def _power(word: str | None, raised: str | None) -> int:
    if raised is not None:
        return int(raised)
    return 1 if word is None else 2 if word.casefold().startswith("sq") else 3
