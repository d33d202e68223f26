"""Three hundred messages with personal data whose places are known: five languages, all data made up by a seeded draw.

Whoever wrote the recognisers wrote these too, so the figures say whether the recognisers do what they were made for,
not how they do on mail of other people. Every third message has numbers that look like data and are none.
"""

from __future__ import annotations

import base64
import random
import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from stdnum import luhn
from stdnum.de import idnr
from stdnum.es import dni
from stdnum.fr import nir
from stdnum.iban import calc_check_digits
from stdnum.jp import in_ as my_number
from stdnum.us import ssn

from edge.redaction.spans import Kind, Span


@dataclass(frozen=True, slots=True)
class Labelled:
    language: str
    text: str
    spans: tuple[Span, ...]
    """The truth, in order."""


Draw = Callable[[random.Random], str]

_TEMPLATES: Final[Mapping[str, tuple[str, ...]]] = {
    "en": (
        "Hi, my name is {NAME} and you can reach me at {EMAIL} or on {PHONE}.",
        "Please write a reminder to {NAME}, {ADDRESS}, that the rent is due on 1 March 2025.",
        "Is {IBAN} a valid account number? I want to send 1,250.00 EUR to it.",
        "My card {CARD} was charged twice, order 4821-9921-0034. Draft a complaint.",
        "The form asks for my social security number, {ID}. Is it safe to give it?",
        "Why does this fail? client = OpenAI(api_key='{KEY}')",
        "Summarise: {NAME} met Paula at the station and gave her the number {PHONE}.",
        "Translate into French: Contact {EMAIL} for details, reference 2024-11-07-0012.",
        "We are moving from {ADDRESS} to {ADDRESS}. Write a notice to the neighbours.",
        "Yesterday {NAME} told the whole office about the merger. How should I react?",
        "My password is {KEY} and it is refused. What could be wrong?",
        "Dear {NAME}, thank you for your call. Improve this letter and keep {EMAIL} in it.",
        "Compute 4111 + 1234 5678 and round 3.14159265358979 to four digits.",
        "Explain this commit: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08.",
        "Is ISBN 978-3-16-148410-0 or version 10.2.34.1 newer? The ticket is 100200300400.",
        "List five facts about New York, London Bridge and Abraham Lincoln.",
        "Parcel 1Z 999 AA1 01 2345 6784 is late since 2024-12-24 18:30. What can I do?",
        "Write a regular expression for numbers such as 12-345-678 and 00:1A:2B:3C:4D:5E.",
        "Regards, {NAME}. Please make the ending of this mail friendlier. Tel. {PHONE}",
        "Change this line: AWS_ACCESS_KEY_ID={KEY} and user={EMAIL}.",
    ),
    "de": (
        "Guten Tag, mein Name ist {NAME}, meine Adresse ist {ADDRESS} und meine Nummer {PHONE}.",
        "Bitte überweise die Miete auf {IBAN}, Verwendungszweck 2024/117.",
        "Schreib eine Mahnung an Frau {NAME}, E-Mail {EMAIL}, über 349,90 Euro.",
        "Meine Steuer-ID ist {ID}. Wo trage ich sie ein?",
        "Meine Karte {CARD} wird abgelehnt, was soll ich tun?",
        "Ruf mich unter {PHONE} an, sagte {NAME} gestern Abend. Korrigiere die Kommas.",
        "Sehr geehrter Herr {NAME}, wir bestätigen Ihren Termin am 12.03.2025 um 14:30 Uhr.",
        "Das Passwort: {KEY} funktioniert nicht mehr.",
        "Ich ziehe in die {ADDRESS}. Wem muss ich das melden?",
        "Antworte {EMAIL}, dass die Lieferung 7700 1234 5678 verspätet ist.",
        "Gestern hat {NAME} den Vertrag unterschrieben. Formuliere das höflicher.",
        "Was bedeutet der Fehler 0x80070005 in Version 22.4.1.1034?",
        "Berechne 12345678 durch 37 und erkläre den Rechenweg.",
        "Die Rechnung 2024-000-123-456 über 1.299,00 Euro ist vom 03.02.2024. Fasse zusammen.",
        "Erzähle etwas über Johann Sebastian Bach, die Kantstraße und den Potsdamer Platz.",
        "Liebe {NAME}, danke für alles! Mach daraus eine Karte.",
        "Prüfe bitte, ob {IBAN} und {IBAN} dasselbe Konto sind.",
        "git clone mit dem Token {KEY} schlägt fehl. Warum?",
        "Wie sage ich {NAME} aus der Buchhaltung ab, ohne unhöflich zu sein?",
        "Unser Gerät hat die Seriennummer 4711-0815-4711 und die MAC 00:11:22:33:44:55.",
    ),
    "fr": (
        "Bonjour, je m'appelle {NAME}, voici mon adresse : {ADDRESS}.",
        "Écris à {EMAIL} que la réunion du 14/07/2025 est annulée.",
        "Mon numéro est le {PHONE}, rappelle-moi après 18h30.",
        "Fais un virement de 450,00 € sur le compte {IBAN}, référence 2025-0042.",
        "Mon numéro de sécurité sociale est {ID}, est-il bien formé ?",
        "Ma carte {CARD} a été avalée par le distributeur. Que faire ?",
        "Hier, {NAME} est venue me voir avec son chien. Corrige cette phrase.",
        "Rédige une lettre à Madame {NAME}, {ADDRESS}, pour résilier mon bail.",
        "Le mot de passe : {KEY} ne marche plus depuis ce matin.",
        "Cordialement, {NAME}. Rends la fin plus chaleureuse.",
        "Pourquoi la clé {KEY} est-elle refusée par l'interface ?",
        "Appelle {NAME} au {PHONE} et confirme par mail à {EMAIL}.",
        "Combien font 1234567 divisé par 89 ? Montre les étapes.",
        "Le colis 6A 123 456 789 01 est arrivé le 02/01/2025 à 9h15.",
        "Parle-moi de Victor Hugo, de la place de la Concorde et de l'année 1862.",
        "La version 4.12.0 du 10/10/2024 corrige l'erreur 500123.",
        "Vérifie l'IBAN {IBAN} pour moi, s'il te plaît.",
        "J'habite {ADDRESS} et je cherche un médecin près de chez moi.",
        "Demande à {NAME} de la comptabilité si la facture 20240117 est payée.",
        "Le capteur 3300-22-17 affiche 1013,25 hPa. Est-ce normal ?",
    ),
    "es": (
        "Hola, me llamo {NAME} y vivo en {ADDRESS}.",
        "Mi teléfono es {PHONE} y mi correo {EMAIL}, escríbeme una firma.",
        "Haz una transferencia de 300,50 € a la cuenta {IBAN}.",
        "Mi DNI es {ID}, ¿la letra es correcta?",
        "Me han cobrado dos veces en la tarjeta {CARD}, pedido 991-223-001.",
        "Ayer {NAME} me contó un secreto. Corrige los acentos.",
        "Estimado señor {NAME}, le confirmamos la cita del 05/06/2025 a las 10:45.",
        "La contraseña: {KEY} no funciona.",
        "Escribe a la señora {NAME}, {ADDRESS}, que su paquete ha llegado.",
        "Llama a {NAME} al {PHONE} antes de las ocho.",
        "¿Por qué falla la clave {KEY} en este programa?",
        "Responde a {EMAIL} que la factura 2024-55-102 está pagada.",
        "¿Cuánto es 9876543 entre 21? Muestra los pasos.",
        "El vuelo 2487 del 30/11/2024 salió a las 22:10 con 183 pasajeros.",
        "Háblame de Miguel de Cervantes, la Plaza Mayor y el año 1605.",
        "La versión 7.0.12 arregla el error 404221 del módulo 33-12.",
        "Saludos, {NAME}. Haz que el final suene más formal.",
        "Comprueba si {IBAN} es un IBAN español.",
        "Me mudo a {ADDRESS} el mes que viene, ¿qué trámites hay?",
        "Dile a {NAME} de ventas que la reunión se aplaza.",
    ),
    "ja": (
        "私は{NAME}と申します。連絡先は{EMAIL}です。",
        "電話番号は{PHONE}です。折り返しのメールを書いてください。",
        "{NAME}さんにお礼の手紙を書いてください。",
        "住所は{ADDRESS}です。引っ越しの挨拶状を作ってください。",
        "マイナンバー {ID} を会社に出す必要がありますか。",
        "カード番号 {CARD} が使えません。どうすればいいですか。",
        "パスワード：{KEY} が通りません。",
        "昨日、{NAME}が会議で発表しました。丁寧な文にしてください。",
        "{EMAIL} に、納期は2025年3月31日だと返信してください。",
        "{NAME}様、平素よりお世話になっております。続きを書いてください。",
        "この鍵 {KEY} で認証に失敗します。なぜですか。",
        "海外送金先は {IBAN} です。確認の文面をお願いします。",
        "12345678を37で割るといくつですか。途中の計算も示してください。",
        "注文番号 250-1234567-7654321 の荷物が12月24日に届きました。",
        "夏目漱石と富士山について、1867年から説明してください。",
        "バージョン 3.11.4 のエラー 0x8007000E とは何ですか。",
        "{NAME}さんの電話は{PHONE}、メールは{EMAIL}です。表にしてください。",
        "{ADDRESS}への行き方を教えてください。",
        "営業部の{NAME}に会議の延期を伝えてください。",
        "型番 AB-1234-5678 の定格は 1,200 W です。",
    ),
}

