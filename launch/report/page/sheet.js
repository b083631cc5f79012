/* The sheet of `octet data --preview`: a row for each sample, as evaluated and in the first epochs. */
function sheet(s) {
    const values = (texts) => texts.map((text) => el("small", null, text));
    const label = (row) => {
        const name = el("th", { scope: "row" }, str(row, "class") && el("b", null, row.class), el("span", null, row.name),
                        values(list(row, "values")));
        if (row.colour) name.style.borderLeftColor = row.colour;
        return name;
    };
    const picture = (p) => el("td", null, pngImage(p.png, "sample"), values(list(p, "values")));
    document.title = `${s.name} · Octet data`;
    document.body.append(
        el("header", null, el("p", { class: "brand" }, "Octet data"), el("h1", null, s.name),
            el("p", { class: "sub" }, s.about), el("p", { class: "chips" }, s.transforms.map((t) => el("span", null, t)))),
        el("main", null, el("div", { class: "box", tabindex: 0 }, el("table", { class: "sheet" },
            el("thead", null, el("tr", null, el("td"), s.columns.map((c) => el("th", { scope: "col" }, c)))),
            el("tbody", null, s.rows.map((row) => el("tr", null, label(row), row.pictures.map(picture))))))));
}
