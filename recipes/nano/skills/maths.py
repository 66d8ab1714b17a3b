"""Arithmetic with small numbers, units and dates."""

# ruff: noqa: SIM905  word lists read better as text

from random import Random

from edgekit.recipes.nano.chat import Turn
from edgekit.recipes.nano.skills.base import draw, made

ASKS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}
WORDED = [
    ("I have {a} apples and get {b} more. How many apples do I have?", "+", "You have {v} apples."),
    ("There are {a} birds on a tree and {b} fly away. How many birds are left?", "-",
     "{v} birds are left."),
    ("A book has {a} pages and I read {b}. How many pages are left?", "-", "{v} pages are left."),
    ("Tom has {a} euros and earns {b} euros. How much does he have?", "+", "He has {v} euros."),
    ("A box holds {b} eggs. How many eggs are in {a} boxes?", "*", "There are {v} eggs."),
    ("There are {a} girls and {b} boys in a school. How many children is that?", "+",
     "There are {v} children."),
    ("I had {a} coins and lost {b}. How many coins do I have?", "-", "You have {v} coins."),
    ("One ticket costs {b} euros. What do {a} tickets cost?", "*", "They cost {v} euros."),
]  # fmt: skip
UNITS = [
    ("kilometers", "meters", 1000), ("meters", "centimeters", 100), ("feet", "inches", 12),
    ("centimeters", "millimeters", 10), ("kilograms", "grams", 1000), ("yards", "feet", 3),
    ("tons", "kilograms", 1000), ("liters", "milliliters", 1000), ("dozens", "pieces", 12),
    ("hours", "minutes", 60), ("minutes", "seconds", 60), ("days", "hours", 24),
    ("weeks", "days", 7), ("years", "months", 12), ("gigabytes", "megabytes", 1000),
    ("megabytes", "kilobytes", 1000), ("bytes", "bits", 8), ("euros", "cents", 100),
    ("centuries", "years", 100), ("decades", "years", 10),
]  # fmt: skip
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = (
    "January February March April May June July August September October November December".split()
)
LENGTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]


def _columns(a: int, b: int) -> str:
    """Column addition, ones first, with the digits so far: '7 + 5 = 12: 2, 4 + 8 + 1 = 13: 32'."""
    steps: list[str] = []
    carry, x, y, digits = 0, a, b, ""
    while x or y or not steps:
        total = x % 10 + y % 10 + carry
        extra = f" + {carry}" if carry else ""
        digits = f"{total % 10}{digits}" if x > 9 or y > 9 else f"{total}{digits}"
        steps.append(f"{x % 10} + {y % 10}{extra} = {total}: {digits}")
        carry, x, y = total // 10, x // 10, y // 10
    return ", ".join(steps)


def _borrow(a: int, b: int) -> str:
    """Column subtraction for a >= b, ones first, with the digits so far."""
    steps: list[str] = []
    debt, x, y, digits = 0, a, b, ""
    while x or y or not steps:
        top, less = x % 10, y % 10 + debt
        debt = int(top < less)
        left = top + 10 * debt - less
        digits = f"{left}{digits}"
        steps.append(f"{top + 10 * debt} - {less} = {left}: {digits}")
        x, y = x // 10, y // 10
    return ", ".join(steps)


def solve(op: str, a: int, b: int) -> tuple[str, int]:
    """(working, result)."""
    if op == "+":
        return _columns(a, b), a + b
    if op == "-":
        return _borrow(max(a, b), min(a, b)), a - b
    if op == "/":
        return f"{b} * {a // b} = {a}", a // b
    whole, parts = sorted((a, b), key=lambda n: (n > 9 and n % 10 > 0, n))
    tens, ones = parts // 10 * 10, parts % 10
    if tens and ones:
        one, two = whole * tens, whole * ones
        return f"{whole} * {tens} = {one}, {whole} * {ones} = {two}, {one} + {two} = {a * b}", a * b
    return f"{a} * {b} = {a * b}", a * b


def _operands(rng: Random, op: str) -> tuple[str, int, int]:
    top = rng.choice([10, 20, 100, 100, 1000, 1000])
    if op in "+-":
        a, b = rng.randrange(top), rng.randrange(top)
        ordered = op == "+" or rng.random() < 0.15
        return (op, a, b) if ordered else (op, max(a, b), min(a, b))
    a, b = rng.randrange(1, 13), rng.choice([rng.randrange(1, 13), rng.randrange(10, 100)])
    if op == "/":
        return op, a * rng.randrange(1, 13), a
    return (op, a, b) if rng.random() < 0.5 else (op, b, a)


def _worked(op: str, a: int, b: int) -> tuple[str, str, str]:
    """(thought, answer, key). A long sum is worked out in the answer, with thinking or without."""
    working, value = solve(op, a, b)
    result = f"{a} {op} {b} = {value}."
    if (op in "+-" and max(a, b) > 99) or (op == "*" and "," in working):
        how = "in two parts" if op == "*" else "digit by digit"
        return f"I work out {a} {op} {b} {how}.", f"{working}. So {result}", result
    return f"{working}. So {value}.", result, result


