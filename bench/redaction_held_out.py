"""A second set of 300 labelled messages, which the recognisers were not made with: their data come from Faker's lists.

The sentences are by the same people, written before the recogniser of names without a cue (edge/redaction/uncued.py);
neither was changed to suit the other after the first run. Names stand where mail and chat have them: as subject and
object, alone, in lists, possessive, in greetings and signatures, sometimes in lower case. A third of the messages hold
capitalised words that are nobody's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from bench.redaction_corpus import Labelled
from edge.redaction.spans import Kind, Span

LOCALES: Final[Mapping[str, tuple[str, ...]]] = {
    "en": ("en_US", "en_GB", "en_IN"),
    "de": ("de_DE", "de_AT"),
    "fr": ("fr_FR", "fr_BE"),
    "es": ("es_ES", "es_MX"),
    "ja": ("ja_JP",),
}

_TEMPLATES: Final[Mapping[str, tuple[str, ...]]] = {
    "en": (
        "{NAME} hasn't answered my last three mails. How do I chase without sounding rude?",
        "Can you rewrite this so that {FIRST} understands it? We ship on Friday.",
        "I had lunch with {NAME} and {NAME} from the Berlin office, please draft the minutes.",
        "The contract was signed by {NAME} on 3 May, see the copy that {FIRST} sent.",
        "Minutes: {FIRST} reports on the budget; {FIRST} is on leave; next call Tuesday.",
        "Our landlord, {NAME}, lives at {ADDRESS}. Is he allowed to enter the flat?",
        "remind {NAME_LOWER} about the dentist tomorrow",
        "Is {NAME}'s proposal better than mine? Compare the two.",
        "Hi {FIRST},\n\nthanks for the slides.\n\nBest,\n{NAME}",
        "Pay {NAME}, IBAN {IBAN}, and write to {EMAIL} when it is done.",
        "Why would a doctor tell {NAME} to stop taking aspirin?",
        "From: {NAME} <{EMAIL}>\nSubject: Invoice\n\nSummarise this thread.",
        "My card number is {CARD}, can I give it to {NAME} over the phone?",
        "What is the weather like in {CITY} in December?",
        "Compare the Samsung Galaxy with the Google Pixel for taking pictures at night.",
        "Which is older, Windsor Castle or the Tower of London?",
        "Explain Bayes' Theorem to a student of Computer Science in plain English.",
        "Write a Python function that parses ISO dates. Use the Standard Library only.",
        "In Monday's Board Meeting we agreed on the Annual Report. Make this sound formal.",
        "Does {COMPANY_PLAIN} pay more than Deutsche Bank? I'm moving from New Zealand to South Korea.",
    ),
    "de": (
        "{NAME} meldet sich seit Tagen nicht. Wie frage ich freundlich nach?",
        "Kannst du das so umschreiben, dass {FIRST} es versteht?",
        "Ich war mit {NAME} und {NAME} beim Notar. Schreib ein Protokoll.",
        "Der Vertrag wurde von {NAME} unterschrieben, die Kopie hat {FIRST}.",
        "Protokoll: {FIRST} berichtet vom Haushalt, {FIRST} fehlt, nächster Termin Dienstag.",
        "Unser Vermieter {NAME} wohnt in der {ADDRESS}. Darf er in die Wohnung?",
        "erinnere {NAME_LOWER} an den zahnarzt",
        "Ist der Vorschlag von {NAME} besser als meiner?",
        "Hallo {FIRST},\n\ndanke für die Folien.\n\nViele Grüße\n{NAME}",
        "Überweise {NAME}, IBAN {IBAN}, und schreib dann an {EMAIL}.",
        "Warum soll {NAME} kein Aspirin mehr nehmen?",
        "Von: {NAME} <{EMAIL}>\nBetreff: Rechnung\n\nFasse den Verlauf zusammen.",
        "Darf ich die Kartennummer {CARD} am Telefon an {NAME} geben?",
        "Wie ist das Wetter in {CITY} im Dezember?",
        "Vergleiche das Samsung Galaxy mit dem Google Pixel bei Nacht.",
        "Was ist älter, Schloss Neuschwanstein oder der Kölner Dom?",
        "Erkläre den Satz von Bayes einer Studentin der Informatik in einfacher Sprache.",
        "Die Deutsche Bahn hat am Montag im Hamburger Hauptbahnhof Verspätung. Was steht mir zu?",
        "Im Vorstand haben wir den Jahresbericht und die Neue Ordnung beschlossen. Formuliere förmlich.",
        "Schreibe eine Funktion in Python für Datumsangaben nach ISO. Bitte nur mit der Standardbibliothek.",
    ),
    "fr": (
        "{NAME} ne répond plus à mes messages. Comment relancer poliment ?",
        "Peux-tu réécrire ceci pour que {FIRST} le comprenne ?",
        "J'ai déjeuné avec {NAME} et {NAME} ; rédige le compte rendu.",
        "Le contrat a été signé par {NAME}, voir la copie que {FIRST} a envoyée.",
        "Compte rendu : {FIRST} présente le budget, {FIRST} est absente, prochaine réunion mardi.",
        "Notre propriétaire, {NAME}, habite {ADDRESS}. A-t-il le droit d'entrer ?",
        "rappelle à {NAME_LOWER} le rendez-vous chez le dentiste",
        "La proposition de {NAME} est-elle meilleure que la mienne ?",
        "Bonjour {FIRST},\n\nmerci pour le document.\n\nBien à toi,\n{NAME}",
        "Paie {NAME}, IBAN {IBAN}, puis écris à {EMAIL}.",
        "Pourquoi {NAME} devrait-il arrêter l'aspirine ?",
        "De : {NAME} <{EMAIL}>\nObjet : Facture\n\nRésume cet échange.",
        "Puis-je donner le numéro de carte {CARD} à {NAME} au téléphone ?",
        "Quel temps fait-il à {CITY} en décembre ?",
        "Compare le Samsung Galaxy et le Google Pixel pour les photos de nuit.",
        "Lequel est plus ancien, le Mont-Saint-Michel ou Notre-Dame de Paris ?",
        "Explique le théorème de Bayes à une étudiante en Informatique.",
        "Le Conseil d'administration a adopté le Rapport annuel lundi à la Défense. Rends cela plus formel.",
        "Écris une fonction Python qui lit les dates ISO avec la Bibliothèque standard.",
        "La Banque de France est-elle plus ancienne que la Deutsche Bank ?",
    ),
    "es": (
        "{NAME} no contesta a mis correos. ¿Cómo insisto con educación?",
        "¿Puedes reescribir esto para que {FIRST} lo entienda?",
        "Comí con {NAME} y {NAME}; redacta el acta.",
        "El contrato lo firmó {NAME}, mira la copia que mandó {FIRST}.",
        "Acta: {FIRST} informa del presupuesto, {FIRST} no asiste, próxima reunión el martes.",
        "Nuestro casero, {NAME}, vive en {ADDRESS}. ¿Puede entrar en el piso?",
        "recuerda a {NAME_LOWER} la cita con el dentista",
        "¿Es la propuesta de {NAME} mejor que la mía?",
        "Hola, {FIRST}:\n\ngracias por el documento.\n\nUn abrazo,\n{NAME}",
        "Paga a {NAME}, IBAN {IBAN}, y escribe a {EMAIL}.",
        "¿Por qué debería {NAME} dejar la aspirina?",
        "De: {NAME} <{EMAIL}>\nAsunto: Factura\n\nResume este hilo.",
        "¿Puedo dar el número de tarjeta {CARD} a {NAME} por teléfono?",
        "¿Qué tiempo hace en {CITY} en diciembre?",
        "Compara el Samsung Galaxy y el Google Pixel para fotos de noche.",
        "¿Qué es más antiguo, la Sagrada Familia o la Torre del Oro?",
        "Explica el teorema de Bayes a una estudiante de Informática.",
        "El Consejo aprobó el lunes el Informe anual en Ciudad Real. Hazlo más formal.",
        "Escribe una función en Python que lea fechas ISO con la Biblioteca estándar.",
        "¿Es el Banco de España más antiguo que el Deutsche Bank?",
    ),
    "ja": (
        "{NAME}から返事が来ません。丁寧に催促する文を書いてください。",
        "{FIRST}にもわかるように書き直してください。",
        "{NAME}と{NAME}と昼食をとりました。議事録を作ってください。",
        "契約書には{NAME}が署名しました。",
        "議事録：{LAST}が予算を報告、{LAST}は欠席、次回は火曜日。",
        "大家の{NAME}は{ADDRESS}に住んでいます。部屋に入る権利はありますか。",
        "明日の歯医者の件、{NAME}に伝えて。",
        "{NAME}の提案は私のより良いですか。",
        "{LAST}さん、資料をありがとうございます。\n{NAME}",
        "{NAME}に IBAN {IBAN} で送金し、{EMAIL} に連絡してください。",
        "なぜ{NAME}はアスピリンをやめるべきなのですか。",
        "差出人：{NAME} <{EMAIL}>\n件名：請求書\n\n要約してください。",
        "カード番号 {CARD} を電話で{NAME}に伝えてもいいですか。",
        "{CITY}の十二月の天気はどうですか。",
        "夜の撮影ではギャラクシーとピクセルのどちらが良いですか。",
        "東京駅と大阪城はどちらが古いですか。",
        "ベイズの定理を情報科学の学生に説明してください。",
        "月曜日の取締役会で年次報告書を承認しました。もっと正式な文にしてください。",
        "標準ライブラリだけで日付を読む関数を書いてください。",
        "日本銀行と三菱商事の歴史を比べてください。",
    ),
}

_KINDS: Final[Mapping[str, Kind]] = {
    "NAME": "NAME", "FIRST": "NAME", "LAST": "NAME", "NAME_LOWER": "NAME", "ADDRESS": "ADDRESS", "EMAIL": "EMAIL",
    "IBAN": "IBAN", "CARD": "CARD",
}  # fmt: skip
"""The others, CITY and COMPANY_PLAIN, are nobody's data."""