_NAMES: Final = {
    "en": ("Emily Carter", "James O'Connor", "Priya Sharma", "Tom Baker", "Grace Lee"),
    "de": ("Anna Schmidt", "Jürgen Müller", "Katharina von Berg", "Ole Petersen", "Ayşe Yılmaz"),
    "fr": ("Camille Dupont", "Jean-Luc Moreau", "Amélie de la Tour", "Yanis Benali", "Chloé Lefèvre"),
    "es": ("María García López", "Íñigo Ruiz", "Carmen de la Fuente", "Pablo Ortega", "Lucía Fernández"),
    "ja": ("田中太郎", "佐藤花子", "鈴木", "高橋健一", "山本"),
}
_ADDRESSES: Final = {
    "en": ("{n} Maple Street", "{n} Old Church Road", "{n} Harbour View Avenue", "Flat 3, {n} King's Court"),
    "de": ("Hauptstraße {n}", "Am Lindenweg {n}", "Goethestr. {n}, 10625 Berlin", "Marktplatz {n}"),
    "fr": (
        "{n} rue de la République",
        "{n} bis avenue Foch",
        "{n} place du Marché",
        "{n} chemin des Vignes, 69005 Lyon",
    ),
    "es": ("Calle Mayor {n}", "Avenida de la Constitución {n}", "Plaza España {n}", "Calle de Alcalá, {n}"),
    "ja": (
        "東京都新宿区西新宿{n}-8-1",
        "大阪府大阪市北区梅田{n}-1",
        "〒604-8571 京都府京都市中京区{n}",
        "神奈川県横浜市港町{n}",
    ),
}
_PHONES: Final = {
    "en": ("+1 415 555 2{d:03}", "(212) 736-5{d:03}", "020 7946 0{d:03}", "+44 161 496 0{d:03}"),
    "de": ("030 901820{d:03}", "+49 89 2180{d:03}0", "0171 2345{d:03}", "0049 221 47{d:03}10"),
    "fr": ("01 42 68 5{d2} {d}", "06 12 34 5{d2} 78", "+33 1 42 68 5{d2} 00", "0033 6 12 34 5{d2} 78"),
    "es": ("912 345 {d:03}", "+34 612 345 {d:03}", "612 345 {d:03}", "0034 93 412 3{d:03}"),
    "ja": ("03-3211-5{d:03}", "090-1234-5{d:03}", "+81 6 6341 5{d:03}", "045-671-2{d:03}"),
}


