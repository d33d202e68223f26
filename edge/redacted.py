"""Privacy mode `redacted` around a route: the question leaves with placeholders, the answer is shown with the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType

import msgspec

from edge.ask import Answered
from edge.config import DeviceSettings
from edge.errors import EdgeError
from edge.redaction.restoring import Restorer
from edge.route import Question, Route
from edge.terminal import Answer


class RedactedRoute:
    """One conversation: a datum keeps its placeholder from turn to turn. The text is the target's own for the redacted
    prompt; what it would have said of the data themselves nobody knows.
    """

    verified = True

    def __init__(self, route: Route, settings: DeviceSettings) -> None:
        """Raises EdgeError where the recognisers are not installed."""
        try:
            from edge.redaction.redactor import Redactor, recognisers
        except ImportError as error:
            raise EdgeError(
                f"Privacy mode `redacted` needs recognisers ({error}): `pip install 'paceline[redact]'`, "
                "or --privacy local, in which nothing leaves."
            ) from error
        self._route = route
        self._redactor = Redactor(recognisers(with_names=settings.redact_names))
        self._in_code = settings.restore_in_code
        self.name = route.name
        self.title = f"{route.title}; personal data that was recognised stays here"

    async def ask(self, question: Question, answer: Answer) -> Answered:
        sent = self._redacted(question)
        return self._restored(await self._route.ask(sent, RestoringAnswer(answer, self._restorer)))

    async def compare(self, question: Question) -> Answered | None:
        answered = await self._route.compare(self._redacted(question))
        return None if answered is None else self._restored(answered)

    def _redacted(self, question: Question) -> Question:
        return msgspec.structs.replace(question, messages=self._redactor.redact(question.messages))

    def _restored(self, answered: Answered) -> Answered:
        restorer = self._restorer()
        return msgspec.structs.replace(answered, text=restorer.push(answered.text) + restorer.end())

    def _restorer(self) -> Restorer:
        return Restorer(self._redactor.originals, in_code=self._in_code)


class RestoringAnswer:
    """An `Answer` that shows data where placeholders come. Drafts are shown as they are: they are only hints."""

    def __init__(self, answer: Answer, restorer: Callable[[], Restorer]) -> None:
        self._answer = answer
        self._restorer = restorer()

    def drafted(self, text: str) -> None:
        self._answer.drafted(text)

    def committed(self, parts: Sequence[tuple[str, str]], agreed: int) -> None:
        self._answer.committed([(self._restorer.push(text), origin) for text, origin in parts], agreed)

    def rolled_back(self) -> None:
        self._answer.rolled_back()

    def rest(self, text: str) -> None:
        self._answer.rest(self._restorer.push(text) + self._restorer.end())

    def __enter__(self) -> RestoringAnswer:
        self._answer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._answer.__exit__(kind, error, trace)
