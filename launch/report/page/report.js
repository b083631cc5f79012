/* The parts of a report of one run, or of two side by side. */

const runs = list(facts, "runs");
const two = runs.length > 1;
const letter = (i) => "AB"[i];

/* The run's name; of two runs with the same name their folders. */
const title = (run) =>
    (two && runs[0].name === runs[1].name && str(run.recipe, "output")) || run.name;
const runHead = (run, i, level) =>
    two && el(level, null, el("span", { class: `run r${i}` }, letter(i)), " ", title(run));
const each = (write) => runs.map((run, i) => [runHead(run, i, "h3"), write(run, i)]);
const why = (run, file) => missing(str(run.why, file));
const shortened = (rows, all, what) =>
    rows.length < all && note(`The first ${rows.length} of ${all} ${what}.`);

/* A tile for each figure that people look for first. */

const tile = (name, value, remark) =>
    el("div", { class: "tile" }, el("dt", null, name), el("dd", null, value), el("dd", { class: "note" }, remark));
const percentTile = (name, value, remark) => value !== null && tile(name, `${fixed(value, 2)} %`, remark);

function metricTile(metric) {
    const others = ["float", "qat"].filter((key) => str(metric, key))
        .map((key) => `${key === "qat" ? "QAT" : key} ${metric[key]}`);
    return tile(`int8 ${metric.name}`, metric.int8, ["as it is deployed", ...others].join("; "));
}

function resultTiles(run, result) {
    const before = num(result, "float_bytes"), after = num(result, "int8_bytes");
    const seconds = list(run, "phases").reduce((sum, p) => sum + Math.max(0, num(p, "seconds") ?? 0), 0);
    return [
        run.classifies && [
            percentTile("float accuracy", num(result, "float_accuracy"), "before quantization"),
            percentTile("QAT accuracy", num(result, "qat_accuracy"), "as it was trained"),
            percentTile("int8 accuracy", num(result, "int8_accuracy"), "as it is deployed")],
        list(run, "metrics").map(metricTile),
        tile("logits that differ", count(num(result, "logits_differ")),
             `of ${count(num(result, "logits"))} (${count(num(result, "images"))} images, QAT against int8)`),
        before > 0 && after > 0 &&
            tile("int8 parameters", bytes(after), `${(before / after).toFixed(2)} times smaller than float`),
        tile("training took", duration(seconds), `${count(num(result, "step"))} steps, without evaluation`)];
}

function progressTiles(run) {
    return [tile("not finished", `step ${count(num(run.newest, "step") ?? 0)}`,
                 run.newest ? `phase ${phase(run.newest)}` : "not begun"),
            run.classifies && percentTile("newest test accuracy", num(list(run, "evaluations").at(-1), "accuracy"),
                                          "of the last evaluation")];
}

function header(run, i) {
    const r = run.recipe;
    return el("div", null, runHead(run, i, "h2"),
        r && el("p", { class: "sub" }, "model ", el("b", null, r.model),
                `, seed ${r.seed}, target ${r.target}, run folder ${r.output}`),
        el("dl", { class: "tiles" }, run.result ? resultTiles(run, run.result) : progressTiles(run)),
        why(run, "metrics.jsonl"));
}

/* Curves. Colours separate runs, or training from evaluation. */

function curvePlot(heading, keys, options) {
    return plot({ title: heading, spans: list(runs[0], "phase_spans"), ...options,
        curves: runs.flatMap((run, i) => keys.map(([kind, key, name, dots]) => ({
            series: run.curves[kind][key], name: two ? `${letter(i)} ${name}` : name, dots,
            colour: two ? i : Number(dots), dashed: two && dots }))) });
}

