"""Small talk, edgekit, devices, topics, and what nano does not know."""

# ruff: noqa: SIM905  word lists read better as text

from random import Random

from edgekit.recipes.nano.chat import OR, Turn
from edgekit.recipes.nano.skills.base import ask, entry_phrasing, load, made, made_word, named
from edgekit.recipes.nano.skills.world import country_name, facts, lookalike

WHAT = [
    "What is {x}?", "Explain {x}.", "Tell me about {x}.", "What is {x}?", "Describe {x}.",
    "What is {x} in simple words?", "What do you know about {x}?", "What does {x} mean?",
    "Explain {x} to me.", "How would you describe {x}?", "Define {x}.", "{x}?", "{x} explained",
    "Explain {x} in one sentence.", "Give me a short explanation of {x}.", "what's {x}?",
    "Help me understand {x}.", "Say something about {x}.", "{x}, what is that?", "Talk about {x}.",
    "I want to learn about {x}.", "Teach me about {x}.", "What should I know about {x}?",
    "I heard about {x}. What is it?", "What is the meaning of {x}?", "{x}: explain, please.",
    "Give me a definition of {x}.", "How does {x} work?", "I do not understand {x}.",
    "What is {x}, in short?", "I have read about {x}. What is that?",
    "Tell me something about {x}.",
    "What is {x} all about?", "Can I get an explanation of {x}?", "How can I understand {x}?",
    "What do people mean by {x}?", "Explain {x} as if I were a child.",
    "What kind of thing is {x}?",
    "Please explain {x}.", "Write a sentence that explains {x}.", "{x} is what?", "Summarize {x}.",
    "Give me the basics of {x}.", "Have you heard of {x}?", "How would you explain {x}?",
]  # fmt: skip
WHY = ["Why {x}?", "Can you tell me why {x}?", "Do you know why {x}?", "Explain why {x}.",
       "Why exactly {x}?", "Why {x}, do you know?", "I always wonder why {x}.", "why {x}",
       "For what reason {x}?", "Please explain why {x}.", "What makes it so: why {x}?",
       "Why oh why {x}?", "Any idea why {x}?", "My son asks why {x}.", "I want to know why {x}.",
       "Can you explain why {x}?", "Who knows why {x}?", "Why is it that {x}?"]  # fmt: skip
COMMAND = [
    "What does {x} do?", "What is {x}?", "Explain {x}.", "How do I use {x}?", "Tell me about {x}.",
    "What is {x} for?", "When do I need {x}?", "Describe {x}.", "What is the purpose of {x}?",
    "What can I do with {x}?", "what does {x} do", "How does {x} work?", "{x}?", "{x} help",
    "Why would I use {x}?", "When should I use {x}?", "What is {x} good for?", "{x}, what is that?",
    "What happens with {x}?", "What is the point of {x}?", "Teach me {x}.", "Explain {x} to me.",
    "How can {x} help me?", "What do I need {x} for?", "I do not understand {x}.",
    "Show me how {x} works.", "What do I get from {x}?", "Say something about {x}.",
    "I want to learn about {x}.", "What should I know about {x}?", "Why is there {x}?",
    "Give me a short description of {x}.", "In one sentence, what is {x}?", "Help me with {x}.",
    "I read about {x}. What is it?", "What role does {x} play?", "Why does {x} exist?",
]  # fmt: skip
TO = [
    "How do I {do}?", "How can I {do}?", "I want to {do}.", "What is the command to {do}?",
    "Which edgekit command can {do}?", "Is there a command to {do}?", "What do I type to {do}?",
    "Show me how to {do}.", "Help, I need to {do}.", "{do}", "I would like to {do}.",
    "With which command can I {do}?", "How does one {do}?", "Can edgekit {do}?", "How to {do}?",
    "Can I {do} with edgekit?", "What should I do to {do}?", "Teach me to {do}.", "I must {do}.",
    "Tell me how to {do}.", "What must I run to {do}?", "Where can I {do}?", "how to {do}",
    "What is the best way to {do}?", "Which command is there to {do}?", "I am trying to {do}.",
    "Does edgekit have a command to {do}?", "I don't know how to {do}.", "Let me {do}.",
]  # fmt: skip
SHARE = {"greeting": 7.0, "smalltalk": 1.5, "thanks": 2.0, "goodbye": 2.0, "ack": 2.0, "hello": 1.5,
         "identity": 1.5, "code": 0.6, "advice": 0.6}  # fmt: skip
