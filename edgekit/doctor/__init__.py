"""Checks of a machine: what may keep a model from running well on it, and the command that helps.

Every check reads files below one root folder, so that recorded boards test it.
"""

from edgekit.doctor.check import Check, Machine, Status
from edgekit.doctor.examine import examine

__all__ = ["Check", "Machine", "Status", "examine"]
