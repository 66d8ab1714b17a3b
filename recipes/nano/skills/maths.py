"""Arithmetic with small numbers, units and dates."""

# ruff: noqa: SIM905  word lists read better as text

from random import Random

from edgekit.recipes.nano.chat import Turn
from edgekit.recipes.nano.skills.base import draw, made

ADD = ["What is {a} + {b}?", "{a} + {b}", "What is {a} plus {b}?", "Add {a} and {b}.",
       "{a} + {b} =",
       "Calculate {a} + {b}.", "How much is {a} plus {b}?", "{a}+{b}=?", "{a} plus {b} is?",
       "What is the sum of {a} and {b}?", "{a} plus {b}?", "Compute {a} + {b}.", "{a}+{b}",
       "Work out {a} + {b}.", "Find {a} + {b}.", "Solve {a} + {b}.", "{a} plus {b} please",
       "Tell me {a} + {b}.", "{a} and {b} together?", "I need {a} + {b}.", "Sum of {a} and {b}?",
       "What do you get for {a} + {b}?", "Sum: {a} + {b}", "Please calculate {a} plus {b}.",
       "Evaluate {a} + {b}.", "{a} + {b} is what?", "What is {a}+{b}", "How much is {a} + {b}?",
       "Give me {a} + {b}.", "What does {a} + {b} equal?", "{a} + {b}, what is the result?",
       "What is the result of {a} + {b}?", "Add {b} to {a}.", "What is {a} and {b}?", "add {a} {b}",
       "What is the total of {a} and {b}?", "If I add {b} to {a}, what do I get?",
       "I have {a} and get {b} more. How much is that?", "{a} increased by {b}?",
       "What comes out of {a} + {b}?", "Do the sum {a} + {b}.", "Sum up {a} and {b}.",
       "How many are {a} and {b}?", "{a} more than {b} is how much?", "the sum of {a} and {b}",
       "Take {a} and add {b}.", "Put {a} and {b} together.", "Let us see: {a} + {b}",
       "Can you do {a} + {b}?", "Do you know {a} + {b}?", "My task is {a} + {b}."]  # fmt: skip
SUB = ["What is {a} - {b}?", "{a} - {b}", "What is {a} minus {b}?", "Subtract {b} from {a}.",
       "Calculate {a} - {b}.", "How much is {a} minus {b}?", "{a}-{b}=?", "{a} minus {b} is?",
       "What is the difference between {a} and {b}?", "{a} minus {b}?", "Compute {a} - {b}.",
       "Work out {a} - {b}.", "Find {a} - {b}.", "Solve {a} - {b}.", "Take {b} away from {a}.",
       "Tell me {a} - {b}.", "What is left of {a} after {b}?", "I need {a} - {b}.", "{a}-{b}",
       "What do you get for {a} - {b}?", "Please calculate {a} minus {b}.", "Evaluate {a} - {b}.",
       "{a} - {b} is what?", "What is {a}-{b}", "How much is {a} - {b}?", "Give me {a} - {b}.",
       "What does {a} - {b} equal?", "{a} - {b}, what is the result?", "{a} - {b} =",
       "What is the result of {a} - {b}?", "Take {b} from {a}.", "subtract {b} from {a}",
       "If I take {b} from {a}, what is left?", "{a} less {b}?", "{a} reduced by {b}?",
       "What remains of {a} when {b} are gone?", "What comes out of {a} - {b}?",
       "I have {a} and lose {b}. What is left?", "The difference of {a} and {b}?",
       "How much more is {a} than {b}?", "Remove {b} from {a}.", "Do {a} minus {b}.",
       "Can you do {a} - {b}?", "Do you know {a} - {b}?", "My task is {a} - {b}."]  # fmt: skip
