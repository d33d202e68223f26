"""Words that tell names from other capitalised words: common given names, Japanese family names, and what is no name.

Written from general knowledge, short on purpose: a name that isn't here is found by its cue or its company, or not at
all (docs/privacy.md has the figures).
"""

from __future__ import annotations

from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


GIVEN: Final = _words("""
    Aaron Abdul Abigail Adam Adrian Adriana Adrien Agnes Agnès Ahmed Aisha Akira Alan Alba Albert Alberto Alejandra
    Alejandro Alex Alexander Alexandra Alexandre Alexis Alfonso Alfred Ali Alice Alicia Alina Aline Alison Álvaro
    Amanda Amélie Amina Amir Amit Amy Ana Anaïs Andre André Andrea Andreas Andrés Andrew Angela Ángel Angelika Anil
    Anita Anja Anjali Anke Ann Anna Anne Annette Annika Anthony Antoine Anton Antonia Antonio Arjun Armin Arnaud
    Arthur Arturo Arun Ashley Astrid Audrey Aurélie Axel Ayşe Barbara Bastien Beate Beatrice Beatriz Ben Benedikt
    Benjamin Benoît Bernard Bernd Bettina Bill Birgit Björn Blanca Bob Brandon Brenda Brian Bruno Camille Carla
    Carlos Carmen Carol Carole Carolina Caroline Catalina Catherine Cécile Céline Charles Charlotte Chloe Chloé
    Christian Christina Christine Christoph Christophe Christopher Claire Clara Claudia Claus Clément Colin Corinne
    Cornelia Cristina Cynthia Daisuke Damien Daniel Daniela Danielle David Deborah Deepak Delphine Denis Dennis
    Derek Diana Diane Didier Diego Dieter Dirk Dmitri Dominik Dominique Donald Donna Doris Dorothea Dylan Eduardo
    Edward Eileen Elena Eleanor Elif Elisa Elisabeth Élise Elizabeth Elke Ella Ellen Élodie Elsa Emil Emilia Emilie
    Émilie Emilio Emily Emma Enrique Eric Éric Erik Erika Ernst Esteban Esther Ethan Eugenia Eva Evelyn Fabian
    Fabien Fatima Federico Felipe Felix Félix Fernanda Fernando Finn Fiona Florence Florian Francesca Francis
    Francisco Franck François Françoise Frank Franz Fred Frederic Frédéric Friedrich Gabriel Gabriela Gabriele Gary
    Gaëlle Geoffrey George Georg Gérard Gerhard Gertrud Gilles Giovanni Giulia Gisela Gloria Gonzalo Gordon Graham
    Greg Gregor Guillaume Guillermo Günter Gustavo Hannah Hannes Hans Harald Harold Harry Hassan Hassiba Heather
    Hector Héctor Heike Heinrich Heinz Helen Helena Hélène Helga Helmut Hendrik Henri Henry Herbert Hermann Hiroshi
    Holger Howard Hubert Hugo Ian Ibrahim Ignacio Ines Inés Inès Inge Ingrid Irene Isabel Isabelle Isaac Ivan Iván
    Jack Jacob Jacqueline Jacques Jaime Jakob James Jamie Jan Jana Jane Janet Jason Javier Jean Jeanne Jennifer Jens
    Jeremy Jérôme Jessica Jesús Jill Jim Joachim Joan Joanna Joaquín Joe Joel Johan Johanna Johannes John Jonas
    Jonathan Jorge Jörg Josef José Joseph Joshua Joyce Juan Juana Judith Julia Julian Julián Julie Julien Juliette
    Jürgen Justin Jutta Kai Karen Karim Karin Karl Katharina Katherine Kathleen Kathrin Katja Kavita Keith Kelly Ken
    Kenji Kevin Khadija Kim Klaus Konrad Kristin Kumar Kurt Kyle Lara Larry Lars Laura Laurence Laurent Lea Léa Lena
    Leo León Leon Leonie Leticia Liam Linda Lisa Lorena Lothar Louis Louise Luca Lucas Lucía Lucie Lucy Ludwig Luis
    Luisa Lukas Lutz Lydia Lynn Madeleine Magdalena Maite Malik Manfred Manon Manuel Manuela Marc Marcel Marcela
    Marco Marcos Marcus Margaret Margarita Margit Maria María Mariam Marianne Marie Marina Mario Marion Marius
    Marlene Marta Martha Martin Martín Martina Martine Mary Mateo Mathieu Mathilde Matthew Matthias Maureen Maurice
    Max Maximilian Mehmet Mei Melanie Mélanie Melissa Mercedes Michael Michaela Michel Michelle Miguel Mike Mila
    Miriam Mohamed Mohammed Mónica Monica Monika Monique Moritz Muhammad Murat Nadia Nadine Nancy Natalia Natalie
    Nathalie Nathan Neha Neil Nicholas Nicola Nicolas Nicolás Nicole Niklas Nikolaus Nina Noah Noemi Noémie Nora
    Norbert Nuria Odile Ole Olga Oliver Olivia Olivier Omar Oscar Óscar Otto Pablo Paloma Pamela Pascal Patricia
    Patrick Paul Paula Paulina Pauline Pedro Penelope Peter Petra Philip Philipp Philippe Phillip Pierre Pilar Priya
    Rachel Rafael Rahul Raj Rajesh Ralf Ralph Ramón Raphaël Raquel Raúl Ravi Raymond Rebecca Reinhard Renata Renate
    René Ricardo Richard Rita Robert Roberto Robin Rodrigo Roger Roland Rolf Roman Ronald Rosa Rosemary Rubén Rudolf
    Rupert Russell Ruth Ryan Sabine Sabrina Salvador Samantha Samira Samuel Sandra Sandrine Sanjay Sara Sarah Sascha
    Scott Sean Sebastian Sebastián Sébastien Sergio Shannon Sharon Sheila Shirley Silke Silvia Simon Simone Sofia
    Sofía Solène Sonia Sonja Sophia Sophie Stefan Stefanie Stefano Stéphane Stéphanie Stephanie Stephen Steve Steven
    Stuart Susan Susana Susanne Suzanne Sven Svenja Sylvia Sylvie Takashi Tamara Tanja Tatiana Teresa Terry Theo
    Théo Theodor Theresa Thérèse Thierry Thomas Thorsten Tim Timo Timothy Tobias Todd Tom Tomás Tony Tracy Ulrich
    Ulrike Ursula Ute Uwe Valentin Valentina Valérie Vanessa Vera Verónica Véronique Veronika Vicente Victor Víctor
    Victoria Vijay Vincent Virginia Virginie Vivian Volker Walter Wanda Wayne Wendy Werner Wilhelm William Wolfgang
    Xavier Yann Yannick Yasmin Yasmine Yolanda Yuki Yuko Yusuf Yves Yvonne Zachary Zoe Zoé
""")