function curves() {
    const known = ["loss", "lr", "images_per_s", "grad_norm"];
    const metric = Object.keys(runs[0].curves.step).find((key) => !known.includes(key));
    const percents = list(runs[0], "metrics").filter((m) => m.int8.endsWith("%")).map((m) => m.name);
    const unit = (key) => (key === "accuracy" || percents.includes(key) ? "%" : "");
    const others = Object.keys(runs[0].curves.eval)
        .filter((key) => key !== metric && !known.includes(key)).slice(0, 8);
    const plots = [
        curvePlot("loss", [["step", "loss", "training batches", false]], { scale: "free" }),
        metric && curvePlot(metric, [["step", metric, "training batches", false],
                                     ["eval", metric, "evaluation", true]], { unit: unit(metric) }),
        others.map((key) => curvePlot(key, [["eval", key, "evaluation", true]], { unit: unit(key) })),
        curvePlot("learning rate", [["step", "lr", "learning rate", false]], { scale: "zero" }),
        curvePlot("gradient norm", [["step", "grad_norm", "norm of the gradients", false]], { scale: "free" }),
    ].flat().filter(Boolean);
    if (!plots.length) return missing("No steps have been recorded yet.");
    const spans = list(runs[0], "phase_spans").map((s) => `${s.name} to step ${s.end}`);
    return [el("div", { class: "plots" }, plots), note(`Phases${two ? " of run A" : ""}: ${spans.join(", ")}.`)];
}

const phase = (record) => cut(str(record, "phase") ?? "–", 32);

function speed() {
    const columns = [["phase", phase],
        ["steps", (p) => count(num(p, "steps")), "n"], ["images", (p) => count(num(p, "images")), "n"],
        ["time, s", (p) => number(num(p, "seconds")), "n"],
        ["waiting for samples, s", (p) => number(num(p, "data_seconds")), "n"],
        ["images/s", (p) => number(num(p, "images_per_s")), "n"],
        ["peak memory of rank 0", (p) => bytes(num(p, "memory_bytes")), "n"]];
    const phases = (run) => list(run, "phases").length === 0 ? missing("No phase has ended yet.")
        : [table("Phases", columns, run.phases), run.phases.map((p) => str(p, "worse") && note(p.worse))];
    return el("div", { class: "plots" },
        curvePlot("throughput", [["step", "images_per_s", "training", false]], { unit: "images/s", scale: "zero" }),
        el("div", { class: "wide" }, each(phases)));
}

function evaluations(run) {
    const rows = list(run, "evaluations");
    if (!rows.length) return missing("Nothing has been evaluated yet.");
    const metrics = (e) => Object.entries(e.metrics ?? {}).filter(([, value]) => typeof value === "number");
    const columns = [["step", (e) => count(num(e, "step")), "n"], ["phase", phase],
        ["epoch", (e) => count(num(e, "epoch")), "n"], ["right", (e) => count(num(e, "correct")), "n"],
        ["images", (e) => count(num(e, "images")), "n"],
        ["accuracy, %", (e) => fixed(num(e, "accuracy"), 2), "n"],
        rows.some((e) => metrics(e).length) && ["other metrics", (e) =>
            metrics(e).slice(0, 8).map(([key, value]) => `${cut(key, 32)} ${number(value)}`).join(", ") || "–"],
        ["images/s", (e) => number(num(e, "images_per_s")), "n"]].filter(Boolean);
    return table(rows.length < run.evaluations_in_all ? "Evaluations (some of them)" : "Evaluations", columns, rows);
}

/* What two runs differ in. */