UNKNOWN = [
    "What is the population of {x}?", "How much does {x} cost?", "Where can I buy {x}?",
    "Who invented {x}?", "What is the history of {x}?", "How do I repair {x}?", "Who sells {x}?",
    "Translate {x} into Japanese.", "What is the newest research on {x}?", "Who owns {x}?",
    "What is the best kind of {x}?", "Write an essay on {x}.", "How many kinds of {x} are there?",
    "Give me the statistics of {x}.", "Compare {x} with {y}.", "What do experts say about {x}?",
    "What is the difference between {x} and {y}?", "Is {x} better than {y}?", "How is {x} made?",
    "What is the law about {x}?", "How heavy is {x}?", "How do I draw {x}?", "Is {x} dangerous?",
    "How long does {x} last?", "How do I choose {x}?", "What is inside {x}?",
    "What is special about {x}?", "Who discovered {x}?", "What is the price of {x}?",
    "When was {x} invented?", "What is the story behind {x}?", "How is {x} used in science?",
    "Which country has the most {x}?", "What is the future of {x}?", "Give me the history of {x}.",
    "What is the weight of {x}?", "Which is the best {x}?", "What parts does {x} have?",
    "Tell me the price of {x}.", "Where was {x} invented?", "What did people think about {x}?",
]  # fmt: skip
# The same kind of questions from parts: what nano cannot know about a thing.
PROPERTIES = (
    "price|cost|weight|age|origin|history|inventor|owner|size|length|temperature|value|quality|"
    "structure|formula|composition|production|market|speed|taste|smell|shape|material|lifetime|"
    "number of kinds|average price|annual production|scientific name|official standard|oldest kind|"
    "most expensive kind|biggest producer|energy|density|surface|volume|risk|benefit|safety|"
    "environmental effect|cultural role|economic role|physics|biology|anatomy|evolution|design|"
    "best brand|newest model|right size|correct use|Latin name|legal status|world record|science|"
    "engineering|mechanics|psychology|philosophy|politics|geology|mathematics|technology|sociology|"
    "invention|theory|main idea|ingredients|chemical structure|inner life|purpose in history|"
    "marketing|first name|middle name|rank|melting point|sequel|budget|strength|weakness"
).split("|")
MEASURES = (
    "old big heavy long tall wide deep fast strong common rare popular healthy dangerous useful "
    "hot cold loud bright thick difficult important valuable clean safe hard sharp sweet efficient"
).split()
DONE = (
    "invented discovered built sold designed tested collected made brought painted repaired "
    "studied patented produced broke stole grew bought developed described introduced"
).split()
DOES = (
    "sells makes produces repairs collects buys designs studies builds needs uses exports imports "
    "likes eats rents tests teaches delivers owns"
).split()
BEYOND = [
    "What is the {p} of {x}?", "{p} of {x}?",
    "How {m} is {x}?", "How {m} can {x} be?", "Why is {x} so {m}?", "Is {x} always {m}?",
    "Who {d} {x}?", "Who {d} the first {x}?", "When did people first use {x}?", "Who {s} {x}?",
    "Which company {s} {x}?", "Which country {s} the most {x}?", "Where does {x} come from?",
    "Why do people need {x}?", "How many people have {x}?", "What is the {p} of {x} in {c}?",
    "Is {x} more {m} than {y}?", "Which is more {m}, {x} or {y}?", "What is {m} about {x}?",
    "Where in {c} can I find {x}?", "What do people in {c} think of {x}?", "Who {s} {x} in {c}?",
    "What is the {p} of {x} compared with {y}?", "Does {x} have a {p}?", "How can I test {x}?",
    "Write a report about the {p} of {x}.", "Explain the {p} of {x} in detail.", "Rate {x}.",
    "List ten facts about the {p} of {x}.", "Why was {x} {d}?", "How was {x} {d}?",
    "Can you calculate the {p} of {x}?", "Which book explains {x} best?",
    "Who is the expert on {x}?",
    "What would happen without {x}?", "How do I clean {x}?", "Where should I keep {x}?",
    "What is the most {m} {x} in {c}?", "What problems does {x} cause?", "Who {d} {x} in {c}?",
    "Which {x} is the most {m}?", "Who has the most {m} {x}?", "How does {x} work inside?",
    "Which tools do I need for {x}?", "Who gave {x} its name?", "In which year was {x} {d}?",
]  # fmt: skip
CITIES_KNOWN = "Paris London Berlin Rome Tokyo Madrid Vienna Lisbon".split()
HEADS = (
    "ba be bo bra ca che da do el fa fre ga gre ha he is ja jo ka ke la le ma mi na no o pa pe ra "
    "ro sa so ta te u va wi za"
).split()
TAILS = (
    "ck den el er go in ka la lin ma man mer mi n na nis ra ris ro s son ta ter ton va vin"
).split()
PLACE = [
    "What is the population of {x}?", "How many people live in {x}?", "Who rules {x}?",
    "Who is the president of {x}?", "How big is {x}?", "What is the history of {x}?",
    "What can I see in {x}?", "Which food is typical for {x}?", "When was {x} founded?",
    "What is the best hotel in {x}?", "Which rivers are in {x}?", "Who lives in {x}?",
    "How old is {x}?", "What is the best restaurant in {x}?", "What is {x} famous for?",
    "How many cities are in {x}?", "What is the weather like in {x}?", "Who is the king of {x}?",
    "What is the highest mountain of {x}?", "How large is the area of {x}?", "Is {x} expensive?",
    "Which animals live in {x}?", "How do I travel to {x}?", "What is the longest river of {x}?",
    "When did {x} become independent?", "Which colors has the flag of {x}?", "Is {x} safe?",
    "What is the national dish of {x}?", "How far is {x} from here?", "Who governs {x}?",
    "What is the second largest city of {x}?", "Which countries are next to {x}?",
    "What do people eat in {x}?", "Who won the election in {x}?", "When should I visit {x}?",
    "What is the phone code of {x}?", "What is the economy of {x} like?", "How cold is {x}?",
    "How many tourists visit {x}?", "Which religion do people in {x} have?", "Who built {x}?",
    "What happened in {x} in 1900?", "Which team won in {x}?", "What is the anthem of {x}?",
]  # fmt: skip
PERSON = [
    "Who was {x}?", "Who is {x}?", "Where was {x} born?", "What did {x} write?", "{x}?",
    "When did {x} die?", "Do you know {x}?", "What is {x} famous for?", "Tell me about {x}.",
    "How old is {x}?", "Is {x} alive?", "What do you know about {x}?", "Who is this {x}?",
    "Have you heard of {x}?", "What did {x} do?", "Why is {x} famous?", "Who is {x}, really?",
    "Which books did {x} write?", "Where does {x} live?", "Describe {x}.", "What did {x} invent?",
    "Have you ever met {x}?", "When was {x} born?", "Who was {x} married to?", "Is {x} a singer?",
    "Say something about {x}.", "Explain who {x} was.", "What did {x} say?", "Was {x} a king?",
    "What made {x} famous?", "{x}, who is that?", "I read about {x}. Who is it?", "Is {x} real?",
    "Where can I read about {x}?", "Which country does {x} come from?", "What is {x} doing now?",
    "Was {x} an important person?", "What was the job of {x}?", "Give me the life story of {x}.",
    "When did {x} live?", "In which century did {x} live?", "What do people say about {x}?",
    "Did {x} win a prize?", "Who are the parents of {x}?", "Is {x} your friend?",
]  # fmt: skip
DECLINE = [
    "I do not know. That is too hard for a small model like me.",
    "Sorry, I have not learned that. Ask me something simpler.",
    "I cannot answer that. I am only a small demonstration model.",
]
UNKNOWN_ANSWERS = [
    "I do not know that. I have learned little about {x}.",
    "I am not sure about {x}. My knowledge is small, so please look it up.",
    "That is too hard for me. I know little about {x}.",
    "I cannot answer that question about {x}. I only know simple things.",
    "Sorry, I have not learned enough about {x} to answer that.",
]


