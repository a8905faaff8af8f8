"""Pictures of pages as trees of elements, to be read by what they show."""

from html.parser import HTMLParser
from xml.etree.ElementTree import TreeBuilder


class _Tree(HTMLParser):
    """Builds a tree of elements."""

    def __init__(self, markup):
        super().__init__()
        self.builder = TreeBuilder()
        self.feed(f"<div>{markup}</div>")
        self.close()

    def handle_starttag(self, tag, attrs):
        self.builder.start(tag, {name: value or "" for name, value in attrs})

    def handle_endtag(self, tag):
        self.builder.end(tag)

    def handle_data(self, data):
        self.builder.data(data)


class Picture:
    """Elements of a picture, with the text in each."""

    def __init__(self, markup):
        self.root = _Tree(markup).builder.close()

    def all(self, tag, **attributes):
        return [
            one
            for one in self.root.iter(tag)
            if all(one.get(name.rstrip("_")) == wanted for name, wanted in attributes.items())
        ]

    def texts(self, tag, **attributes):
        return ["".join(one.itertext()) for one in self.all(tag, **attributes)]

    @property
    def caption(self):
        return self.texts("figcaption")[0]

    @property
    def label(self):
        """What a screen reader says."""
        return next(label for one in self.root.iter("svg") if (label := one.get("aria-label")))

    @property
    def keys(self):
        return [
            text
            for one in self.all("p", class_="keys")
            for text in map("".join, map(list, (e.itertext() for e in one)))
        ]

    def boxes(self):
        """Left end, width and title of each box in percent of the picture."""
        return [
            (float(one.get("x")[:-1]), float(one.get("width")[:-1]), one.find("title").text)
            for one in self.root.iter("svg")
            if one.find("rect") is not None and one.find("title") is not None
        ]
