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
    talk: 16.0,
    topics: 8.0,
    common: 9.0,
    abilities: 7.0,
    skills_asked: 3.0,
    echoes: 2.0,
    judgements: 6.0,
    edgekit: 9.0,
    devices: 4.0,
    unknown: 8.0,
    countries: 10.0,
    elements: 6.0,
    things: 6.0,
    words: 10.0,
    arithmetic: 13.0,
    numbers: 6.0,
    units: 6.0,
    dates: 5.0,
    letters: 11.0,
    lists: 9.0,
    json_objects: 4.0,
    extraction: 3.0,
    copies: 4.0,
    lines: 3.0,
    writing: 6.0,
    memory: 11.0,
    not_told: 1.5,
    two_questions: 10.0,
    more_about: 2.0,
    passages: 7.0,
    declined: 8.0,
    kind_words: 4.0,
    more_numbers: 6.0,
    fits: 2.5,
}
