"""Tools that nano can call: their schemas, requests that need them, and their results."""

# ruff: noqa: SIM905  word lists read better as text

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from edgekit.recipes.nano.chat import Call, Turn
from edgekit.recipes.nano.skills.base import ask, made_word
from edgekit.recipes.nano.skills.text import COLORS, some_city, some_name, word_pool

Arguments = dict[str, str]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: parameters (name -> type, description), requests, sample arguments, an answer."""

    name: str
    description: str
    parameters: dict[str, tuple[str, str]]
    asks: list[str]
    sample: Callable[[Random], Arguments]
    result: Callable[[Random, Arguments], dict[str, Any] | str]
    answer: str

    def schema(self) -> dict[str, Any]:
        """The OpenAI-style function schema."""
        properties = {k: {"type": t, "description": d} for k, (t, d) in self.parameters.items()}
        parameters = {"type": "object", "properties": properties, "required": list(self.parameters)}
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}


def _number(rng: Random, top: int) -> str:
    return str(rng.randrange(1, top))


MESSAGES = (
    "I am late|See you soon|Call me back|Happy birthday|Dinner is ready|I am at home|Good luck|"
    "The train is late|Thank you|I miss you|Where are you|The key is under the door|I am on my way|"
    "Bring some milk|The meeting is over|I forgot my phone|Do not wait for me|Are you coming|"
    "The car is fixed|Dinner at eight|I have the tickets|It is raining here|Good night|Well done"
).split("|")
QUERIES = (
    "cheap flights|good books|cat videos|train times|new films|pizza recipe|red shoes|city map|"
    "old songs|Jetson news|garden ideas|the best coffee|free music|bike tours|easy cakes|dog names|"
    "winter coats|quiet hotels|solar panels|chess rules|a used car|local news|birthday gifts"
).split("|")


def _text(rng: Random) -> str:
    """A message: a common one, or any words."""
    if rng.random() < 0.7:
        return rng.choice(MESSAGES)
    return " ".join(rng.choice(word_pool()) for _ in range(rng.randrange(1, 5)))


TOOLS = [
    Tool("get_weather", "Get the weather of a city", {"city": ("string", "Name of the city")},
         ["What is the weather in {city}?", "How is the weather in {city}?", "Weather in {city}?",
          "Is it warm in {city}?", "Will it rain in {city}?", "weather {city}", "{city} weather",
          "What is the weather like in {city}?", "Do I need an umbrella in {city}?",
          "How cold is it in {city}?", "Is it sunny in {city}?", "{city}: rain or sun?",
          "Give me the weather for {city}.", "How warm is {city} now?", "Is there wind in {city}?",
          "I travel to {city}. How is the weather?", "Check the weather in {city}.",
          "What temperature is it in {city}?", "Is it raining in {city}?", "forecast for {city}"],
         lambda r: {"city": some_city(r)},
         lambda r, a: {"temperature": r.randrange(-5, 35),
                       "sky": r.choice(["sunny", "cloudy", "rainy", "windy"])},
         "In {city} it is {sky} with {temperature} degrees."),
    Tool("get_time", "Get the local time of a city", {"city": ("string", "Name of the city")},
         ["What time is it in {city}?", "Tell me the time in {city}.", "Time in {city}?",
          "What is the local time in {city}?", "How late is it in {city}?", "time {city}",
          "What does the clock say in {city}?", "{city} time?", "Give me the time in {city}.",
          "Is it day or night in {city}?", "What time do they have in {city}?",
          "{city}, what time?",
          "Can I call {city} now? What time is it there?", "What is the time in {city}?",
          "Check the clock in {city}.", "Current time in {city}?", "Is it late in {city}?"],
         lambda r: {"city": some_city(r)},
         lambda r, a: {"time": f"{r.randrange(24):02d}:{r.randrange(60):02d}"},
         "It is {time} in {city}."),
    Tool("multiply", "Multiply two numbers",
         {"a": ("number", "First number"), "b": ("number", "Second number")},
         ["Multiply {a} and {b} with the tool.", "What is {a} times {b}?", "{a} * {b}",
          "Use the tool: {a} * {b}", "Calculate {a} * {b}.", "Multiply {a} by {b}.",
          "How much is {a} times {b}?", "{a} x {b}?", "I need {a} times {b}.", "{a} times {b}",
          "What is {a} x {b}?", "Please multiply {a} and {b}.", "Work out {a} * {b}.",
          "What do you get for {a} times {b}?", "Compute {a} x {b}.", "multiply {a} {b}"],
         lambda r: {"a": _number(r, 1000), "b": _number(r, 1000)},
         lambda r, a: str(int(a["a"]) * int(a["b"])), "{a} times {b} is {result}."),
    Tool("set_timer", "Start a timer", {"minutes": ("integer", "Length in minutes")},
         ["Set a timer for {minutes} minutes.", "Start a timer of {minutes} minutes.",
          "Remind me in {minutes} minutes.", "Wake me in {minutes} minutes.", "timer {minutes}",
          "I need a timer for {minutes} minutes.", "{minutes} minutes timer", "{minutes} minutes!",
          "Let me know when {minutes} minutes are over.", "Count down {minutes} minutes.",
          "Ring in {minutes} minutes.", "Set the timer to {minutes} minutes.",
          "{minutes} min timer",
          "Tell me when {minutes} minutes have passed.", "My eggs need {minutes} minutes.",
          "The cake needs {minutes} minutes in the oven.", "Start {minutes} minutes.",
          "Wake me up after {minutes} minutes.", "I will sleep {minutes} minutes. Wake me.",
          "Call me in {minutes} minutes.", "A timer, please: {minutes} min",
          "Timer for {minutes} minutes, please.", "Stop me after {minutes} minutes."],
         lambda r: {"minutes": _number(r, 90)}, lambda r, a: {"status": "started"},
         "The timer is set for {minutes} minutes."),
    Tool("turn_on_light", "Switch on the light in a room", {"room": ("string", "The room")},
         ["Turn on the light in the {room}.", "Switch on the {room} light.", "{room} light",
          "Light in the {room}, please.", "Please turn on the {room} lamp.", "light {room}",
          "It is dark in the {room}.", "I cannot see anything in the {room}.", "{room} light on",
          "Make it bright in the {room}.", "Turn the {room} light on.",
          "I need light in the {room}.",
          "Can you light up the {room}?", "Put the light on in the {room}.", "Lights on: {room}",
          "Switch the lamp in the {room} on.", "Give me some light in the {room}."],
         lambda r: {"room": r.choice(["kitchen", "bedroom", "bathroom", "garage", "garden",
                                      "office", "hall", "cellar", "living room", "attic"])},
         lambda r, a: {"status": "on"}, "The light in the {room} is on."),
    Tool("send_message", "Send a message to a person",
         {"to": ("string", "Who receives it"), "text": ("string", "The message")},
         ["Send {to} the message: {text}", "Tell {to}: {text}", "Write to {to}: {text}",
          "Send a message to {to}: {text}", "Write {to}: {text}", "A message to {to}: {text}",
          "Text {to}: {text}", "Please tell {to}: {text}", 'Send "{text}" to {to}.',
          'Tell {to} "{text}".', "To {to}: {text}", "Let {to} know: {text}", "{to}: {text}",
          "Send this to {to}: {text}", "I want to tell {to}: {text}", 'Write "{text}" to {to}.',
          "Inform {to}: {text}", "For {to}: {text}", "Say to {to}: {text}", "SMS to {to}: {text}"],
         lambda r: {"to": some_name(r), "text": _text(r)},
         lambda r, a: {"status": "sent"}, "I sent the message to {to}."),
    Tool("play_music", "Play a kind of music", {"genre": ("string", "Kind of music")},
         ["Play some {genre}.", "I want to hear {genre}.", "Put on {genre} music.",
          "Can you play {genre}?", "play {genre}", "{genre} music, please.", "{genre}, please!",
          "Let me hear {genre}.", "Start some {genre} music.", "I am in the mood for {genre}.",
          "Turn on {genre}.", "I would like to listen to {genre}.", "Music: {genre}",
          "Let's listen to {genre}.", "We want to dance to {genre}.", "How about some {genre}?"],
         lambda r: {"genre": r.choice(["jazz", "rock", "classical", "pop", "folk", "blues", "piano",
                                       "soul", "techno", "opera", "country", "punk"])},
         lambda r, a: {"status": "playing"}, "Now playing {genre}."),
    Tool("device_status", "Read the status of a device",
         {"device": ("string", "Name of the device")},
         ["What is the status of the {device}?", "How warm is the {device}?", "status {device}",
          "Check the {device}.", "Is the {device} fine?", "How is the {device} doing?",
          "How much memory is free on the {device}?", "Is the {device} hot?", "{device} status?",
          "Show me the state of the {device}.", "What does the {device} report?",
          "Test the {device}.",
          "What is the temperature of the {device}?", "Is the {device} too warm?",
          "Look at the {device}.", "Is everything all right with the {device}?"],
         lambda r: {"device": r.choice(["Jetson Orin Nano", "Jetson Orin NX", "Jetson AGX Orin",
                                        "Jetson AGX Thor", "DGX Spark"])},
         lambda r, a: {"temperature": r.randrange(35, 80),
                       "memory_free": f"{r.randrange(1, 100)} GB"},
         "The {device} is at {temperature} degrees with {memory_free} of free memory."),
    Tool("list_files", "List the files of a folder", {"path": ("string", "The folder")},
         ["List the files in {path}.", "What is in {path}?", "Show me the files in {path}",
          "Which files are in {path}?", "What does {path} contain?", "files in {path}?",
          "Show {path}", "List {path}", "Look into {path}", "Give me a list of the files in {path}",
          "Open {path} and list the files.", "Which files does {path} have?", "dir {path}",
          "What can I find in {path}?", "Is there anything in {path}?"],
         lambda r: {"path": r.choice(["/home", "/tmp", "/data", "/models", "/home/ana", "/var/log",
                                      "/opt/edgekit", f"/{made_word(r)}",
                                      f"/home/{made_word(r)}"])},
         lambda r, a: {"files": ", ".join(r.sample(["a.txt", "notes.md", "model.onnx", "data.csv",
                                                    "log.txt", "photo.png"], 3))},
         "The files are {files}."),
    Tool("convert_currency", "Convert an amount of money",
         {"amount": ("number", "The amount"), "source": ("string", "From currency"),
          "target": ("string", "To currency")},
         ["Convert {amount} {source} to {target}.", "How much is {amount} {source} in {target}?",
          "{amount} {source} in {target}?", "Change {amount} {source} into {target}.",
          "{amount} {source} to {target}", "I have {amount} {source}. How much {target} is that?",
          "Exchange {amount} {source} for {target}.", "Give me {amount} {source} in {target}.",
          "What do I get in {target} for {amount} {source}?", "{amount} {source} {target}?",
          "How many {target} do I get for {amount} {source}?",
          "Turn {amount} {source} into {target}.",
          "What is {amount} {source} worth in {target}?", "{amount} {source} as {target}, please."],
         lambda r: dict(zip(("amount", "source", "target"),
                            (_number(r, 500), *r.sample(["USD", "EUR", "JPY", "GBP", "CHF", "SEK",
                                                         "CAD", "INR"], 2)),
                            strict=True)),
         lambda r, a: {"value": r.randrange(1, 900)}, "{amount} {source} are {value} {target}."),
    Tool("search", "Search the web", {"query": ("string", "What to search for")},
         ["Search for {query}.", "Look up {query}.", "Find {query} on the web.", "search {query}",
          "Please look up {query}.", "Google {query}.", "What does the web say about {query}?",
          "I am looking for {query}.", "Look for {query} online.", "Can you find {query}?",
          "Show me {query} from the web.", "Web search: {query}", "I need {query}. Search the web.",
          "Find something about {query}.", "Try to find {query}.", "Look {query} up."],
         lambda r: {"query": r.choice(QUERIES)},
         lambda r, a: {"hits": r.randrange(1, 50)}, "I found {hits} results for {query}."),
]  # fmt: skip
# Only the evaluation sees these.
HELD_TOOLS = [
    Tool("set_color", "Set the color of a lamp", {"color": ("string", "The color")},
         ["Make the lamp {color}.", "Set the color to {color}."],
         lambda r: {"color": r.choice(COLORS)}, lambda r, a: {"status": "done"},
         "The lamp is {color}."),
    Tool("book_table", "Book a table",
         {"city": ("string", "The city"), "guests": ("integer", "How many guests")},
         ["Book a table in {city} for {guests} guests.",
          "I need a table for {guests} guests in {city}."],
         lambda r: {"city": some_city(r), "guests": _number(r, 12)},
         lambda r, a: {"status": "booked"}, "The table in {city} is booked for {guests} guests."),
    Tool("lock_gate", "Lock a gate", {"gate": ("integer", "Number of the gate")},
         ["Lock gate {gate}.", "Please lock gate number {gate}."],
         lambda r: {"gate": _number(r, 40)}, lambda r, a: {"status": "locked"},
         "Gate {gate} is locked."),
    Tool("find_contact", "Find the phone number of a person",
         {"person": ("string", "Name of the person")},
         ["What is the phone number of {person}?", "Find the number of {person}."],
         lambda r: {"person": some_name(r)}, lambda r, a: {"number": r.randrange(1000, 9999)},
         "The number of {person} is {number}."),
    Tool("add_event", "Add an event to the calendar",
         {"title": ("string", "Name of the event"), "day": ("string", "Day of the week")},
         ["Add {title} on {day} to my calendar.", "Put {title} into the calendar for {day}."],
         lambda r: {"title": r.choice(["dinner", "football", "dentist", "music lesson"]),
                    "day": r.choice(["Monday", "Friday", "Sunday"])},
         lambda r, a: {"status": "added"}, "{title} is added on {day}."),
    Tool("get_stock_price", "Get the price of a stock", {"symbol": ("string", "Stock symbol")},
         ["What is the stock price of {symbol}?", "Get the price of {symbol}."],
         lambda r: {"symbol": r.choice(["NVDA", "ABC", "QRT", "XYZ", "KLM"])},
         lambda r, a: {"price": r.randrange(10, 900)}, "{symbol} costs {price} dollars."),
    Tool("set_volume", "Set the volume", {"percent": ("integer", "Volume in percent")},
         ["Set the volume to {percent}.", "Volume to {percent} percent, please."],
         lambda r: {"percent": _number(r, 101)}, lambda r, a: {"status": "ok"},
         "The volume is {percent} percent."),
    Tool("count_words", "Count the words of a text", {"text": ("string", "The text")},
         ["Count the words of this text: {text}", "How many words are in: {text}"],
         lambda r: {"text": r.choice(["the cat sat down", "good morning", "I like green tea"])},
         lambda r, a: {"words": len(a["text"].split())}, "The text has {words} words."),
]  # fmt: skip


def tool_turn(rng: Random, tool: Tool, held: bool) -> Turn:
    """A request, the call, its result and the answer."""
    arguments = tool.sample(rng)
    user = ask(rng, tool.asks, held, **arguments)
    result = tool.result(rng, arguments)
    known: dict[str, Any] = {
        **arguments,
        **(result if isinstance(result, dict) else {"result": result}),
    }
    text = json.dumps(result) if isinstance(result, dict) else result
    shown = ", ".join(f"{k} {v}" for k, v in arguments.items())
    call = Call(tool.name, arguments, text, f"I need {tool.name} with {shown}.")
    answer = tool.answer.format(**known)
    return Turn("tool", user, answer, "I have the result.", answer, call=call)
