"""Arithmetic with small numbers, units and dates."""

# ruff: noqa: SIM905  word lists read better as text

from random import Random

from edgekit.recipes.nano.chat import Turn
from edgekit.recipes.nano.skills.base import draw, phrase

ADD = ["What is {a} + {b}?", "{a} + {b}", "What is {a} plus {b}?", "Add {a} and {b}.",
       "Calculate {a} + {b}.",
       "How much is {a} plus {b}?", "{a}+{b}=?", "What is the sum of {a} and {b}?", "{a} plus {b}?",
       "Compute {a} + {b}.",
    "Work out {a} + {b}.", "Find {a} + {b}.", "Solve {a} + {b}.", "Can you add {a} and {b}?",
       "Tell me {a} + {b}.", "{a} and {b} together?", "I need {a} + {b}.",
       "What do you get for {a} + {b}?", "Sum: {a} + {b}", "Please calculate {a} plus {b}.",
       "Evaluate {a} + {b}.", "{a} + {b} is what?", "What is {a}+{b}", "How much is {a} + {b}?",
       "Give me {a} + {b}."]  # fmt: skip
SUB = ["What is {a} - {b}?", "{a} - {b}", "What is {a} minus {b}?", "Subtract {b} from {a}.",
       "Calculate {a} - {b}.", "How much is {a} minus {b}?", "{a}-{b}=?",
       "What is the difference between {a} and {b}?", "{a} minus {b}?",
       "Compute {a} - {b}.",
    "Work out {a} - {b}.", "Find {a} - {b}.", "Solve {a} - {b}.", "Take {b} away from {a}.",
       "Tell me {a} - {b}.", "What is left of {a} after {b}?", "I need {a} - {b}.",
       "What do you get for {a} - {b}?", "Please calculate {a} minus {b}.", "Evaluate {a} - {b}.",
       "{a} - {b} is what?", "What is {a}-{b}", "How much is {a} - {b}?",
       "Give me {a} - {b}."]  # fmt: skip
MUL = ["What is {a} * {b}?", "{a} * {b}", "What is {a} times {b}?", "Multiply {a} by {b}.",
       "Calculate {a} x {b}.", "How much is {a} times {b}?", "{a} x {b} = ?",
       "What is the product of {a} and {b}?", "{a} times {b}?", "Compute {a} * {b}.",
    "Work out {a} * {b}.", "Find {a} * {b}.", "Solve {a} x {b}.", "Can you multiply {a} and {b}?",
       "Tell me {a} * {b}.", "I need {a} times {b}.", "What do you get for {a} * {b}?",
       "Please calculate {a} times {b}.", "Evaluate {a} * {b}.", "{a} * {b} is what?",
       "What is {a}*{b}", "How much is {a} * {b}?", "Give me {a} * {b}.",
       "What is {a} x {b}?"]  # fmt: skip
DIV = ["What is {a} / {b}?", "{a} / {b}", "What is {a} divided by {b}?", "Divide {a} by {b}.",
       "Calculate {a} / {b}.", "How much is {a} divided by {b}?",
    "Work out {a} / {b}.", "Find {a} / {b}.", "Solve {a} / {b}.", "Share {a} between {b} people.",
       "Tell me {a} / {b}.", "I need {a} divided by {b}.", "Please calculate {a} divided by {b}.",
       "Evaluate {a} / {b}.", "How much is {a} / {b}?", "Give me {a} / {b}.",
       "What is {a}/{b}"]  # fmt: skip