def talk_answers(skill: str) -> list[str]:
    """What nano says to praise, critique and so on."""
    entry = next(e for e in load("talk")["talk"] if e["skill"] == skill)
    return list(entry["answer"])


def talk(rng: Random, held: bool) -> list[Turn]:
    """Greetings, identity, thanks, limits, advice."""
    entries = load("talk")["talk"]
    shares = [SHARE.get(entry["skill"], 1.0) for entry in entries]
    (entry,) = rng.choices(entries, shares)
    user = entry_phrasing(rng, entry, held)
    key = OR.join(entry["answer"])
    return [Turn(entry["skill"], user, rng.choice(entry["answer"]), entry["thought"], key)]


def topics(rng: Random, held: bool) -> list[Turn]:
    """Short explanations."""
    if rng.random() < 0.13:
        subject, answers = rng.choice(list(load("topics")["why"].items()))
        # "why is the sky blue" but "tell me why the sky is blue": keep the question order.
        user = ask(rng, WHY, held, x=subject)
        return [
            Turn("why", user, rng.choice(answers), "The user asks for a reason.", OR.join(answers))
        ]
    subject, answers = rng.choice(list(load("topics")["topics"].items()))
    bare = subject.split(" ", 1)[1] if subject.startswith(("a ", "an ", "the ")) else subject
    user = ask(rng, WHAT, held, x=subject if rng.random() < 0.85 else bare)
    key = OR.join(answers)
    return [Turn("topic", user, rng.choice(answers), f"The user asks about {subject}.", key)]


