/* Draws a graph in layers (Sugiyama, Tagawa and Toda 1981, in its simplest form).
 *
 * A box is one layer below the lowest of those that lead to it. An arrow over several layers gets a bend in
 * each layer between. Within a layer, items are in the order of the means of their neighbours; then each is
 * pulled to the mean of its neighbours as far as the items beside it allow.
 */
const BOX = { width: 196, height: 50, layer: 24, bend: 10, gap: 16, margin: 8, bends: 20000 };

/* Boxes and bends as items {layer, width, x, up, down}: up and down are the linked items of the layers beside. */
function layOut(graph) {
    const items = graph.boxes.map((box) => ({ box, layer: 0, width: BOX.width, x: 0, up: [], down: [] }));
    for (const a of graph.arrows) items[a.to].layer = Math.max(items[a.to].layer, items[a.from].layer + 1);
    const link = (from, to) => {
        from.down.push(to);
        to.up.push(from);
    };
    const paths = graph.arrows.map((a) => {
        const path = [items[a.from]];
        for (let layer = items[a.from].layer + 1; layer < items[a.to].layer; layer++) {
            if (items.length - graph.boxes.length >= BOX.bends) break;
            path.push({ layer, width: BOX.bend, x: 0, up: [], down: [] });
            items.push(path.at(-1));
        }
        path.push(items[a.to]);
        for (let i = 1; i < path.length; i++) link(path[i - 1], path[i]);
        return path;
    });
    const layers = [];
    for (const item of items) (layers[item.layer] ??= []).push(item);
    for (const layer of layers) {
        layer.forEach((item, i) => { item.x = i * BOX.width; });
        placeLayer(layer, (item) => item.x);
    }
    for (let i = 0; i < 16; i++) sweep(layers, i % 2 === 0, i >= 8);
    return { items, layers, paths };
}

function sweep(layers, down, both) {
    const mean = (item) => {
        const near = both ? item.up.concat(item.down) : down ? item.up : item.down;
        return near.length ? near.reduce((sum, other) => sum + other.x, 0) / near.length : item.x;
    };
    for (const layer of down ? layers : [...layers].reverse()) {
        if (!both) {
            const wish = new Map(layer.map((item) => [item, mean(item)]));
            layer.sort((a, b) => wish.get(a) - wish.get(b));
        }
        placeLayer(layer, mean);
    }
}

/* The places nearest to the wishes, in squares, that keep order and distances: neighbours that would overlap
 * are pooled (isotonic regression). */
function placeLayer(layer, wish) {
    const pools = [], offsets = [];
    layer.forEach((item, i) => {
        offsets.push(i ? offsets[i - 1] + (item.width + layer[i - 1].width) / 2 + BOX.gap : 0);
        pools.push({ goal: wish(item) - offsets[i], length: 1 });
        while (pools.length > 1 && pools.at(-2).goal > pools.at(-1).goal) {
            const b = pools.pop(), a = pools.at(-1);
            a.goal = (a.length * a.goal + b.length * b.goal) / (a.length + b.length);
            a.length += b.length;
        }
    });
    const goals = pools.flatMap((pool) => Array(pool.length).fill(pool.goal));
    layer.forEach((item, i) => { item.x = goals[i] + offsets[i]; });
}

/* graph: boxes {kind, lines}, arrows {from, to, codes} that lead from an earlier box to a later one. */
function drawGraph(graph, title) {
    const { items, layers, paths } = layOut(graph);
    const left = Math.min(...items.map((item) => item.x - item.width / 2)) - BOX.margin;
    const width = Math.max(...items.map((item) => item.x + item.width / 2)) - left + BOX.margin;
    const top = (item) => BOX.margin + item.layer * (BOX.height + BOX.layer);
    const height = layers.length * (BOX.height + BOX.layer) - BOX.layer + 2 * BOX.margin;
    const x = (item) => px(item.x - left);
    const arrow = (path, i) => {
        let d = `M${x(path[0])} ${top(path[0]) + BOX.height}`;
        for (let k = 1; k < path.length; k++) {
            const y0 = top(path[k - 1]) + BOX.height, y1 = top(path[k]), middle = (y0 + y1) / 2;
            d += `V${y0}C${x(path[k - 1])} ${middle} ${x(path[k])} ${middle} ${x(path[k])} ${y1}`;
        }
        return [svg("path", { class: graph.arrows[i].codes ? "arrow" : "arrow float", d }),
                svg("path", { class: "head", d: `M${x(path.at(-1))} ${top(path.at(-1))}l-4-7h8z` })];
    };
    const box = (item) => svg("g", null, svg("title", null, item.box.lines.join("; ")),
        svg("rect", { class: `node ${item.box.kind}`, x: px(item.x - left - BOX.width / 2), y: top(item),
                      width: BOX.width, height: BOX.height, rx: 4 }),
        item.box.lines.map((line, i) => svg("text", { class: i ? "middle small" : "middle name", x: x(item),
                                                      y: top(item) + 16 + 14 * i }, cut(line, 30))));
    return svg("svg", { width: Math.ceil(width), height, viewBox: `0 0 ${Math.ceil(width)} ${height}`, role: "img" },
        svg("title", null, title), paths.map(arrow), items.filter((item) => item.box).map(box));
}