def corpus(seed: int = 8, *, each: int = 3) -> list[Labelled]:
    """`each`: messages of every template; 3 give 300."""
    rng = random.Random(seed)  # noqa: S311 (not a secret)
    return [
        _fill(language, template, rng)
        for language, templates in _TEMPLATES.items()
        for template in templates
        for _ in range(each)
    ]


def _fill(language: str, template: str, rng: random.Random) -> Labelled:
    text, spans = "", list[Span]()
    for number, part in enumerate(re.split(r"\{([A-Z]+)\}", template)):
        if number % 2 == 0:
            text += part
            continue
        kind = _kind(part)
        value = _value(kind, language, rng)
        spans.append(Span(len(text), len(text) + len(value), kind))
        text += value
    return Labelled(language, text, tuple(spans))


def _kind(name: str) -> Kind:
    kinds: dict[str, Kind] = {"EMAIL": "EMAIL", "PHONE": "PHONE", "IBAN": "IBAN", "CARD": "CARD"}
    more: dict[str, Kind] = {"ID": "ID", "KEY": "KEY", "NAME": "NAME", "ADDRESS": "ADDRESS"}
    return (kinds | more)[name]


def _value(kind: Kind, language: str, rng: random.Random) -> str:
    makers: dict[Kind, Draw] = {
        "EMAIL": _email,
        "PHONE": lambda r: _phone(language, r),
        "IBAN": _iban,
        "CARD": _card,
        "ID": _IDS[language],
        "KEY": _key,
        "NAME": lambda r: r.choice(_NAMES[language]),
        "ADDRESS": lambda r: r.choice(_ADDRESSES[language]).format(n=r.randrange(1, 120)),
    }
    return makers[kind](rng)