WORDED = [
    ("I have {a} apples and get {b} more. How many apples do I have?", "+", "You have {v} apples."),
    ("There are {a} birds on a tree and {b} fly away. How many birds are left?", "-",
     "{v} birds are left."),
    ("A book has {a} pages and I read {b}. How many pages are left?", "-", "{v} pages are left."),
    ("Tom has {a} euros and earns {b} euros. How much does he have?", "+", "He has {v} euros."),
    ("A box holds {b} eggs. How many eggs are in {a} boxes?", "*", "There are {v} eggs."),
]  # fmt: skip
UNITS = [
    ("kilometers", "meters", 1000), ("meters", "centimeters", 100),
         ("centimeters", "millimeters", 10),
    ("kilograms", "grams", 1000), ("tons", "kilograms", 1000), ("liters", "milliliters", 1000),
    ("hours", "minutes", 60), ("minutes", "seconds", 60), ("days", "hours", 24),
         ("weeks", "days", 7),
    ("years", "months", 12), ("feet", "inches", 12), ("yards", "feet", 3), ("dozens", "pieces", 12),
    ("gigabytes", "megabytes", 1000), ("megabytes", "kilobytes", 1000), ("bytes", "bits", 8),
    ("euros", "cents", 100), ("centuries", "years", 100), ("decades", "years", 10),
]  # fmt: skip
CONVERT = ["How many {t} are in {n} {f}?", "Convert {n} {f} to {t}.", "What is {n} {f} in {t}?",
           "{n} {f} in {t}?", "How many {t} are {n} {f}?", "Change {n} {f} into {t}.",
           "How many {t} make {n} {f}?",
    "Express {n} {f} in {t}.", "Give me {n} {f} in {t}.", "How many {t} do {n} {f} have?",
           "I have {n} {f}. How many {t} is that?", "Turn {n} {f} into {t}.", "{n} {f} to {t}",
           "Please convert {n} {f} to {t}.", "Write {n} {f} in {t}."]  # fmt: skip
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = (
    "January February March April May June July August September October November December".split()
)
LENGTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]


def _columns(a: int, b: int) -> str:
    """Column addition, ones first: '7 + 5 = 12, 4 + 8 + 1 = 13'."""
    steps: list[str] = []
    carry, x, y = 0, a, b
    while x or y or not steps:
        total = x % 10 + y % 10 + carry
        extra = f" + {carry}" if carry else ""
        steps.append(f"{x % 10} + {y % 10}{extra} = {total}")
        carry, x, y = total // 10, x // 10, y // 10
    return ", ".join(steps)


def _borrow(a: int, b: int) -> str:
    """Column subtraction, ones first, for a >= b."""
    steps: list[str] = []
    debt, x, y = 0, a, b
    while x or y or not steps:
        top, less = x % 10, y % 10 + debt
        debt = int(top < less)
        steps.append(f"{top + 10 * debt} - {less} = {top + 10 * debt - less}")
        x, y = x // 10, y // 10
    return ", ".join(steps)


