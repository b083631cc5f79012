/* Runs the script of a page with nothing but a document of this file's own, and prints the text that it draws.
 *
 *     node draw_page.js SCRIPT FACTS
 *
 * It fails on what a page must not hold: elements, attributes and addresses that it does not need, and NaN.
 */
const fs = require("fs"), vm = require("vm"), assert = require("assert");

const elements = new Set(("header main nav section article h1 h2 h3 h4 p a b i small span div dl dt dd br pre details " +
    "summary figure figcaption img table caption thead tbody tr th td svg title desc g rect path circle text").split(" "));
const attributes = new Set(("alt aria-label class cx cy d height href id open r role rx scope src tabindex viewBox " +
    "width x y").split(" "));
const ids = [], links = [];
let text = "";

class Node {
    constructor(tag) {
        assert(elements.has(tag), `element ${tag}`);
        Object.assign(this, { tag, style: {}, children: [], names: new Set() });
    }
    setAttribute(name, value) {
        assert(attributes.has(name) && !this.names.has(name), `attribute ${name} of ${this.tag}`);
        if (["cx", "cy", "d", "height", "r", "rx", "viewBox", "width", "x", "y"].includes(name))
            assert(!/[^-.0-9 achlmvz]/i.test(value), `${name}="${value}" of ${this.tag}`);
        if (name === "src") assert(/^data:image\/png;base64,iVBORw0KGgo[A-Za-z0-9+/=]*$/.test(value), value);
        if (name === "href") links.push(value.slice(1)), assert(value[0] === "#", value);
        if (name === "id") ids.push(value);
        this.names.add(name);
    }
    append(...children) {
        for (const child of children) {
            assert(child instanceof Node || ["string", "number"].includes(typeof child), `${child} in ${this.tag}`);
            this.children.push(child);
        }
    }
    write() {
        if (this.tag === "svg") assert.equal(this.children[0].tag, "title", "no title in svg");
        for (const child of this.children) child instanceof Node ? child.write() : (text += child);
        text += "\n";
    }
}

const body = new Node("div"), facts = { textContent: fs.readFileSync(process.argv[3], "utf8") };
const page = { document: { title: "", body, createElement: (tag) => new Node(tag),
    createElementNS: (space, tag) => new Node(tag), getElementById: (id) => (id === "facts" ? facts : null) } };
vm.runInNewContext(fs.readFileSync(process.argv[2], "utf8"), page);
body.write();
assert(page.document.title, "no title");
assert.equal(ids.length, new Set(ids).size, "an id twice");
for (const link of links) assert(ids.includes(link), `no id ${link}`);
assert(!/undefined|NaN|\[object/.test(text), "a value that does not exist");
process.stdout.write(text);
