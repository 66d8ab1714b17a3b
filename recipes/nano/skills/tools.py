"""Tools that nano can call: their schemas, requests that need them, and their results."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from edgekit.recipes.nano.chat import Call, Turn
from edgekit.recipes.nano.skills.base import phrase
from edgekit.recipes.nano.skills.text import COLORS, some_city, some_name

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


TOOLS = [
    Tool("get_weather", "Get the weather of a city", {"city": ("string", "Name of the city")},
         ["What is the weather in {city}?", "How is the weather in {city}?", "Weather in {city}?",
          "Is it warm in {city}?",
          "Tell me the weather in {city}.", "Will it rain in {city}?"],
         lambda r: {"city": some_city(r)},
         lambda r, a: {"temperature": r.randrange(-5, 35), "sky": r.choice(["sunny", "cloudy",
                                                                            "rainy", "windy"])},
         "In {city} it is {sky} with {temperature} degrees."),
    Tool("get_time", "Get the local time of a city", {"city": ("string", "Name of the city")},
         ["What time is it in {city}?", "Tell me the time in {city}.", "Time in {city}?",
          "What is the local time in {city}?",
          "Which time is it in {city}?"],
         lambda r: {"city": some_city(r)},
         lambda r, a: {"time": f"{r.randrange(24):02d}:{r.randrange(60):02d}"},
         "It is {time} in {city}."),
    Tool("multiply", "Multiply two numbers",
         {"a": ("number", "First number"), "b": ("number", "Second number")},
         ["Multiply {a} and {b} with the tool.", "What is {a} times {b}?",
          "Use the tool: {a} * {b}", "Calculate {a} * {b}.",
          "What is the product of {a} and {b}?"],
         lambda r: {"a": _number(r, 1000), "b": _number(r, 1000)},
         lambda r, a: str(int(a["a"]) * int(a["b"])), "{a} times {b} is {result}."),
    Tool("set_timer", "Start a timer", {"minutes": ("integer", "Length in minutes")},
         ["Set a timer for {minutes} minutes.", "Start a timer of {minutes} minutes.",
          "Remind me in {minutes} minutes.",
          "Wake me in {minutes} minutes.", "Timer: {minutes} minutes"],
         lambda r: {"minutes": _number(r, 90)}, lambda r, a: {"status": "started"},
         "The timer is set for {minutes} minutes."),
    Tool("turn_on_light", "Switch on the light in a room", {"room": ("string", "The room")},
         ["Turn on the light in the {room}.", "Switch on the {room} light.",
          "Light in the {room}, please.",
          "Please turn on the {room} lamp.", "Light on in the {room}!"],
         lambda r: {"room": r.choice(["kitchen", "bedroom", "bathroom", "garage", "garden",
                                      "office", "hall"])},
         lambda r, a: {"status": "on"}, "The light in the {room} is on."),
    Tool("send_message", "Send a message to a person",
         {"to": ("string", "Who receives it"), "text": ("string", "The message")},
         ["Send {to} the message: {text}", "Tell {to}: {text}", "Write to {to}: {text}",
          "Send a message to {to}: {text}",
          "Message {to}: {text}"],
         lambda r: {"to": some_name(r), "text": r.choice(
             ["I am late", "See you soon", "Call me back", "Happy birthday", "Dinner is ready",
              "I am at home", "Good luck",
              "The train is late", "Thank you", "I miss you"])},
         lambda r, a: {"status": "sent"}, "I sent the message to {to}."),
    Tool("play_music", "Play a kind of music", {"genre": ("string", "Kind of music")},
         ["Play some {genre}.", "I want to hear {genre}.", "Put on {genre} music.",
          "Can you play {genre}?", "Play {genre} music."],
         lambda r: {"genre": r.choice(["jazz", "rock", "classical", "pop", "folk", "blues",
                                       "piano"])},
         lambda r, a: {"status": "playing"}, "Now playing {genre}."),
    Tool("device_status", "Read the status of a device",
         {"device": ("string", "Name of the device")},
         ["What is the status of the {device}?", "How warm is the {device}?",
          "Check the {device}.", "Is the {device} fine?",
          "Read the status of the {device}."],
         lambda r: {"device": r.choice(["Jetson Orin Nano", "Jetson Orin NX", "Jetson AGX Orin",
                                        "Jetson AGX Thor", "DGX Spark"])},
         lambda r, a: {"temperature": r.randrange(35, 80),
                       "memory_free": f"{r.randrange(1, 100)} GB"},
         "The {device} is at {temperature} degrees with {memory_free} of free memory."),
    Tool("list_files", "List the files of a folder", {"path": ("string", "The folder")},
         ["List the files in {path}.", "What is in {path}?", "Show me the files in {path}",
          "Which files are in {path}?", "ls {path}"],
         lambda r: {"path": r.choice(["/home", "/tmp", "/data", "/models", "/home/ana", "/var/log",
                                      "/opt/edgekit"])},
         lambda r, a: {"files": ", ".join(r.sample(["a.txt", "notes.md", "model.onnx", "data.csv",
                                                    "log.txt", "photo.png"], 3))},
         "The files are {files}."),
    Tool("convert_currency", "Convert an amount of money",
         {"amount": ("number", "The amount"), "source": ("string", "From currency"),
          "target": ("string", "To currency")},
         ["Convert {amount} {source} to {target}.", "How much is {amount} {source} in {target}?",
          "{amount} {source} in {target}?",
          "Change {amount} {source} into {target}.", "What are {amount} {source} in {target}?"],
         lambda r: dict(zip(("amount", "source", "target"),
                            (_number(r, 500), *r.sample(["USD", "EUR", "JPY", "GBP", "CHF"], 2)),
                            strict=True)),
         lambda r, a: {"value": r.randrange(1, 900)}, "{amount} {source} are {value} {target}."),
    Tool("search", "Search the web", {"query": ("string", "What to search for")},
         ["Search for {query}.", "Look up {query}.", "Find {query} on the web.",
          "Please look up {query}.", "Search the web for {query}."],
         lambda r: {"query": r.choice(["cheap flights", "good books", "cat videos", "train times",
                                       "new films", "pizza recipe",
                                       "red shoes", "city map", "old songs", "Jetson news"])},
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
    user = phrase(rng, tool.asks, held).format(**arguments)
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
