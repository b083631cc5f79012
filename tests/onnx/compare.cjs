// Compares ONNX Runtime, on an exported model with all values, with what `codes` has written to stdin.
//
//     codes MODEL.int8.h5 COUNT DATA | node compare.cjs MODEL.onnx
//
// Prints one line of JSON: images, tensors and numbers compared, how many differ and in which tensors; the model's
// output separately. For a classifier also how many images each side gets right, and how many differ in their class.
// Codes that are made of floats may differ because the floats do: `begin` counts those that differ though everything
// before them in their image is equal, `expected` is the sum of |difference of the floats| / scale, which is how many
// halves between two codes lie between the two floats where floats lie anywhere. All others follow from these.
// Ends with 0 whatever differs, with 1 when something could not be compared.
const ort = require('onnxruntime-node');
const fs = require('fs');

const types = {u8: Uint8Array, u16: Uint16Array, f32: Float32Array, s32: Int32Array};

// Bytes of stdin, in pieces of the sizes that are asked for.
function reader() {
    let kept = Buffer.alloc(0);
    const room = Buffer.alloc(1 << 20);
    function more() {
        for (;;) {
            try {
                const n = fs.readSync(0, room, 0, room.length, null);
                if (n === 0) throw new Error('stdin ended early');
                return Buffer.from(room.subarray(0, n));
            } catch (e) {
                if (e.code !== 'EAGAIN') throw e;
            }
        }
    }
    return {
        line() {
            let end;
            while ((end = kept.indexOf(10)) < 0) kept = Buffer.concat([kept, more()]);
            const text = kept.toString('utf8', 0, end);
            kept = kept.subarray(end + 1);
            return text;
        },
        array(Type, count) {
            const bytes = new Uint8Array(count * Type.BYTES_PER_ELEMENT);
            for (let at = 0; at < bytes.length;) {
                if (kept.length === 0) kept = more();
                const n = Math.min(kept.length, bytes.length - at);
                bytes.set(kept.subarray(0, n), at);
                kept = kept.subarray(n);
                at += n;
            }
            return new Type(bytes.buffer);
        },
    };
}

function channelsFirst(x, samples, pixels, channels) {
    const y = new x.constructor(x.length);
    for (let n = 0; n < samples; n++)
        for (let i = 0; i < pixels; i++)
            for (let c = 0; c < channels; c++)
                y[(n * channels + c) * pixels + i] = x[(n * pixels + i) * channels + c];
    return y;
}

function count(ours, theirs) {
    let differ = 0, most = 0;
    for (let i = 0; i < ours.length; i++) {
        const other = Number(theirs[i]);
        if (ours[i] === other) continue;
        differ++;
        most = Math.max(most, Math.abs(ours[i] - other));
    }
    return {differ, most};
}

// The class of each image: the first of the largest outputs.
function classes(y, samples) {
    const width = y.length / samples;
    return Array.from({length: samples}, (_, n) => {
        const row = y.subarray(n * width, (n + 1) * width);
        return row.reduce((best, value, i) => value > row[best] ? i : best, 0);
    });
}

function countClasses(total, labels, ours, theirs) {
    const mine = classes(ours, labels.length), others = classes(theirs, labels.length);
    labels.forEach((label, n) => {
        total.right += mine[n] === label;
        total.right_there += others[n] === label;
        total.classes_differ += mine[n] !== others[n];
    });
}

// Adds to the total what begins with codes that are made of these floats, in images where nothing differs yet.
function begin(total, floats, ours, theirs, scale, clean) {
    const each = ours.length / clean.length;
    for (let i = 0; i < ours.length; i++) {
        if (!clean[Math.floor(i / each)]) continue;
        total.expected += Math.abs(floats.ours[i] - floats.theirs[i]) / scale;
        total.begin += ours[i] !== Number(theirs[i]);
    }
}

function notice(ours, theirs, clean) {
    const each = ours.length / clean.length;
    for (let i = 0; i < ours.length; i++)
        if (ours[i] !== Number(theirs[i])) clean[Math.floor(i / each)] = false;
}

async function main() {
    const input = reader(), head = JSON.parse(input.line());
    const session = await ort.InferenceSession.create(
        process.argv[2], {intraOpNumThreads: 1, interOpNumThreads: 1, logSeverityLevel: 3});
    const wanted = new Set(session.outputNames), [port] = session.inputNames, [last] = session.outputNames;
    const total = {images: head.count, tensors: 0, codes: 0, differ: 0, most: 0, differing: {},
                   begin: 0, expected: 0, outputs: 0, outputs_differ: 0, outputs_most: 0};
    if (head.labels) Object.assign(total, {right: 0, right_there: 0, classes_differ: 0});
    const seen = new Set();
    for (let at = 0; at < head.count; at += head.batch) {
        const n = head.batch, pixels = head.h * head.w;
        const images = input.array(Float32Array, n * pixels * head.c);
        const labels = head.labels ? input.array(Int32Array, n) : null;
        const row = pixels === 1;
        const feed = {[port]: new ort.Tensor('float32', channelsFirst(images, n, pixels, head.c),
                                            row ? [n, head.c] : [n, head.c, head.h, head.w])};
        const got = await session.run(feed);
        const clean = new Array(n).fill(true), floats = [];
        for (const [number, v] of head.values.entries()) {
            const all = input.array(types[v.type], n * v.h * v.w * v.c);
            const name = v.output ? last : v.name === port || v.name === last ? v.name + '_' : v.name;
            if (!wanted.has(name)) continue;
            const there = got[name];
            const ours = there.dims.length === 4 ? channelsFirst(all, n, v.h * v.w, v.c) : all;
            if (there.data.length !== ours.length)
                throw new Error(`${name}: ${there.dims} where ${n} x ${v.h}x${v.w}x${v.c} should be`);
            const d = count(ours, there.data);
            if (v.type === 'f32') floats[number] = {ours, theirs: there.data};
            seen.add(name);
            if (v.output) {
                total.outputs += ours.length;
                total.outputs_differ += d.differ;
                total.outputs_most = Math.max(total.outputs_most, d.most);
                if (labels) countClasses(total, labels, ours, there.data);
            } else if (v.type !== 'f32') {
                total.codes += ours.length;
                total.differ += d.differ;
                total.most = Math.max(total.most, d.most);
                if (d.differ) total.differing[name] = (total.differing[name] || 0) + d.differ;
                if (v.kind === 'quantize' && floats[v.from])
                    begin(total, floats[v.from], ours, there.data, v.scale, clean);
                if (d.differ) notice(ours, there.data, clean);
            }
        }
    }
    for (const name of wanted)
        if (!seen.has(name)) throw new Error(`${name}: the program has no such value`);
    total.tensors = seen.size;
    console.log(JSON.stringify(total));
}

main().catch(e => {
    console.error('compare: ' + e.message);
    process.exit(1);
});