ALSO_WORDS: Final = _words("""
    Alba Angel April August Autumn Bill Blanca Charlotte Christian Dolores Drew Faith Florence Franck Frank Gene
    Georgia Gloria Grace Grant Guy Hope Ivy Jack Jasmin Joy June Kai Ken Leon Lily Luz Mai Marc Mark Max Mercedes
    Nancy Norman Olive Page Paloma Pat Pilar Ray Rich Rob Robin Roman Rosa Rose Ruby Rusty Salvador Skip Sidney
    Sydney Sonia Sue Summer Trinidad Victoria Violet Virginia Wanda Will
""")
"""Given names that are something else as well: names only before another capitalised word."""

JAPANESE_FAMILY: Final = _words("""
    佐藤 鈴木 高橋 田中 伊藤 渡辺 渡邊 渡部 山本 中村 小林 加藤 吉田 山田 佐々木 山口 松本 井上 木村 斎藤
    斉藤 齋藤 清水 山崎 池田 橋本 阿部 石川 山下 中島 石井 小川 前田 岡田 長谷川 藤田 後藤 近藤 村上 遠藤
    青木 坂本 福田 太田 西村 藤井 金子 岡本 藤原 三浦 中野 中川 原田 松田 竹内 小野 田村 中山 和田 石田
    上田 森田 柴田 酒井 工藤 横山 宮崎 宮本 内田 高木 安藤 谷口 大野 丸山 今井 高田 河野 藤本 村田 武田
    上野 杉山 増田 平野 菅原 小島 久保 千葉 松井 岩崎 桜井 野口 松尾 木下 菊地 菊池 野村 新井 佐野 杉本
    古川 大塚 浜田 市川 小松 島田 水野 高野 吉川 山内 西田 西川 五十嵐 北村 安田 中田 川口 平田 川崎 飯田
    本田 久保田 吉村 中西 岩田 服部 福島 川上 樋口 秋山 田口 永井 中尾 馬場 大西 川村 荒木 黒田 小山 尾崎
    望月 大橋 土屋 松下 早川 熊谷 岡崎 石原 須藤 桑原 児玉 石橋 浅野 大島 古賀 内藤 星野 関口 小池 松原
    若林
""")

