"""Checks a page independently of Octet: one frame, self-contained, harmless.

    check_page.py PAGE [TEXT...]

Every TEXT must stand in the page that the script draws, and no !TEXT. Where there is no Node.js to draw it, a TEXT
must stand in the facts, unless it is a word of the script.
"""
import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser

FRAME = ("html head meta meta meta meta title style body noscript h1 p ul li script script").split()
BANNED = (r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|\bFunction\(|fetch|XMLHttp|WebSocket|\bimport\b|"
          r"Storage|cookie|setTimeout|location|window|globalThis|https?:(?!//www\.w3\.org/2000/svg)")


class Page(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.tags, self.open, self.texts, self.policy = [], "", {}, ""

    def handle_starttag(self, tag, attributes):
        if tag not in ("ul", "li"):
            self.tags.append(tag)
        attributes = dict(attributes)
        self.open = "facts" if attributes.get("id") == "facts" else tag
        self.policy += attributes.get("content", "") if "http-equiv" in attributes else ""

    def handle_endtag(self, tag):
        self.open = ""

    def handle_data(self, data):
        self.texts[self.open] = self.texts.get(self.open, "") + data


def strings(value):
    if isinstance(value, dict):
        return [*value] + [s for v in value.values() for s in strings(v)]
    return [s for v in value for s in strings(v)] if isinstance(value, list) else [str(value)]


def draw(script, facts):
    """The text of the drawn page; None: there is no Node.js."""
    if not shutil.which("node"):
        return None
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("script", "facts")]
        for path, text in zip(paths, (script, facts)):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        tool = os.path.join(os.path.dirname(os.path.abspath(__file__)), "draw_page.js")
        return subprocess.run(["node", tool, *paths], check=True, stdout=subprocess.PIPE).stdout.decode("utf-8")


def main():
    path, wanted = sys.argv[1], sys.argv[2:]
    with open(path, "rb") as file:
        data = file.read()
    page = Page()
    source = data.decode("utf-8")
    page.feed(source)
    page.close()
    script, style, facts = page.texts["script"], page.texts["style"], page.texts["facts"]
    flaws = [] if page.tags == [tag for tag in FRAME if tag not in ("ul", "li")] else ["elements %s" % page.tags]
    for text in (script, style):
        if base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() not in page.policy:
            flaws.append("the policy does not allow what is there")
    if not page.policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-"):
        flaws.append("policy %s" % page.policy)
    flaws += ["script: %s" % word for word in re.findall(BANNED, script)]
    flaws += ["style: %s" % word for word in re.findall(r"url\(|@import|expression", style)]
    flaws += ["facts: %r" % c for c in re.findall("[<\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", facts)]
    known = "\n".join(strings(json.loads(facts)))
    flaws += ["facts: a control character"] if re.search("[\x00-\x08\x0b-\x1f]", known) else []
    drawn = draw(script, facts)
    for word in wanted:
        if word.startswith("!") and drawn and word[1:] in drawn:
            flaws.append("text: %s" % word[1:])
        if not word.startswith("!") and word not in (drawn if drawn is not None else known + script):
            flaws.append("no text: %s" % word)
    flaws += ["%d bytes" % len(data)] if len(data) > 2 << 20 else []
    flaws += [] if source.startswith("<!DOCTYPE html>") else ["no doctype"]
    for flaw in flaws[:20]:
        print(flaw)
    print("%s: %d bytes, %d flaws%s" % (path, len(data), len(flaws), "" if drawn is not None else ", not drawn"))
    sys.exit(1 if flaws else 0)


main()
