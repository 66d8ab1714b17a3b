"""An agent that nobody here wrote, openai-agents, uses two tools with the embedded model."""

from __future__ import annotations

import asyncio
import json

import openai
import pytest

from tests.serve.conftest import Live

agents = pytest.importorskip("agents")


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_an_agent_uses_two_tools(live: Live, api: str) -> None:
    called: list[tuple[str, str]] = []

    @agents.function_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        called.append(("get_weather", city))
        return json.dumps({"temperature": 21, "sky": "clear"})

    @agents.function_tool
    def get_time(city: str) -> str:
        """The time in a city."""
        called.append(("get_time", city))
        return json.dumps({"time": "14:30"})

    async def work() -> tuple[str, str]:
        agents.set_tracing_disabled(True)
        client = openai.AsyncOpenAI(base_url=f"{live.address}/v1", api_key="x", max_retries=0)
        kinds = {
            "chat": agents.OpenAIChatCompletionsModel,
            "responses": agents.OpenAIResponsesModel,
        }
        agent = agents.Agent(
            name="helper",
            model=kinds[api](model="nano", openai_client=client),
            tools=[get_weather, get_time],
            model_settings=agents.ModelSettings(temperature=0, max_tokens=200),
        )
        async with client:
            first = await agents.Runner.run(agent, "What is the weather in Paris?")
            items = [
                *first.to_input_list(),
                {"role": "user", "content": "What time is it in Oslo?"},
            ]
            second = await agents.Runner.run(agent, items)
        return first.final_output, second.final_output

    weather, clock = asyncio.run(work())
    assert called == [("get_weather", "Paris"), ("get_time", "Oslo")]
    assert "21" in weather
    assert "14:30" in clock