def arithmetic(rng: Random, held: bool) -> list[Turn]:
    """One sum, sometimes a second one that uses the first result."""
    if rng.random() < 0.06:
        a, b, c = draw(rng, lambda: tuple(rng.sample(range(1, 30), 3)), held)
        total = f"{a + b} + {c} = {a + b + c}."
        return [made(rng, held, "arithmetic", "add three", f"{a} + {b} = {a + b}, {total}",
                     f"I add {a}, {b} and {c}.", total, a=a, b=b, c=c)]  # fmt: skip
    op = rng.choice("+++---***//")
    _, a, b = draw(rng, lambda: _operands(rng, op), held)
    if rng.random() < 0.12 and not held and op != "/":
        told, op, answer = rng.choice(WORDED)
        _, a, b = draw(rng, lambda: _operands(rng, op), held)
        a, b = (max(a, b), min(a, b)) if op == "-" else (a, b)
        working, value = solve(op, a, b)
        return [made(rng, held, "arithmetic", {"ask": [told]}, f"{working}. {answer}",
                     f"I need {a} {op} {b}.", answer, a=a, b=b, v=value)]  # fmt: skip
    thought, answer, key = _worked(op, a, b)
    turns = [made(rng, held, "arithmetic", ASKS[op], answer, thought, key, a=a, b=b)]
    value = solve(op, a, b)[1]
    if rng.random() < 0.1 and 0 <= value < 900:
        n = rng.randrange(1, 20)
        thought, answer, key = _worked("+", value, n)
        turns.append(made(rng, held, "arithmetic", "add more", answer, thought, key, n=n))
    return turns


def numbers(rng: Random, held: bool) -> list[Turn]:
    """Comparing, counting, parity, doubling."""
    a, b = draw(rng, lambda: tuple(rng.sample(range(1, rng.choice([20, 100, 1000])), 2)), held)
    n = a % 100
    step, start = b % 9 + 1, a % 30
    shown = ", ".join(str(start + i * step) for i in range(4))
    value = start + 4 * step
    word = "odd" if a % 2 else "even"
    counted = ", ".join(str(i) for i in range(1, a % 15 + 4))
    asks, answer, thought, key = [
        ("larger", f"{max(a, b)} is larger.", "I compare {a} and {b}.", f"{max(a, b)} is"),
        ("smaller", f"{min(a, b)} is smaller.", "I compare {a} and {b}.", f"{min(a, b)} is"),
        ("parity", f"{{a}} is {word}.", f"The last digit is {a % 10}.", f"is {word}"),
        ("double", f"Twice {{n}} is {2 * n}.", f"{{n}} + {{n}} = {2 * n}.", f"is {2 * n}."),
        ("count to", f"{counted}.", "I count from 1 to {n}.", counted),
        ("next number", f"The next number is {value}.", f"The step is {step}.", f"is {value}."),
    ][kind := rng.randrange(6)]  # fmt: skip
    n = a % 15 + 3 if kind == 4 else n
    return [made(rng, held, "number", asks, answer, thought, key, a=a, b=b, n=n, s=shown)]


def units(rng: Random, held: bool) -> list[Turn]:
    """Unit conversion with whole numbers."""
    if rng.random() < 0.1 and not held:
        celsius = 5 * rng.randrange(-2, 21)
        value = celsius * 9 // 5 + 32
        thought = f"{celsius} * 9 / 5 = {value - 32}, and {value - 32} + 32 = {value}."
        answer = f"{{c}} degrees Celsius are {value} degrees Fahrenheit."
        return [made(rng, held, "unit", "fahrenheit", answer, thought, f"are {value}", c=celsius)]
    (source, target, factor), n = draw(rng, lambda: (rng.choice(UNITS), rng.randrange(1, 31)), held)
    working = ""
    if factor in (10, 100, 1000) and rng.random() < 0.25:
        source, target, n, result = target, source, n * factor, n
        thought = f"The factor is {factor}. {n} / {factor} = {result}."
    else:
        working, result = solve("*", n, factor)
        thought = f"The factor is {factor}. {n} * {factor} = {result}."
    answer = key = f"{n} {source} are {result} {target}."
    if factor not in (10, 100, 1000):
        thought, answer = f"The factor is {factor}.", f"{n} * {factor}: {working}. So {key}"
    return [made(rng, held, "unit", "convert", answer, thought, key, n=n, f=source, t=target)]


def dates(rng: Random, held: bool) -> list[Turn]:
    """Weekdays, months and years."""
    kind = rng.randrange(6)
    i, n = draw(rng, lambda: (rng.randrange(7), rng.randrange(1, 15)), held)
    month, year = rng.randrange(12), rng.randrange(1960, 2060)
    after, before = DAYS[(i + 1) % 7], DAYS[(i - 1) % 7]
    later, following = DAYS[(i + n) % 7], MONTHS[(month + 1) % 12]
    path = ", ".join(f"{k} {DAYS[(i + k) % 7]}" for k in range(1, n + 1))
    leap = "" if year % 4 == 0 else "not "
    verdict = "No" if leap else "Yes"
    length = f"{{m}} has {LENGTHS[month]} days" + (", or 29 in a leap year." if month == 1 else ".")
    asks, answer, thought, key = [
        ("day after", f"The day after {{d}} is {after}.", f"After {{d}} comes {after}.",
        f"is {after}"),
        ("day before", f"The day before {{d}} is {before}.", f"Before {{d}} comes {before}.",
         f"is {before}"),
        ("days later", f"{{n}} days after {{d}}: {path}. It is {later}.",
         "I count {n} days from {d}.", f"It is {later}."),
        ("month days", length, "The user asks for the length of {m}.", str(LENGTHS[month])),
        ("next month", f"{following} comes after {{m}}.", f"After {{m}} comes {following}.",
        following),
        ("leap", f"{verdict}, {{y}} is {leap}a leap year.",
         f"{year % 100} divided by 4 leaves {year % 4}.", verdict),
    ][kind]  # fmt: skip
    return [made(rng, held, "date", asks, answer, thought, key, d=DAYS[i], n=n, m=MONTHS[month],
                 y=year)]  # fmt: skip
