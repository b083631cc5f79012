/* Curves over the steps and histograms, as SVG. Ticks are at 1, 2 or 5 times a power of ten. */

function linearAxis(low, high, ticks) {
    const room = Math.max(Math.abs(low), Math.abs(high));
    if (high - low <= 1e-9 * room || high === low) {
        low -= room / 2 || 0.5;
        high += room / 2 || 0.5;
    }
    const raw = (high - low) / ticks, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * ([1, 2, 5].find((factor) => raw / power <= factor) ?? 10);
    const first = Math.floor(low / step + 1e-9), last = Math.ceil(high / step - 1e-9);
    const axis = { low: first * step, high: last * step, ticks: [] };
    for (let t = first; t <= last; t++) axis.ticks.push(t * step);
    axis.decimals = step >= 1 ? 0 : Math.min(Math.ceil(-Math.log10(step) - 1e-9), 12);
    return axis;
}

/* low is positive. */
function logarithmicAxis(low, high, ticks) {
    const first = Math.floor(Math.log10(low) + 1e-9), last = Math.ceil(Math.log10(high) - 1e-9);
    const powers = Math.max(last - first, 1), every = Math.ceil(powers / ticks);
    const axis = { logarithmic: true, ticks: [] };
    for (let p = first; p <= last; p += every)
        for (const factor of powers <= 2 ? [1, 2, 5] : [1]) axis.ticks.push(factor * 10 ** p);
    axis.low = axis.ticks.findLast((t) => t <= low * (1 + 1e-9));
    axis.high = axis.ticks.find((t) => t >= high * (1 - 1e-9)) ?? 10 ** (first + powers);
    return axis;
}

function place(axis, value) {
    const at = axis.logarithmic ? Math.log(value / axis.low) / Math.log(axis.high / axis.low)
                                : (value - axis.low) / (axis.high - axis.low);
    return Math.max(0, Math.min(1, at));
}

function tickText(axis, value) {
    const size = Math.abs(value), largest = Math.max(Math.abs(axis.low), Math.abs(axis.high));
    if (size < 1e-12 * largest) return "0";
    if (size >= 1e9 || size < 1e-4) return value.toExponential(2).replace(/\.?0+e/, "e");
    if (largest >= 1e6 && size >= 1e5) return Number((value / 1e6).toPrecision(4)) + "M";
    if (largest >= 1e4 && size >= 1e3) return Number((value / 1e3).toPrecision(4)) + "k";
    return axis.logarithmic ? String(Number(value.toPrecision(6))) : value.toFixed(axis.decimals);
}

const inside = (axis) => {
    const slack = 1e-9 * Math.max(Math.abs(axis.low), Math.abs(axis.high));
    return axis.ticks.filter((t) => t >= axis.low - slack && t <= axis.high + slack);
};
const px = (value) => value.toFixed(1);

/* curve: {name, series: {step, value}, colour, dots, dashed}; spans: the phases, as grounds of the curves.
 * scale: "zero" begins at zero, "free" is logarithmic where values span more than a power of ten. What is beyond
 * 1e100 is not drawn; null where nothing is. */
function plot({ title, unit, curves, spans = [], scale, width = 400, height = 210 }) {
    const drawn = curves.map((c) => ({ ...c, points: list(c.series, "step").map((step, i) => [step, c.series.value[i]])
        .filter((point) => point.every((v) => Math.abs(v) < 1e100)) })).filter((c) => c.points.length > 0);
    if (drawn.length === 0) return null;
    const steps = drawn.flatMap((c) => c.points.map(([step]) => step)).concat(spans.flatMap((s) => [s.begin, s.end]));
    const values = drawn.flatMap((c) => c.points.map(([, value]) => value));
    const range = (numbers) => numbers.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)],
                                              [Infinity, -Infinity]);
    let [low, high] = range(values);
    const wide = scale === "free" && low > 1e-100 && high > 10 * low;
    if (scale === "zero") [low, high] = [Math.min(low, 0), Math.max(high, 0)];
    const y = wide ? logarithmicAxis(low, high, 5) : linearAxis(low, high, 5);
    const [begin, end] = range(steps), x = linearAxis(begin, end, width / 90);
    if (end > begin) [x.low, x.high] = [begin, end];
    const box = { left: 50, right: width - 10, top: 20, bottom: height - 36 };
    const atX = (v) => box.left + place(x, v) * (box.right - box.left);
    const atY = (v) => box.bottom - place(y, v) * (box.bottom - box.top);

    const shapes = drawSpans(spans, box, atX);
    for (const t of inside(y))
        shapes.push(svg("path", { class: "grid", d: `M${box.left} ${px(atY(t))}H${box.right}` }),
                    svg("text", { class: "end", x: box.left - 6, y: px(atY(t) + 4) }, tickText(y, t)));
    for (const t of inside(x))
        shapes.push(svg("text", { class: atX(t) > box.right - 12 ? "end" : "middle",
                                  x: px(atX(t)), y: box.bottom + 15 }, tickText(x, t)));
    shapes.push(svg("path", { class: "axis", d: `M${box.left} ${box.bottom}H${box.right}` }),
                svg("text", { class: "middle", x: (box.left + box.right) / 2, y: height - 6 }, "step"));
    for (const c of drawn) shapes.push(drawCurve(c, atX, atY));

    const words = drawn.map((c) => `${c.name}: ${c.points.length} values, from ${number(c.points[0][1])} to ` +
        `${number(c.points.at(-1)[1])}.`).join(" ");
    return el("figure", { class: "plot" },
        el("figcaption", null, el("b", null, title), unit && [" ", unit], drawn.map((c) =>
            el("span", { class: `key k${c.colour}${c.dashed ? " dashed" : ""}${c.dots ? " dots" : ""}` },
               c.name))),
        svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" },
            svg("title", null, `${title} over the steps`), svg("desc", null, words), shapes));
}