NOT_JAPANESE_NAMES: Final = _words("県 市 区 町 村 府 都 駅 城 山 川 大学 銀行 商事 株式 会社 空港 支店 工業 製作")
"""What follows a family name that is a place's or a company's there."""

NO_NAME: Final = _words("""
    January February March April May June July August September October November December Monday Tuesday Wednesday
    Thursday Friday Saturday Sunday Januar Februar März Mai Juni Juli Oktober Dezember Montag Dienstag Mittwoch
    Donnerstag Freitag Samstag Sonntag Weihnachten Ostern Christmas Easter Lunes Martes Miércoles Jueves Viernes
    Sábado Domingo Street Road Avenue Lane Square Bridge Castle Tower Palace Park Garden Gardens Station Airport
    Hotel University College School Hospital Church Cathedral Museum Library Bank River Lake Mount Mountain Island
    Islands Sea Ocean Bay Valley City Town County State States Kingdom Republic Union North South East West Northern
    Southern Eastern Western Central New Old Great Upper Lower Saint San Santa Los Las El La Le Les Der Die Das The
    Den Dem Des Straße Platz Brücke Schloss Turm Dom Kirche Bahnhof Hauptbahnhof Flughafen Universität Hochschule
    Schule Krankenhaus Museum Bibliothek Bank Fluss See Berg Insel Stadt Land Kreis Bezirk Nord Süd Ost West Neue
    Neuer Neues Alte Deutsche Rue Place Pont Château Tour Gare Aéroport Université Hôpital Église Musée Banque
    Fleuve Ville Région Nord Sud Est Ouest Notre Dame Calle Plaza Puente Castillo Torre Estación Universidad
    Hospital Iglesia Museo Banco Río Ciudad Norte Sur America Africa Asia Europe Europa Australia Canada France
    Germany Spain Italy England Britain Scotland Wales Ireland Japan China India Brazil Mexico Russia Turkey Austria
    Switzerland Belgium Netherlands Poland Portugal Greece Zealand Korea Egypt Deutschland Frankreich Spanien
    Italien Österreich Schweiz Belgien Niederlande Polen Allemagne Espagne Italie Belgique Suisse Francia Alemania
    España Italia Inglaterra México Argentina Chile Colombia Perú York London Paris Berlin Madrid Rome Vienna Wien
    Hamburg Munich München Köln Frankfurt Lyon Marseille Barcelona Sevilla Tokyo American British English German
    French Spanish Italian Japanese Chinese Indian Russian European African Asian Deutsch Englisch Französisch
    Spanisch Anglais Allemand Inglés Alemán Francés Google Apple Microsoft Amazon Facebook Meta Samsung Sony
    Nintendo Toyota Honda Ford Tesla BMW Mercedes-Benz Volkswagen Siemens Bosch Nokia Intel IBM Nvidia Oracle
    Netflix Twitter YouTube LinkedIn WhatsApp Instagram Android iPhone Windows Linux Python Java JavaScript Excel
    Word Outlook Teams Zoom Slack GitHub Docker OpenAI ChatGPT Wikipedia Internet Web Inc Ltd LLC GmbH AG Corp
    Company Group Holdings Limited SA SL SARL Team Board Committee Council Meeting Conference Department Ministry
    Office Agency Institute Foundation Association Society Party Parliament Court Police Army Navy Computer Science
    Mathematics Physics Chemistry Biology History Theorem Law Act Article Chapter Section Figure Table Annual Report
    Project Plan Budget Invoice Contract Standard Version Release Server Client Database Network Security World War
    Cup League Olympic Games Prize Award Festival Day Week Month Year Night Morning President Minister Chancellor
    King Queen Prince Princess Pope Doctor Professor Director Manager Chief Officer Conseil Rapport Société
    Bibliothèque Bureau Ministère Consejo Informe Sociedad Biblioteca Oficina Ministerio Vorstand Bericht
    Jahresbericht Rechnung Vertrag Protokoll Betreff Firma Abteilung Amt Gesetz Satz Betreff Objet Asunto Subject
    From To Cc Von An De À Re Fwd Date Datum Fecha Mr Mrs Ms Miss Dr Prof Herr Herrn Frau Monsieur Madame
    Mademoiselle Mme Mlle Señor Señora Señorita Sr Sra Don Doña
""")
"""Capitalised words that are part of no person's name, or tell that what they stand beside is none."""

