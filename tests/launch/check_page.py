"""Judges a report as a stranger's program would: well-formed, self-contained, harmless.

    check_page.py PAGE [TEXT...]      every TEXT must stand in the page, as text
"""
import re
import sys
from html.parser import HTMLParser

VOID = {"meta", "br", "img", "hr", "input", "link", "col", "wbr", "base", "area", "embed", "source"}
ALLOWED = {
    "html", "head", "meta", "title", "style", "body", "header", "main", "nav", "section", "article",
    "h1", "h2", "h3", "h4", "p", "a", "b", "small", "span", "div", "dl", "dt", "dd", "br", "pre",
    "details", "summary", "figure", "figcaption", "img", "table", "caption", "thead", "tbody", "tr",
    "th", "td", "svg", "desc", "g", "rect", "line", "path", "circle", "text",
}


class Page(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.flaws, self.text, self.ids, self.links = [], [], [], [], []

    def flaw(self, what):
        self.flaws.append("line %d: %s" % (self.getpos()[0], what))

    def handle_starttag(self, tag, attributes):
        if tag not in ALLOWED:
            self.flaw("element <%s>" % tag)
        names = [name for name, _ in attributes]
        if len(names) != len(set(names)):
            self.flaw("<%s> has an attribute twice" % tag)
        for name, value in attributes:
            if name.startswith("on") or value is None and name != "open":
                self.flaw("attribute %s of <%s>" % (name, tag))
            if name in ("src", "href", "data", "action", "xlink:href", "srcset", "poster"):
                if tag == "img" and value.startswith("data:image/png;base64,iVBORw0KGgo"):
                    continue
                if not value.startswith("#"):
                    self.flaw("<%s> refers to %.60s" % (tag, value))
                self.links.append(value[1:])
            if name == "id":
                self.ids.append(value)
            if name == "style" and not re.fullmatch(r"width:\d+px", value):
                self.flaw("style %s" % value)
            if name in ("d", "x", "y", "width", "height") and re.search(r"nan|inf", value):
                self.flaw("%s=%.40s" % (name, value))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            self.flaw("</%s> closes %s" % (tag, self.open[-1:] or "nothing"))
        else:
            self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            if re.search(r"url\(|@import|expression", data):
                self.flaw("the style sheet refers to something")
        else:
            self.text.append(data)

    def handle_comment(self, data):
        self.flaw("a comment")

    def handle_pi(self, data):
        self.flaw("<?%s" % data)


def main():
    path, wanted = sys.argv[1], sys.argv[2:]
    with open(path, "rb") as file:
        data = file.read()
    page = Page()
    source = data.decode("utf-8")
    page.feed(source)
    page.close()
    flaws = page.flaws + ["<%s> is not closed" % tag for tag in page.open]
    text = "".join(page.text)
    flaws += ["no text: %s" % word for word in wanted if word not in text]
    flaws += ["id %s twice" % i for i in set(page.ids) if page.ids.count(i) > 1]
    flaws += ["no id %s" % link for link in page.links if link not in page.ids]
    flaws += ["no title in <svg>" for svg in re.findall(r"<svg[^>]*>\s*(?!<title>)", source)
              if not re.search(re.escape(svg) + r"\s*<title>", source)]
    flaws += ["%d bytes" % len(data)] if len(data) > 2 << 20 else []
    if not source.startswith("<!DOCTYPE html>"):
        flaws.append("no doctype")
    for flaw in flaws[:20]:
        print(flaw)
    print("%s: %d bytes, %d flaws" % (path, len(data), len(flaws)))
    sys.exit(1 if flaws else 0)


main()