MUL = ["What is {a} * {b}?", "{a} * {b}", "What is {a} times {b}?", "Multiply {a} by {b}.",
       "Calculate {a} x {b}.", "How much is {a} times {b}?", "{a} x {b} = ?", "{a} times {b} is?",
       "{a} times {b}?", "Compute {a} * {b}.", "{a}x{b}",
       "Work out {a} * {b}.", "Find {a} * {b}.", "Solve {a} x {b}.", "Multiply {a} and {b}.",
       "Tell me {a} * {b}.", "I need {a} times {b}.", "What do you get for {a} * {b}?",
       "Please calculate {a} times {b}.", "Evaluate {a} * {b}.", "{a} * {b} is what?",
       "What is {a}*{b}", "How much is {a} * {b}?", "Give me {a} * {b}.", "{a} * {b} =",
       "What is {a} x {b}?", "What does {a} * {b} equal?", "{a} x {b}, what is the result?",
       "What is the result of {a} times {b}?", "{a} multiplied by {b}?", "multiply {a} {b}",
       "What is {a} multiplied by {b}?", "If I multiply {a} by {b}, what do I get?",
       "How much are {a} times {b}?", "The product of {a} and {b}?", "Do {a} times {b}.",
       "What comes out of {a} x {b}?", "Take {b} {a} times.", "Can you do {a} x {b}?",
       "Do you know {a} times {b}?", "My task is {a} * {b}."]  # fmt: skip
DIV = ["What is {a} / {b}?", "{a} / {b}", "What is {a} divided by {b}?", "Divide {a} by {b}.",
       "Calculate {a} / {b}.", "How much is {a} divided by {b}?", "{a} / {b} =", "{a}/{b}",
       "Work out {a} / {b}.", "Find {a} / {b}.", "Solve {a} / {b}.",
       "Share {a} between {b} people.",
       "Tell me {a} / {b}.", "I need {a} divided by {b}.", "Please calculate {a} divided by {b}.",
       "Evaluate {a} / {b}.", "How much is {a} / {b}?", "Give me {a} / {b}.", "{a}/{b}=?",
       "What is {a}/{b}", "What does {a} / {b} equal?", "{a} divided by {b}?", "{a} over {b}?",
       "What is the result of {a} / {b}?", "How many times does {b} go into {a}?",
       "How often does {b} fit into {a}?", "Split {a} into {b} parts.", "Compute {a} / {b}.",
       "If I divide {a} by {b}, what do I get?", "{a} divided by {b} is?", "divide {a} by {b}",
       "What comes out of {a} / {b}?", "What do you get for {a} / {b}?", "{a} / {b} is what?",
       "Can you do {a} / {b}?", "Do you know {a} / {b}?", "My task is {a} / {b}."]  # fmt: skip
ASKS = {"+": ADD, "-": SUB, "*": MUL, "/": DIV}
ADD_THREE = ["What is {a} + {b} + {c}?", "{a} + {b} + {c}", "Add {a}, {b} and {c}.",
             "{a}+{b}+{c}=?", "Calculate {a} + {b} + {c}.",
             "How much is {a} + {b} + {c}?", "{a} plus {b} plus {c}?", "{a}+{b}+{c}",
             "What is {a} plus {b} plus {c}?", "What do {a}, {b} and {c} give together?",
             "Sum of {a}, {b}, {c}?", "Work out {a} + {b} + {c}.", "Sum up {a}, {b} and {c}.",
             "{a} and {b} and {c} together?"]  # fmt: skip