function differences() {
    const figures = [["float_accuracy", "float accuracy, %"], ["qat_accuracy", "QAT accuracy, %"],
        ["int8_accuracy", "int8 accuracy, %"], ["logits_differ", "logits that differ"],
        ["float_bytes", "float parameters, bytes"], ["int8_bytes", "int8 parameters, bytes"]];
    const [a, b] = runs.map((run) => run.result && { ...run.result.metrics, ...run.result });
    const both = (key) => num(a, key) !== null && num(b, key) !== null;
    const metrics = Object.keys(a?.metrics ?? {}).map((key) => [key, `int8 ${cut(key, 50)}`]);
    const results = a && b
        ? table("Results", [["figure", (f) => f[1]], ["A", (f) => number(a[f[0]]), "n"],
                            ["B", (f) => number(b[f[0]]), "n"], ["B − A", (f) => number(b[f[0]] - a[f[0]]), "n"]],
                figures.concat(metrics).filter(([key]) => both(key)))
        : missing("Results are compared when both runs are finished.");
    if (!runs.every((run) => run.recipe)) return [results, runs.map((run) => why(run, "recipe.yaml"))];
    const [old, now] = runs.map((run) => new Map(run.recipe.text.split("\n").map((line) => {
        const end = line.indexOf(":");
        return [line.slice(0, end), line.slice(end + 1).trim()];
    })));
    const keys = [...old.keys()].filter((key) => old.get(key) !== now.get(key));
    return [results, keys.length === 0 ? el("p", null, "Both runs have the same recipe.")
        : table("Keys of the recipe that differ", [["key", (key) => key], ["A", (key) => cut(old.get(key), 120)],
                                                   ["B", (key) => cut(now.get(key) ?? "–", 120)]], keys)];
}

/* Layers: codes, range, what quantizing costs in accuracy, what computing costs in work and bytes. */

const layersOf = (run) => list(run.layers, "layers");
const path = (layer) => cut(str(layer, "path") ?? "–", 64);
const type = (layer) => cut(str(layer, "type") ?? "", 32);
const output = (layer, key) => num(layer.output, key);
const rounding = (layer) => num(layer.output?.unquantized, "sqnr_db");
const quantized = (layer) => output(layer, "scale") !== null;

function layerTable(run) {
    const shape = (l) => list(l, "shape").every((n) => typeof n === "number") && list(l, "shape").join("×") || "–";
    const codes = (l) => quantized(l) ? `${output(l, "bits") ?? "?"} bits` : el("span", { class: "float" }, "float");
    const get = (key) => (l) => number(output(l, key));
    return table("Layers, in the order in which they run", [
        ["layer", (l) => [path(l), " ", el("small", null, type(l))]], ["output", shape], ["codes", codes],
        ["scale", get("scale"), "n"], ["zero point", get("zero_point"), "n"],
        ["min", get("min"), "n"], ["max", get("max"), "n"],
        ["clipped, %", (l) => share(output(l, "clipped")), "n"],
        ["SQNR of rounding, dB", (l) => decibel(rounding(l)), "n"],
        ["SQNR, dB", (l) => fixed(output(l, "sqnr_db"), 1), "n"], ["cosine", (l) => fixed(output(l, "cosine"), 4), "n"],
        ["opera­tions", (l) => many(num(l, "operations")), "n"],
        ["weights", (l) => bytes(num(l, "weight_bytes")), "n"],
        ["output size", (l) => bytes(num(l, "output_bytes")), "n"]], layersOf(run), "layers");
}

function layerFacts(layer) {
    const o = layer.output, w = layer.weight, has = (object, key) => num(object, key) !== null;
    const costs = (object) => [
        has(object, "clipped") && `${share(object.clipped)} % clipped`,
        object === o && rounding(layer) !== null && `SQNR of rounding ${fixed(rounding(layer), 1)} dB`,
        has(object, "sqnr_db") && `SQNR ${fixed(object.sqnr_db, 1)} dB`,
        object === o && has(o, "max_error") && `largest error ${number(o.max_error)}`];
    const lines = [
        [quantized(layer) ? `output: ${number(output(layer, "bits"))} bits, scale ${number(o.scale)}, zero point ` +
            number(output(layer, "zero_point")) : "output: float", ...costs(o)],
        w && [`weights: scales of channels ${number(num(w, "scale_min"))} to ${number(num(w, "scale_max"))}`, ...costs(w)]];
    return lines.filter(Boolean).map((line) => note(line.filter(Boolean).join(", ")));
}