/* Every other phase has a ground of its own; a name is written where there is room for it. */
function drawSpans(spans, box, atX) {
    let free = box.left;
    return spans.flatMap((s, i) => {
        const begin = atX(s.begin), end = atX(s.end), middle = (begin + end) / 2;
        const half = 3.5 * s.name.length, named = end - begin >= 2 * half && middle - half >= free;
        if (named) free = middle + half;
        return [
            svg("rect", { class: `span${i % 2}`, x: px(begin), y: box.top, width: px(end - begin),
                          height: box.bottom - box.top },
                svg("title", null, `${s.name}: steps ${s.begin} to ${s.end}`)),
            i > 0 && svg("path", { class: "edge", d: `M${px(begin)} ${box.top}V${box.bottom}` }),
            named && svg("text", { class: "middle", x: px(middle), y: box.top - 7 }, s.name),
        ];
    });
}

function drawCurve(c, atX, atY) {
    const line = c.points.length > 1 && svg("path", {
        class: `line c${c.colour}${c.dashed ? " dashed" : ""}`,
        d: "M" + c.points.map(([step, value]) => `${px(atX(step))} ${px(atY(value))}`).join("L") });
    const dots = c.dots || c.points.length === 1 ? c.points : [];
    return [line, dots.map(([step, value]) =>
        svg("circle", { class: `dot c${c.colour}`, cx: px(atX(step)), cy: px(atY(value)), r: 3 },
            svg("title", null, `${c.name}: ${number(value)} at step ${step}`)))];
}

/* Counts of values in bins of equal width from `from` to `to`, with the grid of the codes: low to high, `step`
 * apart, numbered lowCode to highCode. Heights are square roots of counts, so that tails are visible; bars
 * outside of the codes have a colour of their own: these values are clipped. null: no histogram. */
function histogram(title, data, grid) {
    const counts = list(data, "counts"), from = num(data, "from"), to = num(data, "to");
    const most = Math.max(0, ...counts);
    if (!counts.every(isCount) || !(from < to) || !Number.isFinite(to - from) || !(most > 0)) return null;
    const [width, height, top, side] = [320, 120, 16, 8], bottom = height - 22;
    const edge = (bin) => from + (to - from) * (bin / counts.length);
    const codes = grid.step > 0 && grid.low < grid.high && Number.isFinite((grid.high - grid.low) / grid.step);
    const view = { low: edge(counts.findIndex((c) => c > 0)),
                   high: edge(counts.findLastIndex((c) => c > 0) + 1) };
    if (codes) {
        view.low = Math.min(view.low, Math.max(grid.low, from));
        view.high = Math.max(view.high, Math.min(grid.high, to));
    }
    const at = (value) => side + place(view, value) * (width - 2 * side);
    /* A bin that reaches in among the codes is not outside. */
    const clipped = (bin) => codes && (edge(bin + 1) < grid.low - grid.step / 2 ||
                                       edge(bin) > grid.high + grid.step / 2);
    const bars = (outside) => counts.map((c, bin) => {
        if (!(c > 0) || clipped(bin) !== outside) return "";
        const tall = px(Math.max(1, Math.sqrt(c / most) * (bottom - top)));
        return `M${px(at(edge(bin)))} ${bottom}v-${tall}h` +
            `${px(Math.max(0.6, at(edge(bin + 1)) - at(edge(bin)) - 0.6))}v${tall}z`;
    }).join("");
    const axis = linearAxis(view.low, view.high, 4);
    const ticks = axis.ticks.filter((t) => t >= view.low && t <= view.high && at(t) <= width - side - 10);
    const all = counts.reduce((a, b) => a + b, 0);
    return el("figure", { class: "histogram" }, el("figcaption", null, title),
        svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" }, svg("title", null, title),
            svg("desc", null, `${count(all)} values from ${number(from)} to ${number(to)}`),
            codes && drawCodes(grid, view, at, top, bottom),
            svg("path", { class: "bar", d: bars(false) }), svg("path", { class: "bar out", d: bars(true) }),
            svg("path", { class: "axis", d: `M${side} ${bottom}H${width - side}` }),
            ticks.map((t) => svg("text", { class: at(t) < side + 12 ? null : "middle", x: px(at(t)),
                                           y: height - 6 }, tickText(axis, t)))));
}

/* The ground where codes are, and a tick for each of them, or for every 2nd, 4th, ... */
function drawCodes(grid, view, at, top, bottom) {
    const low = at(grid.low), high = at(grid.high), codes = (grid.high - grid.low) / grid.step;
    let every = 1, ticks = "";
    while (every < codes && ((high - low) / codes) * every < 5) every *= 2;
    for (let code = 0; code <= codes + 0.5; code += every) {
        const value = grid.low + code * grid.step;
        if (value >= view.low && value <= view.high) ticks += `M${px(at(value))} ${bottom}v4`;
    }
    return [svg("rect", { class: "codes", x: px(low), y: top, width: px(high - low), height: bottom - top }),
            svg("path", { class: "axis", d: ticks }),
            high - low >= 60 && [svg("text", { x: px(low), y: top - 4 }, `code ${grid.lowCode}`),
                                 svg("text", { class: "end", x: px(high), y: top - 4 }, grid.highCode)]];
}
