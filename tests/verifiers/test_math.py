import pytest
from math_verify import parse, verify

from tests.verifiers.cases import sample, wrap
from vtune.errors import DataError
from vtune.verifiers import check_ground_truth
from vtune.verifiers.math import LONGEST, in_latex, looks_slow, parsed, verify_math


@pytest.mark.parametrize(
    ("answer", "gold", "score"),
    [
        pytest.param("7", "\\boxed{7}", 1.0, id="boxed truth"),
        pytest.param("\\boxed{7}", "7", 1.0, id="boxed answer"),
        pytest.param("$7$.", "7", 1.0, id="dollars and a period"),
        pytest.param("7.0", "7", 1.0, id="decimals"),
        pytest.param("0.5", "\\frac{1}{2}", 1.0, id="fraction"),
        pytest.param("1/2", "0.5", 1.0, id="slash"),
        pytest.param("x=7", "7", 1.0, id="equation"),
        pytest.param("1,000", "1000", 1.0, id="thousands"),
        pytest.param("2\\sqrt{3}", "\\sqrt{12}", 1.0, id="same value, other form"),
        pytest.param("8", "7", 0.0, id="wrong"),
        pytest.param("6 or 7", "7", 0.0, id="hedging with or"),
        pytest.param("\\boxed{6} \\boxed{7}", "7", 0.0, id="two boxes"),
        pytest.param("\\boxed{7} or 8", "7", 0.0, id="a box beside another value"),
        pytest.param("7} or {8", "7", 0.0, id="braces that would end the box early"),
        pytest.param("$\\boxed{7}$", "7", 1.0, id="box in dollars"),
        pytest.param("\\[ \\boxed{7} \\]", "7", 1.0, id="box in a display"),
        pytest.param("7 \\text{ or 8}", "7", 0.0, id="hedging in words that math-verify drops"),
        pytest.param("x = \\boxed{7}", "7", 1.0, id="box in an equation"),
        pytest.param("\\boxed{7\\text{ cm}}", "7", 1.0, id="unit in a box"),
        pytest.param("\\boxed{2, 1}", "\\{1, 2\\}", 1.0, id="set in a box"),
        pytest.param("60°", "60^\\circ", 1.0, id="the sign of degrees"),
        pytest.param("60\\degree", "60°", 1.0, id="degrees by name"),
        pytest.param("$60^{\\degree}$", "60^\\circ", 1.0, id="degrees by name, raised"),
        pytest.param("\\frac{60\\degree}{2}", "30\\textdegree", 1.0, id="degrees by name in a fraction"),
        pytest.param("14 sqrt(3)", "14\\sqrt{3}", 1.0, id="a root by name after a space"),
        pytest.param("2sqrt3", "2\\sqrt{3}", 1.0, id="a root by name of a number"),
        pytest.param("cos(theta)", "\\cos\\theta", 1.0, id="names without backslashes"),
        pytest.param("2cos(3θ)", "2 \\cos 3\\theta", 1.0, id="a function by name of a Greek letter"),
        pytest.param("y = -1/2 x + 3", "y=-\\frac{1}{2}x+3", 1.0, id="a fraction before a letter"),
        pytest.param("3/4 π", "\\frac{3\\pi}{4}", 1.0, id="a fraction before pi"),
        pytest.param("3/2x", "\\frac{3}{2x}", 1.0, id="a fraction without a space, as math-verify reads it"),
        pytest.param("1/2 cm", "0.5 cm", 1.0, id="a fraction before a unit"),
        pytest.param("ln 2", "\\ln 2", 1.0, id="a logarithm by name"),
        pytest.param("sin(2)", "\\cos 2", 0.0, id="another function by name"),
        pytest.param("60º", "60", 1.0, id="an ordinal's sign for degrees"),
        pytest.param("60˚", "60°", 1.0, id="a ring for degrees"),
        pytest.param("61\\degree", "60\\degree", 0.0, id="other degrees"),
        pytest.param("$60°$", "60", 1.0, id="degrees in dollars"),
        pytest.param("60", "60°", 1.0, id="degrees in the truth alone"),
        pytest.param("45°30'", "75", 0.0, id="minutes are not added to degrees"),
        pytest.param("2^{60°}", "2^{60}", 0.0, id="degrees within an expression"),
        pytest.param("12。", "12", 1.0, id="a full stop of another script"),
        pytest.param("**12**", "12", 1.0, id="bold"),
        pytest.param("**\\boxed{12}.**", "12", 1.0, id="a box in bold"),
        pytest.param("**6** or **7**", "7", 0.0, id="hedging in bold"),
        pytest.param("2**3", "6", 0.0, id="two stars alone are no bold"),
        pytest.param("√2", "\\sqrt{2}", 1.0, id="the sign of a root"),
        pytest.param("2√3/3", "\\frac{2\\sqrt{3}}{3}", 1.0, id="a root in a product"),
        pytest.param("√(12)", "2√3", 1.0, id="a root of brackets, and one in the truth"),
        pytest.param("√2", "\\sqrt{3}", 0.0, id="another root"),
        pytest.param("√2.", "\\sqrt{2}", 1.0, id="a root before a full stop"),
        pytest.param("1.5×10³", "1500", 1.0, id="a raised digit"),
        pytest.param("10⁻²", "0.01", 1.0, id="a raised minus"),
        pytest.param("9⁹⁹⁹", "9", 0.0, id="a power too large to be an answer"),
        pytest.param("∞", "\\infty", 1.0, id="infinity"),
        pytest.param("–5", "-5", 1.0, id="a dash for a minus"),
        pytest.param("x = –5", "-5", 1.0, id="a dash behind an equals sign"),
        pytest.param("[–5, –3]", "[-5,-3]", 1.0, id="dashes in an interval"),
        pytest.param("5–7", "-2", 0.0, id="a range"),
        pytest.param("(5–7)", "-2", 0.0, id="a range in brackets"),
        pytest.param("10¹²", "1000000000000", 1.0, id="two raised digits"),
        pytest.param("½", "0.5", 1.0, id="the sign of a half"),
        pytest.param("-2½", "-2.5", 1.0, id="a mixed number"),
        pytest.param("⅓π", "\\frac{\\pi}{3}", 1.0, id="a third of something"),
        pytest.param("⅔", "\\frac{3}{2}", 0.0, id="another fraction"),
        pytest.param("１２", "12", 1.0, id="full-width digits"),
        pytest.param("5 1/2", "5.5", 1.0, id="a mixed number"),
        pytest.param("-5 1/2", "-5.5", 1.0, id="a mixed number below zero"),
        pytest.param("5 1/2 inches", "\\frac{11}{2}", 1.0, id="a mixed number with its unit"),
        pytest.param("5 1/2", "3", 0.0, id="what math-verify takes a mixed number for"),
        pytest.param("3", "5 1/2", 0.0, id="the same of the truth"),
        pytest.param("1, 5 1/2", "\\{1, 5.5\\}", 1.0, id="a mixed number in a list"),
        pytest.param("10 000", "10000", 1.0, id="spaces between thousands"),
        pytest.param("€10 000", "10000", 1.0, id="spaces between thousands of a currency"),
        pytest.param("１０ ０００", "10000", 1.0, id="spaces between thousands of full width"),
        pytest.param(r"2 \times 10 000", "20000", 1.0, id="spaces between thousands behind a sign"),
        pytest.param("0", r"2 \times 10 000", 0.0, id="what math-verify takes such for"),
        pytest.param("1:10 000", "1/10000", 1.0, id="spaces between thousands of a scale"),
        pytest.param("1 234.5", "1234.5", 1.0, id="spaces between thousands before decimals"),
        pytest.param("\\$1\\,234\\,567", "1234567", 1.0, id="thin spaces between thousands"),
        pytest.param("0", "10 000", 0.0, id="what math-verify takes spaced thousands for"),
        pytest.param("(1 234, 5)", "(1234, 5)", 1.0, id="spaces between thousands in a pair"),
        pytest.param("3 4", "7", 0.0, id="two numbers are no sum"),
        pytest.param("2 1.5", "3", 0.0, id="two numbers are no product"),
        pytest.param("x = 3 \\quad 4", "7", 0.0, id="two numbers far apart"),
        pytest.param("\\frac 1 2", "0.5", 1.0, id="arguments of a command"),
        pytest.param("2 \\frac 1 2", "2.5", 1.0, id="a mixed number in LaTeX"),
        pytest.param("1e3", "1000", 1.0, id="a power of ten as programs write it"),
        pytest.param("3.0E+08", "3\\times 10^8", 1.0, id="the same with a plus"),
        pytest.param("0.00001", "1e-05", 1.0, id="a power of ten in the truth"),
        pytest.param("e-5", "1e-05", 0.0, id="what math-verify takes a power of ten for"),
        pytest.param("1/1e3", "0.001", 1.0, id="a power of ten below a bar"),
        pytest.param("-3+2e", "2e-3", 1.0, id="Euler's number, less a number"),
        pytest.param("1e999999999", "1", 0.0, id="a power of ten that is too large"),
        pytest.param("2pi", "2\\pi", 1.0, id="pi in letters"),
        pytest.param("（1，2）", "(1, 2)", 1.0, id="brackets and a comma of full width"),
        pytest.param("1，234", "1234", 0.0, id="a comma of full width parts no thousands"),
        pytest.param("x＝－5", "-5", 1.0, id="signs of full width"),
        pytest.param("50％", "0.5", 1.0, id="a sign of percent of full width"),
        pytest.param("2·4", "8", 1.0, id="a dot for a product"),
        pytest.param("x ⩾ 5", "x \\ge 5", 1.0, id="a slanted sign"),
        pytest.param("-4 °C", "-4", 1.0, id="degrees of temperature"),
        pytest.param("€1,234", "1234", 1.0, id="a currency that is no dollar"),
        pytest.param("5 or €6", "5", 0.0, id="hedging in two currencies"),
        pytest.param("The answer is 7", "7", 0.0, id="prose is not searched"),
        pytest.param("not 7", "7", 0.0, id="taken back"),
        pytest.param("7" * LONGEST, "7", 0.0, id="too long to read"),
        pytest.param("1/2 3/4", "\\frac{4}{11}", 0.0, id="what math-verify takes two fractions for"),
    ],
)
def test_math_answers_are_scored(answer: str, gold: str, score: float) -> None:
    assert verify_math(wrap(answer), sample("math", gold)).score == score