function layerCard(run, layer) {
    const o = layer.output, w = layer.weight, scale = w?.codes ? 1 : num(w, "scale_max");
    const value = (code) => (num(o, code) - num(o, "zero_point")) * num(o, "scale");
    const pictures = [
        histogram("output", o?.histogram, { low: value("qmin"), high: value("qmax"), step: num(o, "scale"),
                                            lowCode: num(o, "qmin"), highCode: num(o, "qmax") }),
        histogram(w?.codes ? "weight codes" : "weights", w?.histogram,
                  { low: -127 * scale, high: 127 * scale, step: scale, lowCode: -127, highCode: 127 })];
    if (!pictures.some(Boolean)) return null;
    const series = run.curves.scales[layer.path], steps = list(series, "step").length;
    return el("article", { class: "card" }, el("h4", null, path(layer), " ", el("small", null, type(layer))),
        layerFacts(layer), pictures, steps > 1 &&
            plot({ title: "scale over the steps", scale: "zero", width: 320, height: 150,
                   curves: [{ name: "scale", series, colour: 0, dots: steps <= 40 }] }));
}

function layers(run) {
    const rows = layersOf(run), reference = str(run.layers, "reference");
    const cards = rows.map((layer) => layerCard(run, layer)).filter(Boolean);
    if (!rows.length) return [why(run, "layers.json"), why(run, "model.int8.h5")];
    return [why(run, "layers.json"),
        list(run.layers, "findings").map((finding) => typeof finding === "string" && note(finding)),
        reference && note(`Measured on ${count(num(run.layers, "images"))} images of the test set. SQNR of rounding ` +
            "is the price of the codes alone: the int8 model against the same weights with nothing rounded. SQNR, " +
            "cosine and the largest error are against " + (reference === "float_phase"
                ? "the float model at the end of the float phase, so they also hold what QAT has learned since."
                : "these weights, too.")),
        layerTable(run), shortened(rows, num(run.layers, "in_all"), "layers"),
        cards.length > 0 && el("details", { open: rows.length <= 24 && "" },
            el("summary", null, "Histograms, with the codes that numbers can have"),
            note("The height of a bar is the square root of its count. The coloured ground is where codes " +
                 "are; every few codes have a tick. What is outside is clipped."),
            el("div", { class: "cards" }, cards))];
}

function layerChanges() {
    const others = new Map(layersOf(runs[1]).map((layer) => [layer.path, layer]));
    const pairs = layersOf(runs[0]).filter((a) => others.has(a.path)).map((a) => [a, others.get(a.path)]);
    const alone = layersOf(runs[0]).length - pairs.length;
    const change = ([a, b]) => rounding(a) !== null && rounding(b) !== null ? rounding(b) - rounding(a) : null;
    const ratio = ([a, b]) => quantized(a) && quantized(b) ? output(b, "scale") / output(a, "scale") : null;
    return [pairs.length > 0 && table("Change of layers that both runs have", [["layer", ([a]) => path(a)],
            ["scale A", ([a]) => number(output(a, "scale")), "n"], ["scale B", ([, b]) => number(output(b, "scale")), "n"],
            ["B / A", (pair) => number(ratio(pair)), "n"],
            ["clipped A, %", ([a]) => share(output(a, "clipped")), "n"],
            ["clipped B, %", ([, b]) => share(output(b, "clipped")), "n"],
            ["SQNR of rounding A, dB", ([a]) => decibel(rounding(a)), "n"],
            ["B, dB", ([, b]) => decibel(rounding(b)), "n"], ["B − A", (pair) => fixed(change(pair), 1), "n"]], pairs),
        alone > 0 && note(`${alone} layers of A have no layer of the same name in B.`)];
}

function graph(run) {
    if (!run.program) return why(run, "model.int8.h5");
    const key = (colour, text) => el("span", { class: `key ${colour}` }, text);
    return [note("The program of the int8 model:", key("k0", "has weights"), key("k2", "codes begin and end"),
                 key("k1 dashed", "stays float")),
        el("div", { class: "box graph", tabindex: 0 }, drawGraph(run.program, "Program of the int8 model")),
        run.program.left_out > 0 && note(`${run.program.left_out} later steps are not drawn.`)];
}