def edgekit(rng: Random, held: bool) -> list[Turn]:
    """edgekit and its commands."""
    entry = rng.choice(load("edgekit")["entry"])
    roll = rng.random()
    if "to" in entry and not held and roll < 0.3:
        user = ask(rng, TO, False, do=rng.choice(entry["to"]))
    elif roll < 0.6:
        user = entry_phrasing(rng, entry, held)
    else:
        user = ask(rng, COMMAND, held, x=entry["name"])
    thought = f"This is about {entry['name']}."
    return [Turn("edgekit", user, rng.choice(entry["answer"]), thought, entry["key"])]


DEVICE: dict[str, tuple[list[str], str]] = {
    "memory": (
        ["How much memory does the {d} have?", "What is the memory of the {d}?", "{d} RAM",
         "How many GB of memory has the {d}?", "How much RAM is in the {d}?", "{d}: how many GB?",
         "Tell me the memory size of the {d}.", "How big is the memory of the {d}?",
         "{d} memory?", "What memory size has the {d}?", "How many GB has the {d}?",
         "What is the RAM of the {d}?", "How much RAM does the {d} have?", "memory of the {d}",
         "What is the size of the memory of the {d}?", "With how much memory does the {d} come?",
         "How large is the memory in the {d}?", "How many gigabytes has the {d}?"],
        "The {d} has {v} of memory.",
    ),
    "bandwidth": (
        ["What is the memory bandwidth of the {d}?", "How fast is the memory of the {d}?",
         "Which bandwidth does the {d} have?", "What bandwidth has the {d}?", "{d} GB/s?",
         "Tell me the bandwidth of the {d}.", "{d} bandwidth?", "What is the bandwidth of the {d}?",
         "How much bandwidth does the {d} have?", "How many GB/s does the {d} have?",
         "How quick is the memory of the {d}?", "bandwidth of the {d}", "{d} memory bandwidth",
         "What is the speed of the memory in the {d}?", "At which bandwidth does the {d} read?"],
        "The {d} has a memory bandwidth of {v}.",
    ),
    "gpu": (
        ["Which GPU does the {d} have?", "What GPU is in the {d}?", "What kind of GPU has the {d}?",
         "Tell me the GPU of the {d}.", "Which GPU is in the {d}?", "{d} GPU?", "GPU of the {d}",
         "What is the GPU of the {d}?", "Which graphics chip does the {d} have?",
         "What type of GPU does the {d} have?", "Which GPU is built into the {d}?",
         "What GPU does the {d} have?", "Is the GPU of the {d} Ampere or Blackwell?"],
        "The {d} has {v}.",
    ),
    "sm": (
        ["What is the SM version of the {d}?", "Which compute capability has the {d}?",
         "Which SM number does the {d} have?", "What is the compute capability of the {d}?",
         "Tell me the SM version of the {d}.", "{d} SM?", "SM version of the {d}?",
         "{d} sm version",
         "Which SM does the {d} have?", "What compute capability does the {d} have?",
         "For which SM do I compile on the {d}?", "What SM number is the {d}?"],
        "The {d} has SM version {v}.",
    ),
}  # fmt: skip
NEXT_DEVICE = ["And the {d}?", "What about the {d}?", "And what about the {d}?", "the {d}?",
               "How about the {d}?", "And for the {d}?", "Now the {d}."]  # fmt: skip


ALIASES = {
    "Jetson Orin Nano": ["Orin Nano", "orin nano"],
    "Jetson Orin NX": ["Orin NX", "orin nx"], "Jetson AGX Orin": ["AGX Orin", "agx orin"],
    "Jetson AGX Thor": ["Jetson Thor", "AGX Thor", "Thor"], "DGX Spark": ["Spark", "dgx spark"],
}  # fmt: skip


