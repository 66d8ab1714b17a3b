"""The skills of nano, with the share each one has of the training turns."""

from edgekit.recipes.nano.skills.base import Skill
from edgekit.recipes.nano.skills.common import abilities, common, echoes
from edgekit.recipes.nano.skills.maths import arithmetic, dates, numbers, units
from edgekit.recipes.nano.skills.mixed import (
    copies,
    extraction,
    judgements,
    memory,
    more_about,
    not_told,
    skills_asked,
    two_questions,
)
from edgekit.recipes.nano.skills.reading import (
    declined,
    fits,
    kind_words,
    more_numbers,
    passages,
)
from edgekit.recipes.nano.skills.talk import devices, edgekit, talk, topics, unknown
from edgekit.recipes.nano.skills.text import json_objects, letters, lists
from edgekit.recipes.nano.skills.world import countries, elements, things, words
from edgekit.recipes.nano.skills.write import lines, writing

SKILLS: dict[Skill, float] = {
    talk: 20.0,
    topics: 8.0,
    common: 10.0,
    abilities: 4.0,
    skills_asked: 2.0,
    echoes: 1.0,
    judgements: 4.0,
    edgekit: 9.0,
    devices: 4.0,
    unknown: 4.0,
    countries: 10.0,
    elements: 6.0,
    things: 6.0,
    words: 7.0,
    arithmetic: 11.0,
    numbers: 4.0,
    units: 4.0,
    dates: 5.0,
    letters: 10.0,
    lists: 8.0,
    json_objects: 4.0,
    extraction: 3.0,
    copies: 4.0,
    lines: 3.0,
    writing: 6.0,
    memory: 10.0,
    not_told: 1.5,
    two_questions: 9.0,
    more_about: 2.0,
    passages: 6.0,
    declined: 6.0,
    kind_words: 2.0,
    more_numbers: 4.0,
    fits: 2.5,
}
