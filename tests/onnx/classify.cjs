// Runs an exported classifier on prepared pictures in ONNX Runtime, as its user would, and prints how many of them it
// gets right.
//
//     node classify.cjs MODEL.onnx PICTURES.f32 LABELS C,H,W
const ort = require('onnxruntime-node');
const fs = require('fs');

async function main() {
    const [model, pictures, labels, size] = process.argv.slice(2);
    const dims = size.split(',').map(Number), one = dims.reduce((a, b) => a * b);
    const bytes = fs.readFileSync(pictures), wanted = fs.readFileSync(labels);
    const x = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
    const session = await ort.InferenceSession.create(model);
    let right = 0;
    for (let i = 0; i < wanted.length; i++) {
        const picture = new ort.Tensor('float32', x.slice(i * one, (i + 1) * one), [1, ...dims]);
        const made = await session.run({[session.inputNames[0]]: picture});
        const y = made[session.outputNames[0]].data;
        right += y.indexOf(Math.max(...y)) === wanted[i];
    }
    console.log(right);
}

main().catch(e => { console.error(e.message); process.exit(1); });