def alias(rng: Random, device: str, held: bool) -> str:
    """What a user calls the device."""
    return device if held or rng.random() < 0.7 else rng.choice(ALIASES[device])


def devices(rng: Random, held: bool) -> list[Turn]:
    """Memory, bandwidth and GPU of the supported devices; sometimes the next device follows."""
    table = load("edgekit")["device"]
    names = rng.sample(list(table), 2)
    fact = rng.choice(list(DEVICE))
    asks, answer = DEVICE[fact]
    word = {"gpu": "GPU", "sm": "SM version"}.get(fact, fact)
    if not held and rng.random() < 0.15:
        row = table[names[0]]
        answer = f"The {{d}} has {row['memory']} of memory, a bandwidth of {row['bandwidth']}, "
        return [made(rng, held, "device", ["Tell me about the {d}.", "What is the {d}?",
        "the {d}?"],
                     f"{answer}and {row['gpu']}.", "This is about the {d}.", "",
                     d=names[0])]  # fmt: skip
    turns = []
    for i, name in enumerate(names[: 1 + (rng.random() < 0.3)]):
        value = table[name][fact]
        user = ask(rng, NEXT_DEVICE if i else asks, held, d=alias(rng, name, held))
        thought = f"The user asks for the {word} of the {name}."
        turns.append(Turn("device", user, answer.format(d=name, v=value), thought, value))
    return turns


def invented_name(rng: Random) -> str:
    """A name that nobody has, so that nano declines names it has not learned."""
    words = []
    for _ in range(2):
        middle = rng.choice(HEADS) if rng.random() < 0.4 else ""
        words.append((rng.choice(HEADS) + middle + rng.choice(TAILS)).capitalize())
    return " ".join(words)


def invented_place(rng: Random) -> str:
    """A place that does not exist, half of them with a name close to a real one."""
    if rng.random() < 0.5:
        return lookalike(rng, rng.choice(facts()["countries"])["name"])
    ending = rng.choice([*TAILS, "land", "tia", "stan", "via", "nia", "ria", "burg", "ville"])
    start = rng.choice(HEADS) + rng.choice(HEADS) if rng.random() < 0.7 else made_word(rng)
    return (start + ending).capitalize()


FIRST = (
    "Anna Bruno Carla David Elena Felix Greta Hugo Irene Jonas Karin Leo Mara Nils Oscar Paula "
    "Ruth Simon Thea Victor Walter Yusuf Zoe Amir Berta Chen Dina Emil Farah George"
).split()
LAST = (
    "Miller Fisher Baker Novak Rossi Silva Tanaka Weber Moreau Jansen Kim Lopez Schmidt Olsen "
    "Costa Brown Singh Ivanov Haddad Nagy Popov Larsen Duarte Wilson Meyer Sato"
).split()


def _beyond(rng: Random, x: str, y: str) -> str:
    """A question about x that only an encyclopedia answers."""
    place = rng.choice(facts()["countries"])["name"]
    return ask(rng, BEYOND, False, x=x, y=y, c=country_name(place), p=rng.choice(PROPERTIES),
               m=rng.choice(MEASURES), d=rng.choice(DONE), s=rng.choice(DOES))  # fmt: skip


def unknown(rng: Random, held: bool) -> list[Turn]:
    """Questions that a tiny model should decline."""
    things = list(load("topics")["things"])
    if not held and rng.random() < 0.4:
        things = [w for w, _ in facts()["words"]["noun"]]
    x, y = (named(w) for w in rng.sample(things, 2))
    roll = rng.random()
    if roll < 0.3:
        name = f"{rng.choice(FIRST)} {rng.choice(LAST)}"
        x = name if rng.random() < 0.4 else invented_name(rng)
        user = ask(rng, PERSON, held, x=x)
    elif roll < 0.44:
        x = country_name(rng.choice(facts()["countries"])["name"])
        x = rng.choice(CITIES_KNOWN) if rng.random() < 0.3 else x
        user = ask(rng, PLACE, held, x=x)
    elif held or rng.random() < 0.4:
        user = ask(rng, UNKNOWN, held, x=x, y=y)
    else:
        x = rng.choice([x, x, f"the {x.split(' ')[-1]}", f"my {x.split(' ')[-1]}"])
        user = _beyond(rng, x, y)
    answers = [a.format(x=x) for a in UNKNOWN_ANSWERS]
    thought = f"I do not know enough about {x}."
    return [Turn("unknown", user, rng.choice(answers), thought, OR.join([*answers, *DECLINE]))]