def _digits(count: int, rng: random.Random) -> str:
    return "".join(rng.choices(string.digits, k=count))


def _email(rng: random.Random) -> str:
    user = rng.choice(("anna.schmidt", "j_doe", "info+rechnung", "m.dupont99", "tanaka-taro"))
    return f"{user}@{rng.choice(('example.org', 'mail.example.com', 'beispiel.example', 'example.co.jp'))}"


def _phone(language: str, rng: random.Random) -> str:
    return rng.choice(_PHONES[language]).format(d=rng.randrange(10, 100), d2=rng.randrange(10))


def _iban(rng: random.Random) -> str:
    country, length = rng.choice((("DE", 18), ("AT", 16), ("NL", 0), ("BE", 0)))
    if country == "NL":
        account = f"{rng.choice(('ABNA', 'INGB', 'RABO'))}{_digits(10, rng)}"
    elif country == "BE":
        base = _digits(10, rng)
        account = f"{base}{int(base) % 97 or 97:02}"
    else:
        account = _digits(length, rng)
    compact = f"{country}{calc_check_digits(f'{country}00{account}')}{account}"
    spaced = " ".join(compact[i : i + 4] for i in range(0, len(compact), 4))
    return rng.choice((compact, spaced))


def _card(rng: random.Random) -> str:
    prefix, length = rng.choice((("4", 16), ("52", 16), ("37", 15), ("6011", 16)))
    body = prefix + _digits(length - 1 - len(prefix), rng)
    number = body + luhn.calc_check_digit(body)
    return rng.choice((number, " ".join(number[i : i + 4] for i in range(0, len(number), 4))))


def _key(rng: random.Random) -> str:
    letters = string.ascii_letters + string.digits

    def some(count: int) -> str:
        return "".join(rng.choices(letters, k=count))

    header = base64.urlsafe_b64encode(b'{"alg":"HS256"}').decode().rstrip("=")
    return rng.choice(
        (
            f"sk-{some(32)}",
            f"ghp_{some(36)}",
            f"AKIA{''.join(rng.choices(string.ascii_uppercase + string.digits, k=16))}",
            f"{header}.{some(24)}.{some(24)}",
            f"Tr0ub4dor&{some(4)}",
        )
    )


def _redrawn(draw: Draw, valid: Callable[[str], bool]) -> Draw:
    def again(rng: random.Random) -> str:
        while not valid(value := draw(rng)):
            pass
        return value

    return again


def _dni(rng: random.Random) -> str:
    number = _digits(8, rng)
    return number + dni.calc_check_digit(number)


def _nir(rng: random.Random) -> str:
    number = f"{rng.choice('12')}{_digits(2, rng)}{rng.randrange(1, 13):02}75{_digits(6, rng)}"
    return number + nir.calc_check_digits(number)


def _my_number(rng: random.Random) -> str:
    number = _digits(11, rng)
    whole = number + my_number.calc_check_digit(number)
    return rng.choice((whole, f"{whole[:4]} {whole[4:8]} {whole[8:]}"))


_IDS: Final[Mapping[str, Draw]] = {
    "en": _redrawn(lambda r: f"{_digits(3, r)}-{_digits(2, r)}-{_digits(4, r)}", ssn.is_valid),
    "de": _redrawn(lambda r: _digits(11, r), idnr.is_valid),
    "fr": _redrawn(_nir, nir.is_valid),
    "es": _redrawn(_dni, dni.is_valid),
    "ja": _redrawn(_my_number, my_number.is_valid),
}