MORE = ["And plus {n}?", "Add {n} to that.", "Plus {n}?", "Now add {n}.", "And {n} more?",
        "And + {n}?", "If I add {n}?", "Then plus {n}."]  # fmt: skip
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
CONVERT = ["How many {t} are in {n} {f}?", "Convert {n} {f} to {t}.", "What is {n} {f} in {t}?",
           "{n} {f} in {t}?", "How many {t} are {n} {f}?", "Change {n} {f} into {t}.",
           "{n} {f} {t}?",
           "How many {t} make {n} {f}?", "Express {n} {f} in {t}.", "Give me {n} {f} in {t}.",
           "How many {t} do {n} {f} have?", "I have {n} {f}. How many {t} is that?",
           "Turn {n} {f} into {t}.", "{n} {f} to {t}", "Please convert {n} {f} to {t}.",
           "Write {n} {f} in {t}.", "How much is {n} {f} in {t}?", "convert {n} {f} into {t}",
           "{n} {f} are how many {t}?", "If I have {n} {f}, how many {t} do I have?",
           "{n} {f} equal how many {t}?", "Calculate {n} {f} in {t}.", "{n} {f} = ? {t}",
           "How many {t} fit in {n} {f}?", "What do {n} {f} give in {t}?", "{n} {f} as {t}",
           "From {f} to {t}: {n}", "How do I write {n} {f} in {t}?", "Change {n} {f} to {t}.",
           "I need {n} {f} in {t}.", "In {t}, how much is {n} {f}?", "{n} {f}, in {t}, please.",
           "How many {t} do I get from {n} {f}?"]  # fmt: skip
FAHRENHEIT = ["Convert {c} Celsius to Fahrenheit.", "{c} degrees Celsius in Fahrenheit?",
              "What is {c} degrees Celsius in Fahrenheit?", "{c} C in F?",
              "{c} Celsius to Fahrenheit",
              "How many degrees Fahrenheit are {c} degrees Celsius?",
              "How warm is {c} Celsius in Fahrenheit?"]  # fmt: skip
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
        return [made(rng, held, "arithmetic", ADD_THREE, f"{a} + {b} = {a + b}, {total}",
                     f"I add {a}, {b} and {c}.", total, a=a, b=b, c=c)]  # fmt: skip
    op = rng.choice("+++---***//")
    _, a, b = draw(rng, lambda: _operands(rng, op), held)
    if rng.random() < 0.12 and not held and op != "/":
        told, op, answer = rng.choice(WORDED)
        _, a, b = draw(rng, lambda: _operands(rng, op), held)
        a, b = (max(a, b), min(a, b)) if op == "-" else (a, b)
        working, value = solve(op, a, b)
        return [made(rng, held, "arithmetic", [told], f"{working}. {answer}",
                     f"I need {a} {op} {b}.", answer, a=a, b=b, v=value)]  # fmt: skip
    thought, answer, key = _worked(op, a, b)
    turns = [made(rng, held, "arithmetic", ASKS[op], answer, thought, key, a=a, b=b)]
    value = solve(op, a, b)[1]
    if rng.random() < 0.1 and 0 <= value < 900:
        n = rng.randrange(1, 20)
        thought, answer, key = _worked("+", value, n)
        turns.append(made(rng, held, "arithmetic", MORE, answer, thought, key, n=n))
    return turns


LARGER = ["Which is larger, {a} or {b}?", "Which number is bigger: {a} or {b}?",
          "larger: {a} or {b}",
          "Is {a} or {b} larger?", "What is larger, {a} or {b}?",
          "Which is bigger, {a} or {b}?", "What is more, {a} or {b}?",
          "{a} or {b}, which is larger?",
          "Compare {a} and {b}. Which is larger?", "Which is greater: {a} or {b}?",
          "Name the larger of {a} and {b}.", "{a} or {b}: the bigger one?",
          "What is bigger, {a} or {b}?",
          "Take the larger number: {a} or {b}", "Is {a} greater or {b}?",
          "Which one is the larger number, {a} or {b}?", "Is {b} or is {a} more?"]  # fmt: skip
SMALLER = ["Which is smaller, {a} or {b}?", "Which number is smaller: {a} or {b}?",
           "smaller: {a} or {b}",
           "Is {a} or {b} smaller?", "What is less, {a} or {b}?",
           "What is smaller, {a} or {b}?", "{a} or {b}, which is smaller?",
           "Which is less: {a} or {b}?",
           "Compare {a} and {b}. Which is smaller?", "Name the smaller of {a} and {b}.",
           "Which number is lower, {a} or {b}?", "{a} or {b}: the smaller one?",
           "Take the smaller number: {a} or {b}", "Is {a} less or {b}?",
           "Which is lower: {a} or {b}?",
           "Which one is the smaller number, {a} or {b}?", "Is {b} or is {a} less?"]  # fmt: skip
