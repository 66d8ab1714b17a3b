"""Builds TensorRT engines, in both flavours, in a process of their own."""

from edgekit.export.engine.build import build_engine
from edgekit.export.engine.request import EngineReport, EngineRequest, Profile

__all__ = ["EngineReport", "EngineRequest", "Profile", "build_engine"]