@pytest.mark.parametrize("gold", ["", "seven apples", "\\boxed{}", "}{"])
def test_a_ground_truth_that_is_not_an_expression_is_an_error(gold: str) -> None:
    with pytest.raises(DataError):
        check_ground_truth(sample("math", gold))


@pytest.mark.parametrize("gold", ["7 \\text{ apples}", "\\sin(x)", "3 cm", "\\{1, 2\\}", "x^2+1"])
def test_units_functions_and_sets_are_expressions(gold: str) -> None:
    check_ground_truth(sample("math", gold))


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        pytest.param("So it is \\boxed{7}.", 1.0, id="in prose"),
        pytest.param("\\boxed{7}, as \\boxed{ 7 } shows", 1.0, id="the same twice"),
        pytest.param("\\boxed{6} or \\boxed{7}", 0.0, id="two that differ"),
        pytest.param("<think>\\boxed{6}?</think> \\boxed{7}", 1.0, id="thoughts are not read"),
        pytest.param("7", 0.0, id="not boxed"),
        pytest.param("<answer>7</answer>", 0.0, id="in other tags"),
        pytest.param("\\boxed{7", 0.0, id="not closed"),
    ],
)
def test_an_answer_may_be_requested_in_a_box(reply: str, score: float) -> None:
    assert verify_math(reply, sample("math", "\\boxed{7}", parm={"answer_in": "boxed"})).score == score