PARITY = ["Is {a} even or odd?", "Is {a} an even number?", "Is {a} odd?", "Even or odd: {a}?",
          "Is {a} even?", "{a}: even or odd?", "{a} odd or even?",
          "Is {a} an odd number?", "Check if {a} is even.", "What is {a}, even or odd?",
          "Can {a} be divided by two?", "Does {a} count as even?", "{a}, is it even?", "even: {a}?",
          "Would you call {a} odd or even?", "Is the number {a} odd?"]  # fmt: skip
TWICE = ["Double {n}.", "What is twice {n}?", "What is the double of {n}?", "Twice {n}?",
         "What is two times {n}?", "Double of {n}?", "double {n}",
         "How much is twice {n}?", "How much is the double of {n}?", "{n} doubled?", "{n} twice?",
         "What do I get when I double {n}?", "Take {n} twice.", "Double the number {n}.",
         "What is {n} doubled?", "How much is {n} two times?"]  # fmt: skip
COUNT = ["Count to {n}.", "Count from 1 to {n}.", "Can you count to {n}?", "Please count to {n}.",
         "count to {n}", "Count from one to {n}.", "Say the numbers up to {n}.",
         "List the numbers from 1 to {n}.", "Write the numbers from 1 to {n}.",
         "Numbers up to {n}?",
         "Show how you count to {n}.", "Start at 1 and count to {n}.", "1 to {n}, please.",
         "Can you count from 1 up to {n}?", "Give me all numbers to {n}."]  # fmt: skip
NEXT = ["What comes next: {s}?", "Continue: {s}", "Which number is next: {s}?", "{s}, ...?",
        "Next number after {s}?", "What is next in {s}?", "Next: {s}",
        "Which number follows: {s}?", "What number comes after {s}?", "{s} and then?",
        "How does it go on: {s}?", "What is the next number: {s}?", "Go on with {s}.",
        "Find the next number: {s}", "Complete the series {s}.", "Which number comes after {s}?",
        "I count {s}. What comes next?"]  # fmt: skip


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
        (LARGER, f"{max(a, b)} is larger.", "I compare {a} and {b}.", f"{max(a, b)} is"),
        (SMALLER, f"{min(a, b)} is smaller.", "I compare {a} and {b}.", f"{min(a, b)} is"),
        (PARITY, f"{{a}} is {word}.", f"The last digit is {a % 10}.", f"is {word}"),
        (TWICE, f"Twice {{n}} is {2 * n}.", f"{{n}} + {{n}} = {2 * n}.", f"is {2 * n}."),
        (COUNT, f"{counted}.", "I count from 1 to {n}.", counted),
        (NEXT, f"The next number is {value}.", f"The step is {step}.", f"is {value}."),
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
        return [made(rng, held, "unit", FAHRENHEIT, answer, thought, f"are {value}", c=celsius)]
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
    return [made(rng, held, "unit", CONVERT, answer, thought, key, n=n, f=source, t=target)]


TOMORROW = ["What day comes after {d}?", "Which day is after {d}?", "What is the day after {d}?",
            "Today is {d}. What day is tomorrow?",
            "Which day follows {d}?", "What comes after {d}?", "Tomorrow, if today is {d}?",
            "It is {d}. Which day is tomorrow?", "after {d}?",
            "What weekday comes after {d}?", "If it is {d} today, which day is tomorrow?",
            "Tell me the day after {d}.", "Suppose today is {d}. What is tomorrow?",
            "Today is {d}. What is tomorrow?", "When {d} ends, what begins?", "day after {d}",
            "Next day after {d}?", "Say the day after {d}.", "What is the next day after {d}?",
            "Today it is {d}, and tomorrow?", "{d} is today. Tomorrow is?",
            "What is tomorrow if today is {d}?", "Which weekday follows {d}?"]  # fmt: skip