function sensitivity(run) {
    const rows = list(run, "sensitivity");
    return [why(run, "run.sensitivity"), rows.length > 0 &&
        table("Each quantizer alone, the most sensitive first", [["layer", path], ["tensor", (r) => r.tensor],
            ["SQNR, dB", (r) => decibel(r.sqnr), "n"], ["cosine", (r) => fixed(r.cosine, 6), "n"],
            ["change of the loss", (r) => fixed(r.loss_change, 6), "n"]], rows),
        shortened(rows, run.sensitivity_in_all, "quantizers")];
}

/* Which classes are taken for others: a table of few classes, a picture of many. */

function confusion(run) {
    const record = run.confusion, counts = list(record, "counts"), n = counts.length;
    if (!record)
        return missing("No confusion matrix has been recorded; runs that classify record one at their end.");
    if (n < 1 || n > 100 || !counts.every((row) => Array.isArray(row) && row.length === n && row.every(isCount)))
        return missing("metrics.jsonl: the confusion matrix is not one of 1 to 100 classes with a count for each pair.");
    const ofClass = counts.map((row) => row.reduce((a, b) => a + b, 0));
    const name = (i) => cut(str(list(record, "names"), i) ?? String(i), 24);
    /* Shade 0 is nothing; the others go up with the square root of the share. */
    const shade = (i, k) => counts[i][k] > 0 ? 1 + Math.floor(Math.min(6, 7 * Math.sqrt(counts[i][k] / ofClass[i]))) : 0;
    const kind = (i, k) => `${i === k ? "hit" : "miss"} s${shade(i, k)}`;
    const percent = (part, i) => ofClass[i] ? fixed((100 * part) / ofClass[i], 1) : "–";
    const all = counts.map((_, i) => i), caption = "Rows are true classes, columns what the model says";
    const mistakes = all.flatMap((i) => all.map((k) => ({ i, k, count: counts[i][k] })))
        .filter((m) => m.i !== m.k && m.count > 0).sort((a, b) => b.count - a.count).slice(0, 12);
    const picture = () => {
        const shapes = new Map();
        for (const i of all)
            for (const k of all)
                if (shade(i, k)) shapes.set(kind(i, k), (shapes.get(kind(i, k)) ?? "") + `M${k} ${i}h1v1h-1z`);
        return el("figure", { class: "matrix" }, el("figcaption", null, caption),
            svg("svg", { viewBox: `0 0 ${n} ${n}`, role: "img" }, svg("title", null, `Confusion matrix of ${n} classes`),
                [...shapes].map(([shadeOf, d]) => svg("path", { class: shadeOf, d }))));
    };
    const matrix = () => el("div", { class: "box", tabindex: 0, role: "region", "aria-label": "Confusion matrix" },
        el("table", { class: "confusion" }, el("caption", null, caption),
            el("thead", null, el("tr", null, el("td"), all.map((k) => el("th", { class: "n", scope: "col" }, name(k))),
                                 el("th", { class: "n", scope: "col" }, "right, %"))),
            el("tbody", null, all.map((i) => el("tr", null, el("th", { scope: "row" }, name(i)),
                all.map((k) => el("td", { class: `n ${kind(i, k)}` }, count(counts[i][k]))),
                el("td", { class: "n" }, percent(counts[i][i], i)))))));
    return [n <= 24 ? matrix() : picture(), mistakes.length > 0 &&
        table("Most frequent mistakes", [["true class", (m) => name(m.i)], ["taken for", (m) => name(m.k)],
            ["how often", (m) => count(m.count), "n"], ["of its class, %", (m) => percent(m.count, m.i), "n"]], mistakes)];
}

function worst(run) {
    const samples = list(run.worst, "samples");
    const name = (s, text, index) =>
        str(s, text) !== null ? cut(s[text], 24) : num(s, index) !== null ? `class ${s[index]}` : "?";
    const picture = (s) => pngImage(str(s, "png"), `image ${num(s, "index")} of the test set`) ??
        el("span", { class: "no-image" }, "no image");
    if (!run.worst) return why(run, "worst.json");
    if (!samples.length) return missing("The int8 model classifies every test image right.");
    return el("div", { class: "samples" }, samples.map((s) => el("figure", null, picture(s), el("figcaption", null,
        name(s, "label_name", "label"), el("br"), "taken for ", el("b", null, name(s, "predicted_name", "predicted")),
        el("br"), `${fixed(100 * num(s, "probability"), 1)} %, loss ${number(num(s, "loss"))}`,
        el("br"), `image ${num(s, "index") ?? "–"}`))));
}