def solve(op: str, a: int, b: int) -> tuple[str, str]:
    """(working, result)."""
    if op == "+":
        return f"{a} + {b}: {_columns(a, b)}. So {a + b}.", str(a + b)
    if op == "-" and a < b:
        return f"{b} - {a}: {_borrow(b, a)}. So -{b - a}.", str(a - b)
    if op == "-":
        return f"{a} - {b}: {_borrow(a, b)}. So {a - b}.", str(a - b)
    if op == "/":
        return f"{b} * {a // b} = {a}. So {a // b}.", str(a // b)
    small, large = sorted((a, b))
    tens, ones = large // 10 * 10, large % 10
    if tens and ones:
        working = f"{small} * {tens} = {small * tens}, {small} * {ones} = {small * ones}"
        return f"{working}. So {a * b}.", str(a * b)
    return f"{a} * {b} = {a * b}.", str(a * b)


def _operands(rng: Random, op: str) -> tuple[str, int, int]:
    top = rng.choice([10, 20, 100, 100, 1000, 1000, 10000])
    if op in "+-":
        a, b = rng.randrange(top), rng.randrange(top)
        ordered = op == "+" or rng.random() < 0.15
        return (op, a, b) if ordered else (op, max(a, b), min(a, b))
    a, b = rng.randrange(1, 13), rng.choice([rng.randrange(1, 13), rng.randrange(10, 100)])
    if op == "/":
        return op, a * rng.randrange(1, 13), a
    return (op, a, b) if rng.random() < 0.5 else (op, b, a)


def arithmetic(rng: Random, held: bool) -> list[Turn]:
    """One sum, sometimes a second one that uses the first result."""
    if rng.random() < 0.06:
        a, b, c = draw(rng, lambda: tuple(rng.sample(range(1, 30), 3)), held)
        asks = ["What is {a} + {b} + {c}?", "{a} + {b} + {c}", "Add {a}, {b} and {c}.",
                "{a}+{b}+{c}=?",
                "What is the sum of {a}, {b} and {c}?"]  # fmt: skip
        user = phrase(rng, asks, held).format(a=a, b=b, c=c)
        thought = f"{a} + {b} = {a + b}, {a + b} + {c} = {a + b + c}."
        total = f"{a} + {b} + {c} = {a + b + c}."
        return [Turn("arithmetic", user, total, thought, f"= {a + b + c}")]
    op = rng.choice("+++---**/")
    _, a, b = draw(rng, lambda: _operands(rng, op), held)
    thought, value = solve(op, a, b)
    if rng.random() < 0.12 and not held and op != "/":
        ask, op, answer = rng.choice(WORDED)
        _, a, b = draw(rng, lambda: _operands(rng, op), held)
        a, b = (max(a, b), min(a, b)) if op == "-" else (a, b)
        thought, value = solve(op, a, b)
        user, answer = ask.format(a=a, b=b), answer.format(v=value)
        return [Turn("arithmetic", user, answer, thought, value)]
    asks = {"+": ADD, "-": SUB, "*": MUL, "/": DIV}[op]
    user = phrase(rng, asks, held).format(a=a, b=b)
    if rng.random() < 0.2:
        user = user.replace(f" {op} ", op)
    answer = f"{a} {op} {b} = {value}."
    turns = [Turn("arithmetic", user, answer, thought, f"= {value}")]
    if rng.random() < 0.1 and 0 <= int(value) < 900:
        n = rng.randrange(1, 20)
        thought, more = solve("+", int(value), n)
        turns.append(Turn("arithmetic", rng.choice([f"And plus {n}?", f"Add {n} to that."]),
                          f"{value} + {n} = {more}.", thought, f"= {more}"))  # fmt: skip
    return turns


def numbers(rng: Random, held: bool) -> list[Turn]:
    """Comparing, counting, parity, doubling."""
    a, b = draw(rng, lambda: tuple(rng.sample(range(1, rng.choice([20, 100, 1000])), 2)), held)
    kind = rng.randrange(6)
    if kind == 0:
        user = phrase(rng, [f"Which is larger, {a} or {b}?", f"Which number is bigger: {a} or {b}?",
                            f"Is {a} or {b} larger?", f"What is larger, {a} or {b}?",
                            f"Which of {a} and {b} is larger?"], held)  # fmt: skip
        return [
            Turn(
                "number",
                user,
                f"{max(a, b)} is larger.",
                f"I compare {a} and {b}.",
                f"{max(a, b)} is",
            )
        ]
    if kind == 1:
        user = phrase(rng, [f"Which is smaller, {a} or {b}?",
                            f"Which number is smaller: {a} or {b}?",
                            f"Is {a} or {b} smaller?", f"What is less, {a} or {b}?",
                            f"Which of {a} and {b} is smaller?"], held)  # fmt: skip
        return [
            Turn(
                "number",
                user,
                f"{min(a, b)} is smaller.",
                f"I compare {a} and {b}.",
                f"{min(a, b)} is",
            )
        ]
    if kind == 2:
        word = "odd" if a % 2 else "even"
        user = phrase(rng, [f"Is {a} even or odd?", f"Is {a} an even number?", f"Is {a} odd?",
                            f"Even or odd: {a}?", f"Is the number {a} even or odd?"],
                      held)  # fmt: skip
        return [
            Turn("number", user, f"{a} is {word}.", f"The last digit is {a % 10}.", f"is {word}")
        ]
    if kind == 3:
        n = a % 100
        user = phrase(rng, [f"Double {n}.", f"What is twice {n}?", f"What is the double of {n}?",
                            f"What is two times {n}?", f"Tell me the double of {n}."],
                      held)  # fmt: skip
        return [
            Turn("number", user, f"Twice {n} is {2 * n}.", f"{n} + {n} = {2 * n}.", f"is {2 * n}")
        ]
    if kind == 4:
        n = a % 15 + 3
        counted = ", ".join(str(i) for i in range(1, n + 1))
        user = phrase(rng, [f"Count to {n}.", f"Count from 1 to {n}.", f"Can you count to {n}?",
                            f"Please count to {n}.", f"Count up to {n}."], held)  # fmt: skip
        return [Turn("number", user, f"{counted}.", f"I count from 1 to {n}.", counted)]
    step, start = b % 9 + 1, a % 30
    shown = [start + i * step for i in range(4)]
    listed = ", ".join(map(str, shown))
    user = phrase(rng, [f"What comes next: {listed}?", f"Continue: {listed}",
                        f"Which number is next: {listed}?",
                        f"Next number after {listed}?", f"Continue the sequence {listed}."],
                  held)  # fmt: skip
    value = shown[-1] + step
    return [
        Turn("number", user, f"The next number is {value}.", f"The step is {step}.", f"is {value}")
    ]


def units(rng: Random, held: bool) -> list[Turn]:
    """Unit conversion with whole numbers."""
    (source, target, factor), n = draw(rng, lambda: (rng.choice(UNITS), rng.randrange(1, 31)), held)
    if factor in (10, 100, 1000) and rng.random() < 0.25:
        source, target, n, result = target, source, n * factor, n
        thought = f"The factor is {factor}. {n} / {factor} = {result}."
    else:
        result = n * factor
        thought = f"The factor is {factor}. {n} * {factor} = {result}."
    user = phrase(rng, CONVERT, held).format(n=n, f=source, t=target)
    if rng.random() < 0.1 and not held:
        celsius = 5 * rng.randrange(-2, 21)
        value = celsius * 9 // 5 + 32
        user = rng.choice(
            ["Convert {c} Celsius to Fahrenheit.", "What is {c} degrees Celsius in Fahrenheit?"]
        )
        thought = f"{celsius} * 9 / 5 = {value - 32}, and {value - 32} + 32 = {value}."
        answer = f"{celsius} degrees Celsius are {value} degrees Fahrenheit."
        return [Turn("unit", user.format(c=celsius), answer, thought, f"are {value}")]
    return [
        Turn(
            "unit", user, f"{n} {source} are {result} {target}.", thought, f"are {result} {target}"
        )
    ]


def dates(rng: Random, held: bool) -> list[Turn]:
    """Weekdays, months and years."""
    kind = rng.randrange(6)
    i, n = draw(rng, lambda: (rng.randrange(7), rng.randrange(1, 15)), held)
    day, month = DAYS[i], rng.randrange(12)
    if kind == 0:
        user = phrase(rng, [f"What day comes after {day}?", f"Which day is after {day}?",
                            f"What is the day after {day}?",
                            f"Today is {day}. What day is tomorrow?",
                            f"If today is {day}, what is tomorrow?",
                            f"Which day follows {day}?", f"What comes after {day}?",
                            f"Tomorrow, if today is {day}?", f"It is {day}. Which day is tomorrow?",
                            f"Name the day after {day}.", f"What weekday comes after {day}?",
                            f"If it is {day} today, which day is tomorrow?",
                            f"Tell me the day after {day}.",
                            f"Suppose today is {day}. What is tomorrow?",
                            f"Today is {day}. What is tomorrow?", f"When {day} ends, what begins?",
                            f"Next day after {day}?", f"Say the day after {day}.",
                            f"What is the next day after {day}?",
                            f"Today it is {day}, and tomorrow?",
                            f"{day} is today. Tomorrow is?",
                            f"What is tomorrow if today is {day}?"], held)  # fmt: skip
        value = DAYS[(i + 1) % 7]
        return [
            Turn(
                "date",
                user,
                f"The day after {day} is {value}.",
                f"After {day} comes {value}.",
                f"is {value}",
            )
        ]
    if kind == 1:
        user = phrase(rng, [f"What day comes before {day}?", f"Which day is before {day}?",
                            f"What is the day before {day}?",
                            f"Today is {day}. What day was yesterday?",
                            f"If today is {day}, what was yesterday?",
                            f"What comes before {day}?", f"Yesterday, if today is {day}?",
                            f"It is {day}. Which day was yesterday?",
                            f"Tell me the day before {day}.", f"Name the day before {day}.",
                            f"What weekday comes before {day}?",
                            f"If it is {day} today, which day was yesterday?",
                            f"Suppose today is {day}. What was yesterday?",
                            f"Today is {day}. What was yesterday?", f"Say the day before {day}.",
                            f"{day} is today. Yesterday was?",
                            f"What is the previous day of {day}?",
                            f"Today it is {day}, and yesterday?",
                            f"What was yesterday if today is {day}?"], held)  # fmt: skip
        value = DAYS[(i - 1) % 7]
        return [
            Turn(
                "date",
                user,
                f"The day before {day} is {value}.",
                f"Before {day} comes {value}.",
                f"is {value}",
            )
        ]
    if kind == 2:
        user = phrase(rng, [f"What day is {n} days after {day}?",
                            f"Today is {day}. What day is it in {n} days?",
                            f"Which day is {n} days after {day}?", f"{n} days after {day}?",
                            f"Which weekday comes {n} days after {day}?",
                            f"What weekday is {n} days after {day}?",
                            f"If today is {day}, what day is it in {n} days?",
                            f"It is {day}. Which day is it {n} days later?",
                            f"Tell me the day {n} days after {day}.",
                            f"Starting on {day}, which day is it after {n} days?",
                            f"What day comes {n} days after {day}?",
                            f"{day} plus {n} days?"], held)  # fmt: skip
        value = DAYS[(i + n) % 7]
        path = ", ".join(f"{k} {DAYS[(i + k) % 7]}" for k in range(1, n + 1))
        answer = f"{n} days after {day}: {path}. It is {value}."
        return [Turn("date", user, answer, f"I count {n} days from {day}.", f"It is {value}.")]
    if kind == 3:
        name = MONTHS[month]
        user = phrase(rng, [f"How many days does {name} have?", f"How many days are in {name}?",
                            f"How long is {name}?",
                            f"Days in {name}?", f"What is the number of days in {name}?",
                            f"How many days are there in {name}?", f"Tell me the days in {name}.",
                            f"Number of days in {name}?", f"Length of {name} in days?",
                            f"Give me the length of {name}.",
                            f"How many days has {name}?", f"Does {name} have 31 days?"],
                      held)  # fmt: skip
        answer = f"{name} has {LENGTHS[month]} days" + (
            ", or 29 in a leap year." if month == 1 else "."
        )
        return [
            Turn(
                "date",
                user,
                answer,
                f"The user asks for the length of {name}.",
                str(LENGTHS[month]),
            )
        ]
    if kind == 4:
        name, value = MONTHS[month], MONTHS[(month + 1) % 12]
        user = phrase(rng, [f"Which month comes after {name}?", f"What month is after {name}?",
                            f"What comes after {name}?",
                            f"Name the month after {name}.", f"Which month follows {name}?",
                            f"Tell me the month after {name}.", f"Next month after {name}?",
                            f"What month follows {name}?", f"It is {name}. What is next month?",
                            f"After {name} comes which month?",
                            f"If this month is {name}, what is the next one?"],
                      held)  # fmt: skip
        return [
            Turn(
                "date", user, f"{value} comes after {name}.", f"After {name} comes {value}.", value
            )
        ]
    year = rng.randrange(1960, 2060)
    leap = year % 4 == 0
    user = phrase(rng, [f"Is {year} a leap year?", f"Was {year} a leap year?",
                        f"Does {year} have 366 days?",
                        f"Is the year {year} a leap year?", f"Leap year or not: {year}?",
                        f"Will {year} be a leap year?", f"Leap year {year}?",
                        f"Has {year} a February 29?", f"Does February {year} have 29 days?",
                        f"Tell me if {year} is a leap year.",
                        f"Is there a February 29 in {year}?", f"Is {year} a leap year or not?"],
                  held)  # fmt: skip
    answer = f"{'Yes' if leap else 'No'}, {year} is {'' if leap else 'not '}a leap year."
    thought = f"{year % 100} divided by 4 leaves {year % 4}."
    return [Turn("date", user, answer, thought, "Yes" if leap else "No")]