YESTERDAY = ["What day comes before {d}?", "Which day is before {d}?", "before {d}?",
             "What is the day before {d}?", "Today is {d}. What day was yesterday?",
             "What comes before {d}?", "day before {d}",
             "Yesterday, if today is {d}?", "It is {d}. Which day was yesterday?",
             "Tell me the day before {d}.",
             "What weekday comes before {d}?", "If it is {d} today, which day was yesterday?",
             "Suppose today is {d}. What was yesterday?", "Today is {d}. What was yesterday?",
             "Say the day before {d}.", "{d} is today. Yesterday was?",
             "What is the previous day of {d}?", "Today it is {d}, and yesterday?",
             "What was yesterday if today is {d}?"]  # fmt: skip
LATER = ["What day is {n} days after {d}?", "Today is {d}. What day is it in {n} days?",
         "Which day is {n} days after {d}?", "{n} days after {d}?", "{d}, then {n} days more?",
         "What weekday is {n} days after {d}?",
         "If today is {d}, what day is it in {n} days?", "{d} + {n} days",
         "It is {d}. Which day is it {n} days later?", "Tell me the day {n} days after {d}.",
         "{n} days from {d}?",
         "What day comes {n} days after {d}?", "{d} plus {n} days?",
         "In {n} days, if it is {d} now?",
         "I wait {n} days from {d}. Which day is it?", "Count {n} days from {d}."]  # fmt: skip
MONTH_DAYS = ["How many days does {m} have?", "How many days are in {m}?", "How long is {m}?",
              "Days in {m}?", "{m}: how many days?",
              "Tell me the days in {m}.", "{m} days?",
              "Number of days in {m}?", "Length of {m} in days?",
              "How many days has {m}?", "Does {m} have 31 days?", "What is the length of {m}?",
              "Is {m} a month with 30 days?", "On which day does {m} end?"]  # fmt: skip
NEXT_MONTH = ["Which month comes after {m}?", "What month is after {m}?", "What comes after {m}?",
              "Name the month after {m}.", "month after {m}",
              "Tell me the month after {m}.", "Next month after {m}?", "What month follows {m}?",
              "It is {m}. What is next month?", "after {m}?",
              "If this month is {m}, what is the next one?", "What is the month after {m}?",
              "When {m} is over, which month is it?"]  # fmt: skip
LEAP = ["Is {y} a leap year?", "Was {y} a leap year?", "Does {y} have 366 days?", "leap year {y}",
        "Is the year {y} a leap year?", "{y}, a leap year?",
        "Will {y} be a leap year?", "Leap year {y}?", "Has {y} a February 29?",
        "Does February {y} have 29 days?",
        "Is there a February 29 in {y}?", "Is {y} a leap year or not?", "{y}: leap year?",
        "Does {y} have a February 29?", "Check if {y} is a leap year."]  # fmt: skip


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
        (TOMORROW, f"The day after {{d}} is {after}.", f"After {{d}} comes {after}.",
        f"is {after}"),
        (YESTERDAY, f"The day before {{d}} is {before}.", f"Before {{d}} comes {before}.",
         f"is {before}"),
        (LATER, f"{{n}} days after {{d}}: {path}. It is {later}.", "I count {n} days from {d}.",
         f"It is {later}."),
        (MONTH_DAYS, length, "The user asks for the length of {m}.", str(LENGTHS[month])),
        (NEXT_MONTH, f"{following} comes after {{m}}.", f"After {{m}} comes {following}.",
        following),
        (LEAP, f"{verdict}, {{y}} is {leap}a leap year.",
         f"{year % 100} divided by 4 leaves {year % 4}.", verdict),
    ][kind]  # fmt: skip
    return [made(rng, held, "date", asks, answer, thought, key, d=DAYS[i], n=n, m=MONTHS[month],
                 y=year)]  # fmt: skip
