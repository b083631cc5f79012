/* Draws a page from its facts: the JSON text of the element "facts".
 *
 * Names in the facts come from data sets, models and plug-ins: they become text nodes and attribute values,
 * never markup. A fact of another type than expected counts as absent.
 */
"use strict";

const facts = JSON.parse(document.getElementById("facts").textContent);

/* Members of facts. */

const num = (object, key) => (typeof object?.[key] === "number" ? object[key] : null);
const str = (object, key) => (typeof object?.[key] === "string" ? object[key] : null);
const list = (object, key) => (Array.isArray(object?.[key]) ? object[key] : []);

const isCount = (value) => typeof value === "number" && value >= 0;

/* Elements. Children are nodes, texts, numbers and lists of them; null and false are left out. */

function build(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes ?? {}))
        if (value !== null && value !== false) node.setAttribute(name, value);
    for (const child of children.flat(Infinity))
        if (child !== null && child !== undefined && child !== false) node.append(child);
    return node;
}

const el = (name, attributes, ...children) => build(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) =>
    build(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
const note = (...children) => el("p", { class: "note" }, children);
const missing = (sentence) => sentence && el("p", { class: "missing" }, sentence);

/* columns: [title, cell(row)], and "n" as the third for numbers, which are aligned right. */
function table(caption, columns, rows, className) {
    const kind = (column) => column[2] ?? null;
    return el("div", { class: "box", tabindex: 0, role: "region", "aria-label": caption },
        el("table", { class: className ?? null },
            el("caption", null, caption),
            el("thead", null, el("tr", null,
                columns.map((c) => el("th", { class: kind(c), scope: "col" }, c[0])))),
            el("tbody", null, rows.map((row) => el("tr", null, columns.map((c, i) =>
                el(i ? "td" : "th", { class: kind(c), scope: i ? null : "row" }, c[1](row))))))));
}

/* A text as it is, closed at first. */
const file = (summary, text) =>
    el("details", null, el("summary", null, summary), el("pre", { class: "box", tabindex: 0 }, text));

/* Base64 of a PNG file, and nothing else, becomes an image; null: it is none. */
const pngImage = (text, alt) => /^iVBORw0KGgo[A-Za-z0-9+/]*={0,2}$/.test(text ?? "")
    ? el("img", { alt, src: `data:image/png;base64,${text}` }) : null;

/* Numbers as people read them; null is a dash. A text stands for a number that is not finite. */

const cut = (text, letters) =>
    [...text].length > letters ? [...text].slice(0, letters).join("") + "…" : text;
const fixed = (value, digits) =>
    value === null ? "–" : typeof value === "string" ? value : value.toFixed(digits);
const count = (value) => (value === null ? "–" : Math.round(value).toLocaleString("en-US"));

/* At least four digits; an exponent where the number is very large or small. */
function number(value) {
    if (value === null || typeof value === "string") return value ?? "–";
    const size = Math.abs(value);
    if (size >= 1e3 && size < 1e7) return count(value);
    if (value !== 0 && (size < 1e-4 || size >= 1e7))
        return value.toExponential(3).replace(/\.?0+e/, "e");
    return String(Number(value.toPrecision(4)));
}

/* Three digits with a unit. */
function scaled(value, units) {
    if (value === null) return "–";
    let unit = 0;
    for (; value >= 999.5 && unit + 1 < units.length; unit++) value /= 1000;
    return value.toFixed(unit === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2) + units[unit];
}
const bytes = (value) => scaled(value, [" B", " kB", " MB", " GB", " TB"]);
const many = (value) => scaled(value, ["", " k", " M", " G", " T"]);

function duration(seconds) {
    const s = Math.round(seconds);
    if (s >= 3600) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
    return s >= 60 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
}

/* Small shares differ from none. */
function share(value) {
    if (value === null) return "–";
    const percent = 100 * value;
    return percent === 0 ? "0" : percent < 0.001 ? "< 0.001" : fixed(percent, 3);
}

/* A bar beside a signal-to-quantization-noise ratio in dB: 60 dB are full. */
function decibel(value) {
    if (value === null) return "–";
    const bar = el("i"), full = typeof value === "string" ? 1 : Math.max(0, Math.min(1, value / 60));
    bar.style.width = `${Math.round(100 * full)}%`;
    return [el("span", { class: value < 20 ? "meter low" : "meter" }, bar), fixed(value, 1)];
}