/* The proof that the int8 model computes what QAT evaluation computed. */
function certificate(run) {
    const c = run.certificate;
    if (!c) return why(run, "model.int8.h5");
    const rows = [["test images compared", count(c.images)], ["logits that differ in any bit", count(c.logits_differ)],
        c.qat_accuracy >= 0 && ["images that the int8 model classifies right", count(c.correct)],
        c.qat_accuracy >= 0 && ["accuracy of QAT evaluation", `${fixed(c.qat_accuracy, 2)} %`],
        ["golden inputs, every layer bit for bit", count(c.golden)], ["layers in float", count(c.float_layers)],
        ["SHA-256 of the logits", c.logits_sha256], ["SHA-256 of the test data", c.data_sha256],
        ["SHA-256 of the checkpoint", c.checkpoint_sha256],
        ["SHA-256 of the model file", str(run.result, "model_sha256")]].filter((row) => row && row[1] !== null);
    return [table("Certificate in the model file", [["what", (row) => row[0]], ["value", (row) => row[1], "code"]], rows),
            str(c, "notes") && el("pre", { class: "box", tabindex: 0 }, c.notes)];
}

/* Where the run was made: a table for each session. Names of inner members are separated by dots. */
function environment(run) {
    const sessions = list(run, "sessions"), all = run.sessions_in_all;
    const shown = (value) => Array.isArray(value) ? value.map(shown).join(" ") || "–"
        : typeof value === "boolean" ? (value ? "yes" : "no") : typeof value === "number" ? number(value)
        : typeof value === "string" ? value : "–";
    const members = (object, before) => Object.entries(object).flatMap(([key, value]) =>
        value && typeof value === "object" && !Array.isArray(value)
            ? members(value, `${before}${key}.`) : [[before + key, shown(value)]]);
    return [why(run, "run.json"), sessions.map((session) => table("Session", [["what", (row) => row[0]],
                ["value", (row) => row[1], "code"]], members(session, ""))),
            sessions.length < all && note(`${all} sessions in all: the first ones and the last are here.`)];
}

const prepared = (run) => [why(run, "model_check_result.txt"),
    str(run, "check") !== null && file("model_check_result.txt", run.check)];
const recipe = (run) => [why(run, "recipe.yaml"), run.recipe && file("Every key with its value", run.recipe.text)];

function report() {
    const parts = [["curves", "Curves", curves], ["speed", "Throughput and memory", speed],
        ["evaluations", "Evaluations", () => each(evaluations)], two && ["differences", "What differs", differences],
        ["layers", "Layers", () => [two && layerChanges(), each(layers)]], ["graph", "Graph", () => each(graph)],
        ["sensitivity", "Sensitivity", () => each(sensitivity)],
        ["confusion", "Confusion matrix", () => each(confusion)],
        ["worst", "Worst-classified images", () => each(worst)],
        ["certificate", "Certificate", () =>
            [note("octet verify checks all of it again, on any machine."), each(certificate)]],
        ["prepare", "What prepare did", () => each(prepared)],
        ["environment", "Environment", () => each(environment)], ["recipe", "Recipe", () => each(recipe)],
    ].filter(Boolean);
    const name = runs.map(title).join(" and ");
    document.title = `${name} · Octet`;
    document.body.append(
        el("header", null, el("p", { class: "brand" }, "Octet report"), el("h1", null, name), runs.map(header).flat(),
            el("nav", { "aria-label": "contents" }, parts.map(([id, text]) => el("a", { href: `#${id}` }, text)))),
        el("main", null, parts.map(([id, text, write]) => el("section", { id }, el("h2", null, text), write()))));
}