def test_case_is_ignored() -> None:
    """V-Triune's published server lower-cases both sides first."""
    assert verify_math(wrap("2X"), sample("math", "2x")).score == 1.0


@pytest.mark.parametrize(
    "text", ["7", "-7", "007", "0", "-0", "-00012", "123456789012345", "1234567890123456"]
)
def test_integers_are_read_like_in_math_verify(text: str) -> None:
    (number,) = parsed(text)
    (read,) = parse(f"${text}$")[:1]
    assert type(number) is type(read)
    assert number == read
    assert verify([number], [read])


@pytest.mark.parametrize("text", ["√1,000", "√x²"])
def test_a_root_with_an_unclear_end_is_left_unchanged(text: str) -> None:
    assert "sqrt" not in in_latex(text)


def test_an_exponent_of_any_length_is_not_an_error() -> None:
    reply = wrap("1e" + "9" * 10_000)
    assert not looks_slow(reply, sample("math", "1"))
    assert verify_math(reply, sample("math", "1")).parts["unreadable"] == 1.0


@pytest.mark.parametrize("text", ["1,000½", "2.5½"])
def test_a_mixed_fraction_with_an_unclear_whole_number_is_left_unchanged(text: str) -> None:
    assert in_latex(text) == text


@pytest.mark.parametrize(
    ("answer", "gold", "score"),
    [
        pytest.param("45 m", "45 cm", 0.0, id="another length"),
        pytest.param("45\\text{ m}", "$45\\,\\mathrm{cm}$", 0.0, id="in commands"),
        pytest.param("x = 45m.", "45cm", 0.0, id="without a space, of an unknown"),
        pytest.param("25\\text{ cm}^2", "25\\text{ cm}", 0.0, id="an area for a length"),
        pytest.param("45 square meters", "45 square feet", 0.0, id="another area"),
        pytest.param("90\\text{ km/h}", "90\\text{ m/s}", 0.0, id="another speed"),
        pytest.param("45 min", "45 s", 0.0, id="another time"),
        pytest.param("3 pm", "3 am", 0.0, id="another half of the day"),
        pytest.param("45°F", "45 °C", 0.0, id="another scale"),
        pytest.param("60 cm", "60°", 0.0, id="a length for an angle"),
        pytest.param("€45", "\\$45", 0.0, id="another currency"),
        pytest.param("$45", "45 cents", 0.0, id="cents for dollars"),
        pytest.param("45", "45 cm", 1.0, id="no unit in the answer"),
        pytest.param("45 km", "45", 1.0, id="none in the truth"),
        pytest.param("45 minutes", "45\\text{ min}", 1.0, id="another spelling"),
        pytest.param("12\\text{ centimeters}", "12 cm", 1.0, id="another spelling in a command"),
        pytest.param("90\\text{ km/h}", "90\\text{ kmh}", 1.0, id="another spelling of a speed"),
        pytest.param("45 degrees", "45 °C", 1.0, id="degrees of no scale"),
        pytest.param("\\$45", "$45", 1.0, id="the same currency"),
        pytest.param("$45$", "\\text{€}45", 1.0, id="dollars around mathematics are no currency"),
        pytest.param("7\\text{ pieces}", "7\\text{ apples}", 1.0, id="words that are no units"),
        pytest.param("12\\text{ square units}", "12\\text{ cm}^2", 1.0, id="a unit of no name"),
        pytest.param("45%", "0.45", 1.0, id="percent"),
        pytest.param("3ma + 2mv", "2mv + 3ma", 1.0, id="letters that could be units"),
        pytest.param("9.8\\text{ m/s}^2", "9.8\\text{ ms}^{-2}", 1.0, id="a product with a negative power"),
        pytest.param("60\\text{ kmh}^{-1}", "60\\text{ km/h}", 1.0, id="a speed with a negative power"),
        pytest.param("50\\text{ s}^{-1}", "50\\text{ Hz}", 1.0, id="per second"),
        pytest.param("50\\text{ mL}", "50\\text{ cm}^3", 1.0, id="another name of a volume"),
        pytest.param("2\\text{ g/cm}^3", "2\\text{ g/mL}", 1.0, id="another name of a density"),
        pytest.param("2\\text{ kg/L}", "2\\text{ g/mL}", 1.0, id="a density in larger parts"),
        pytest.param("2\\text{ mol/dm}^3", "2\\text{ mol/L}", 1.0, id="a part of another name"),
        pytest.param("2\\text{ mL/s}", "2\\text{ cm}^3/\\text{s}", 1.0, id="a flow"),
        pytest.param("2\\text{ N/C}", "2\\text{ V/m}", 1.0, id="another name of a field"),
        pytest.param("2\\text{ N/m}^2", "2\\text{ Pa}", 1.0, id="another name of a pressure"),
        pytest.param("0.5\\text{ M}", "0.5\\text{ mol/L}", 1.0, id="molar"),
        pytest.param("5\\text{ Nm}", "5\\text{ J}", 1.0, id="newton metres"),
        pytest.param("50\\text{c}", "50\\text{ cents}", 1.0, id="cents in short"),
        pytest.param("5\\text{ dollars per hour}", "\\$5 per hour", 1.0, id="a wage"),
        pytest.param("5\\%\\text{ per year}", "5\\%", 1.0, id="a growth"),
        pytest.param("2\\text{ g/cm}^3", "2\\text{ g/L}", 0.0, id="another density"),
        pytest.param("45 KG", "45\\text{ g}", 0.0, id="in capitals"),
    ],
)
def test_a_value_with_another_unit_is_wrong(answer: str, gold: str, score: float) -> None:
    """math-verify drops units and so treats 45 m as 45 cm; an answer need not name a unit."""
    assert verify_math(wrap(answer), sample("math", gold)).score == score