def held_out(seed: int = 88, *, each: int = 3) -> list[Labelled]:
    """`each`: messages of every template; 3 give 300. Needs Faker, whose version decides what is drawn."""
    from faker import Faker

    messages = []
    for language, templates in _TEMPLATES.items():
        fakers = [Faker(locale) for locale in LOCALES[language]]
        for number, faker in enumerate(fakers):
            faker.seed_instance(seed + number)
        for number, template in enumerate(template for template in templates for _ in range(each)):
            messages.append(_fill(language, template, fakers[number % len(fakers)]))
    return messages


def _fill(language: str, template: str, faker: Any) -> Labelled:
    text, spans = "", list[Span]()
    for number, part in enumerate(re.split(r"\{([A-Z_]+)\}", template)):
        value = _value(part, language, faker) if number % 2 else part
        if number % 2 and part in _KINDS:
            spans.append(Span(len(text), len(text) + len(value), _KINDS[part]))
        text += value
    return Labelled(language, text, tuple(spans))


def _value(part: str, language: str, faker: Any) -> str:
    first, last = faker.first_name(), faker.last_name()
    name = f"{last}{first}" if language == "ja" else f"{first} {last}"
    values = {
        "NAME": name,
        "FIRST": first,
        "LAST": last,
        "NAME_LOWER": name.lower(),
        "ADDRESS": faker.street_address() if language != "ja" else faker.address().partition(" ")[0],
        "EMAIL": faker.email(),
        "IBAN": faker.iban(),
        "CARD": faker.credit_card_number(),
        "CITY": faker.city(),
        "COMPANY_PLAIN": "British Airways",
    }
    return str(values[part])
