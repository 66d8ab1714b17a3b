"""Tools that nano can call: their schemas, requests that need them, and their results."""

# ruff: noqa: SIM905  word lists read better as text

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from edgekit.recipes.nano.chat import Call, Turn
from edgekit.recipes.nano.skills.base import Phrasings, ask, made_word
from edgekit.recipes.nano.skills.text import COLORS, some_city, some_name, word_pool

Arguments = dict[str, str]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: parameters (name -> type, description), requests, sample arguments, an answer."""

    name: str
    description: str
    parameters: dict[str, tuple[str, str]]
    asks: str | Phrasings
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
         "tool get_weather",
         lambda r: {"city": some_city(r)},
         lambda r, a: {"temperature": r.randrange(-5, 35),
                       "sky": r.choice(["sunny", "cloudy", "rainy", "windy"])},
         "In {city} it is {sky} with {temperature} degrees."),
    Tool("get_time", "Get the local time of a city", {"city": ("string", "Name of the city")},
         "tool get_time",
         lambda r: {"city": some_city(r)},
         lambda r, a: {"time": f"{r.randrange(24):02d}:{r.randrange(60):02d}"},
         "It is {time} in {city}."),
    Tool("multiply", "Multiply two numbers",
         {"a": ("number", "First number"), "b": ("number", "Second number")},
         "tool multiply",
         lambda r: {"a": _number(r, 1000), "b": _number(r, 1000)},
         lambda r, a: str(int(a["a"]) * int(a["b"])), "{a} times {b} is {result}."),
    Tool("set_timer", "Start a timer", {"minutes": ("integer", "Length in minutes")},
         "tool set_timer",
         lambda r: {"minutes": _number(r, 90)}, lambda r, a: {"status": "started"},
         "The timer is set for {minutes} minutes."),
    Tool("turn_on_light", "Switch on the light in a room", {"room": ("string", "The room")},
         "tool turn_on_light",
         lambda r: {"room": r.choice(["kitchen", "bedroom", "bathroom", "garage", "garden",
                                      "office", "hall", "cellar", "living room", "attic"])},
         lambda r, a: {"status": "on"}, "The light in the {room} is on."),
    Tool("send_message", "Send a message to a person",
         {"to": ("string", "Who receives it"), "text": ("string", "The message")},
         "tool send_message",
         lambda r: {"to": some_name(r), "text": _text(r)},
         lambda r, a: {"status": "sent"}, "I sent the message to {to}."),
    Tool("play_music", "Play a kind of music", {"genre": ("string", "Kind of music")},
         "tool play_music",
         lambda r: {"genre": r.choice(["jazz", "rock", "classical", "pop", "folk", "blues", "piano",
                                       "soul", "techno", "opera", "country", "punk"])},
         lambda r, a: {"status": "playing"}, "Now playing {genre}."),
    Tool("device_status", "Read the status of a device",
         {"device": ("string", "Name of the device")},
         "tool device_status",
         lambda r: {"device": r.choice(["Jetson Orin Nano", "Jetson Orin NX", "Jetson AGX Orin",
                                        "Jetson AGX Thor", "DGX Spark"])},
         lambda r, a: {"temperature": r.randrange(35, 80),
                       "memory_free": f"{r.randrange(1, 100)} GB"},
         "The {device} is at {temperature} degrees with {memory_free} of free memory."),
    Tool("list_files", "List the files of a folder", {"path": ("string", "The folder")},
         "tool list_files",
         lambda r: {"path": r.choice(["/home", "/tmp", "/data", "/models", "/home/ana", "/var/log",
                                      "/opt/edgekit", f"/{made_word(r)}",
                                      f"/home/{made_word(r)}"])},
         lambda r, a: {"files": ", ".join(r.sample(["a.txt", "notes.md", "model.onnx", "data.csv",
                                                    "log.txt", "photo.png"], 3))},
         "The files are {files}."),
    Tool("convert_currency", "Convert an amount of money",
         {"amount": ("number", "The amount"), "source": ("string", "From currency"),
          "target": ("string", "To currency")},
         "tool convert_currency",
         lambda r: dict(zip(("amount", "source", "target"),
                            (_number(r, 500), *r.sample(["USD", "EUR", "JPY", "GBP", "CHF", "SEK",
                                                         "CAD", "INR"], 2)),
                            strict=True)),
         lambda r, a: {"value": r.randrange(1, 900)}, "{amount} {source} are {value} {target}."),
    Tool("search", "Search the web", {"query": ("string", "What to search for")},
         "tool search",
         lambda r: {"query": r.choice(QUERIES)},
         lambda r, a: {"hits": r.randrange(1, 50)}, "I found {hits} results for {query}."),
]  # fmt: skip
# Only the evaluation sees these.
HELD_TOOLS = [
    Tool("set_color", "Set the color of a lamp", {"color": ("string", "The color")},
         "tool set_color",
         lambda r: {"color": r.choice(COLORS)}, lambda r, a: {"status": "done"},
         "The lamp is {color}."),
    Tool("book_table", "Book a table",
         {"city": ("string", "The city"), "guests": ("integer", "How many guests")},
         "tool book_table",
         lambda r: {"city": some_city(r), "guests": _number(r, 12)},
         lambda r, a: {"status": "booked"}, "The table in {city} is booked for {guests} guests."),
    Tool("lock_gate", "Lock a gate", {"gate": ("integer", "Number of the gate")},
         "tool lock_gate",
         lambda r: {"gate": _number(r, 40)}, lambda r, a: {"status": "locked"},
         "Gate {gate} is locked."),
    Tool("find_contact", "Find the phone number of a person",
         {"person": ("string", "Name of the person")},
         "tool find_contact",
         lambda r: {"person": some_name(r)}, lambda r, a: {"number": r.randrange(1000, 9999)},
         "The number of {person} is {number}."),
    Tool("add_event", "Add an event to the calendar",
         {"title": ("string", "Name of the event"), "day": ("string", "Day of the week")},
         "tool add_event",
         lambda r: {"title": r.choice(["dinner", "football", "dentist", "music lesson"]),
                    "day": r.choice(["Monday", "Friday", "Sunday"])},
         lambda r, a: {"status": "added"}, "{title} is added on {day}."),
    Tool("get_stock_price", "Get the price of a stock", {"symbol": ("string", "Stock symbol")},
         "tool get_stock_price",
         lambda r: {"symbol": r.choice(["NVDA", "ABC", "QRT", "XYZ", "KLM"])},
         lambda r, a: {"price": r.randrange(10, 900)}, "{symbol} costs {price} dollars."),
    Tool("set_volume", "Set the volume", {"percent": ("integer", "Volume in percent")},
         "tool set_volume",
         lambda r: {"percent": _number(r, 101)}, lambda r, a: {"status": "ok"},
         "The volume is {percent} percent."),
    Tool("count_words", "Count the words of a text", {"text": ("string", "The text")},
         "tool count_words",
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