STARTERS: Final = _words("""
    I A An And Are As At Ask Be But By Can Call Compare Compute Could Dear Did Do Does Draft Explain Fix For From
    Give Has Have Hello Hey Hi How If Improve In Is It Its Just Let List Look Make May Maybe Meet My No Not Now Of
    Off Ok Okay On Once One Or Our Pay Please Pls Remember Remind Reply Rewrite Said Say Schedule See Send She He
    Should Show Since So Some Sort Sorry Summarise Summarize Tell Thank Thanks That Then There These They This Those
    To Today Tomorrow Tonight Translate Until Was We Were What When Where Which While Who Whom Whose Why Will With
    Would Write Yes Yesterday You Your Best Kind Regards Cheers Sincerely Yours Minutes Note Notes Ps Q Aber Als
    Also Am An Auch Auf Aus Bei Beim Bis Bitte Da Damit Dann Dass Dein Deine Dem Den Denn Der Des Die Das Dieser
    Diese Dieses Doch Du Durch Ein Eine Einen Einem Einer Er Erinnere Erkläre Erzähle Es Falls Fasse Frag Frage Für
    Ganz Gestern Gib Guten Hallo Hat Hatte Heute Hier Ich Ihr Ihre Im In Ist Ja Jetzt Kann Kannst Kein Keine Können
    Korrigiere Lass Liebe Lieber Mach Mein Meine Mit Mitteilung Morgen Muss Nach Nein Nicht Noch Nun Nur Ob Oder
    Ohne Prüfe Ruf Sag Schick Schreib Schreibe Sehr Sei Seit Sie Sind So Soll Sollte Über Um Und Uns Unser Unsere
    Unter Überweise Vergleiche Viele Vom Vor Während Wann War Warum Was Wegen Weil Wem Wen Wenn Wer Werden Wie Wieso
    Wir Wird Wo Wurde Zu Zum Zur Grüße Gruß Tag Herzliche Freundliche Danke Alors Après Au Aux Avant Avec Avez Bien
    Bonjour Bonsoir Car Ce Ces Cet Cette Chez Chère Cher Comment Comme Compare Combien Dans Depuis Demande Des Dis
    Donc Du Elle Elles En Envoie Est Et Explique Écris Fais Hier Il Ils Je Jeudi La Laquelle Le Lequel Les Leur Lui
    Lundi Ma Mais Mardi Mercredi Merci Mes Moi Mon Ne Nos Notre Nous On Ou Où Paie Par Parle Peux Plus Pour Pourquoi
    Puis Qu Quand Que Quel Quelle Qui Rappelle Rédige Résume Sa Sans Se Ses Si Son Sont Sous Sur Ta Te Tes Ton Tu Un
    Une Va Vérifie Vendredi Voici Voir Vos Votre Vous Appelle Amicalement Cordialement Salut Acta Ahora Al Algo
    Antes Aquí Así Aunque Ayer Buenas Buenos Cómo Como Compara Con Corrige Cuál Cuando Cuándo Cuánto Dale De Del
    Desde Después Dice Dile Dime Donde Dónde El Ella Ellos En Entre Envía Era Eres Es Escribe Esa Ese Eso Esta Está
    Este Esto Explica Fue Gracias Ha Habla Háblame Hace Haz Hay Hola Hoy La Las Le Llama Lo Los Mañana Mándale Me Mi
    Mira Mis Muestra Muy Nada Ni No Nos Nuestra Nuestro O Os Otra Otro Paga Para Pero Por Porque Pregunta Puede
    Puedes Puedo Pues Que Qué Querida Querido Quién Quiero Recuerda Responde Resume Se Sea Según Ser Si Sí Sin Sobre
    Son Su Sus También Te Tengo Tiene Todo Tu Tus Un Una Vale Y Ya Yo Un Saludos Abrazo Atentamente Estimado
    Estimada Comprueba
""")
"""Words that begin sentences and are no names."""

PARTICLES: Final = _words("de del la las los le du des von vom van der den zu zur da di dos bin al el y ter ten")
"""Words inside a name that are not capitalised."""

FUNCTION: Final = frozenset(word.lower() for word in STARTERS | PARTICLES) | _words("""
    about over again back before later soon home there here around out up down über wegen gegen sobald wenn dass ob bald
    demain bientôt ce cette pronto luego sobre hoy
""")
"""In lower case: what follows a given name and is no family name."""
