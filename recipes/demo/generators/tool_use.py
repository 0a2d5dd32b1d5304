"""Conversations with tools: a call in the family's syntax, its result, and the answer."""

from __future__ import annotations

import json
import random
from typing import Any

from generators.task import Task, assistant, user
from generators.word_bank import CITIES, FOODS, NAMES, WEEKDAYS

WEATHERS = ("sunny", "rainy", "cloudy", "windy", "snowy", "foggy")


def tool(name: str, description: str, /, **arguments: str) -> dict[str, Any]:
    """Describe a tool; each keyword is an argument and its JSON type."""
    properties = {key: {"type": kind} for key, kind in arguments.items()}
    schema = {"type": "object", "properties": properties, "required": list(arguments)}
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


WEATHER = tool("get_weather", "Get the weather of a city.", city="string")
TIME = tool("get_time", "Get the local time of a city.", city="string")
ADD = tool("add_numbers", "Add two numbers.", a="integer", b="integer")
TABLE = tool("book_table", "Book a table.", name="string", day="string", guests="integer")
ORDER = tool("order_food", "Order food.", dish="string", count="integer")
ALL = (WEATHER, TIME, ADD, TABLE, ORDER)


def draw_call(rng: random.Random) -> tuple[dict[str, Any], str, dict[str, Any], str, str]:
    """Return (tool, question, arguments, result, answer)."""
    city = rng.choice(CITIES)
    kind = rng.choice(ALL)
    if kind is WEATHER:
        sky, degrees = rng.choice(WEATHERS), rng.randint(1, 35)
        asked = rng.choice(("What is the weather in {}?", "How is the weather in {} today?", "Is it warm in {}?"))
        result = json.dumps({"weather": sky, "degrees": degrees})
        return kind, asked.format(city), {"city": city}, result, f"It is {sky} in {city}, with {degrees} degrees."
    if kind is TIME:
        clock = f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
        asked = rng.choice(("What time is it in {}?", "Tell me the time in {}."))
        return kind, asked.format(city), {"city": city}, json.dumps({"time": clock}), f"It is {clock} in {city}."
    if kind is ADD:
        a, b = rng.randint(100, 999), rng.randint(100, 999)
        asked = rng.choice(("What is {} plus {}?", "Add {} and {}.")).format(a, b)
        return kind, asked, {"a": a, "b": b}, json.dumps({"sum": a + b}), f"The answer is {a + b}."
    if kind is TABLE:
        name, day, guests = rng.choice(NAMES), rng.choice(WEEKDAYS), rng.randint(2, 9)
        asked = f"Book a table for {guests} people on {day}. The name is {name}."
        arguments = {"name": name, "day": day, "guests": guests}
        return kind, asked, arguments, '{"booked": true}', f"The table is booked for {guests} people on {day}."
    dish, count = rng.choice(FOODS), rng.randint(1, 9)
    asked = rng.choice(("Order {} {}, please.", "I would like to order {} {}.")).format(count, dish)
    return kind, asked, {"dish": dish, "count": count}, '{"ordered": true}', f"I have ordered {count} {dish}."


def make(rng: random.Random) -> Task:
    """Write one conversation; a share of them ends at the call."""
    kind, asked, arguments, result, reply = draw_call(rng)
    others = [other for other in ALL if other is not kind]
    tools = [kind, *rng.sample(others, rng.randint(0, 2))]
    rng.shuffle(tools)
    name = kind["function"]["name"]
    call = assistant("")
    call["tool_calls"] = [{"type": "function", "function": {"name": name, "arguments": arguments}}]
    messages = [user(asked), call]
    if rng.random() < 0.75:
        messages += [{"role": "tool", "content": result}, assistant(reply)]
    return Task("tools", messages, expected=name, tools=tools)