@pytest.mark.parametrize(
    ("answer", "score", "unreadable"),
    [
        pytest.param("The answer is 3.", 0.0, 1.0, id="a sentence"),
        pytest.param("It is 3", 0.0, 1.0, id="a short one"),
        pytest.param("**Answer:** 3", 0.0, 1.0, id="a heading"),
        pytest.param("three", 0.0, 1.0, id="a word"),
        pytest.param("3 apples", 1.0, 0.0, id="what is counted"),
        pytest.param("4 apples", 0.0, 0.0, id="another number of it"),
        pytest.param("area = 3", 1.0, 0.0, id="a name"),
        pytest.param("area = 4", 0.0, 0.0, id="a name, and another value"),
        pytest.param("log 3", 0.0, 0.0, id="a function"),
        pytest.param("AB + 3", 0.0, 0.0, id="letters"),
        pytest.param("abc \\cdot 3", 0.0, 0.0, id="more letters"),
        *(
            pytest.param(text, 0.0, 1.0, id=text)
            for text in ("It's 4", "It\u2019s 4", "I think 4", "x is 4", "about 4", "Area: 4", "**Total** 4")
        ),
    ],
)
def test_an_answer_that_begins_with_words_is_unreadable(answer: str, score: float, unreadable: float) -> None:
    """math-verify reads them as a product of letters, so they used to look like wrong values."""
    verdict = verify_math(wrap(answer), sample("math", "3"))
    assert (verdict.score, verdict.parts["unreadable"]) == (score, unreadable)


@pytest.mark.parametrize(
    ("truth", "answer"),
    [
        ("\\arctan(3)", "arctan(2)"),
        ("\\theta/3", "theta/2"),
        ("\\infty", "-infinity"),
        ("\\cot(x)", "sec(x)"),
        *(
            ("7", text)
            for text in ("max(2,3)", "min(2,3)", "det(A)", "alpha", "2 theta", "sin alpha", "Sin(x)")
        ),
        *(("7", text) for text in ("\\alpha\\beta", "\\operatorname{lcm}(2,3)", "cosh x", "ln 3", "log_2 9")),
    ],
)
def test_function_names_and_letters_do_not_count_as_words(truth: str, answer: str) -> None:
    verdict = verify_math(wrap(answer), sample("math", truth))
    assert (verdict.score, verdict.parts["unreadable"]) == (0.0, 0.0)
