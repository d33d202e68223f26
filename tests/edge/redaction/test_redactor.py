from __future__ import annotations

from edge.protocol.frames import Message
from edge.redaction.redactor import Redactor, recognisers


def redact(redactor: Redactor, *texts: str) -> list[str]:
    return [message.content for message in redactor.redact([Message("user", text) for text in texts])]


def test_the_same_datum_keeps_its_placeholder_and_no_two_share_one() -> None:
    redactor = Redactor(recognisers())
    first = redact(redactor, "a@example.org, b@example.org and a@example.org")
    assert first == ["[EMAIL_1], [EMAIL_2] and [EMAIL_1]"]
    assert redact(redactor, "again b@example.org") == ["again [EMAIL_2]"]
    assert dict(redactor.originals) == {"[EMAIL_1]": "a@example.org", "[EMAIL_2]": "b@example.org"}


def test_who_was_named_in_full_is_known_by_half() -> None:
    redactor = Redactor(recognisers())
    sent = redact(
        redactor, "Thelma Brightwater and Mark Stone came.", "Brightwater was late. A stone, a Stone, a mark."
    )
    assert sent == ["[NAME_1] and [NAME_2] came.", "[NAME_3] was late. A stone, a [NAME_4], a mark."]
    assert redactor.originals["[NAME_3]"] == "Brightwater"


def test_what_had_its_cue_elsewhere_is_replaced_everywhere_and_in_whole_words() -> None:
    redactor = Redactor(recognisers())
    assert redact(redactor, "Ann said hello.", "My name is Ann.", "Annals are not Ann") == [
        "[NAME_1] said hello.",
        "My name is [NAME_1].",
        "Annals are not [NAME_1]",
    ]


def test_a_placeholder_that_the_user_wrote_is_no_placeholder_of_ours() -> None:
    redactor = Redactor(recognisers())
    assert redact(redactor, "[EMAIL_1] means a@example.org") == ["[EMAIL_1] means [EMAIL_2]"]
    assert "[EMAIL_1]" not in redactor.originals


def test_roles_stay_and_text_without_data_is_untouched() -> None:
    redactor = Redactor(recognisers())
    message = Message("system", "Be brief. Today is 2025-01-02.")
    assert redactor.redact([message]) == (message,)


def test_names_can_be_left_alone() -> None:
    assert redact(Redactor(recognisers(with_names=False)), "My name is Ann.") == ["My name is Ann."]
