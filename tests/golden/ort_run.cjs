// Runs ONNX models in ONNX Runtime: node ort_run.cjs JOBS.json, with onnxruntime-node in NODE_PATH.
// JOBS.json lists {model, level, inputs: [{name, type, dims, file}], save, outputs}; the raw little-endian data
// of output NAME of a job goes to SAVE.NAME. Prints a line of JSON with types and shapes for each job.
const fs = require('fs');
const ort = require('onnxruntime-node');

const arrays = {
  float32: Float32Array, uint8: Uint8Array, int8: Int8Array, int32: Int32Array,
  int64: BigInt64Array, uint16: Uint16Array,
};

async function run(job) {
  const options = {graphOptimizationLevel: job.level, intraOpNumThreads: 1, logSeverityLevel: 3};
  if (job.optimized) options.optimizedModelFilePath = job.optimized;
  if (job.extra) options.extra = job.extra;
  const session = await ort.InferenceSession.create(job.model, options);
  const feeds = {};
  for (const input of job.inputs) {
    const bytes = fs.readFileSync(input.file);
    const copy = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
    feeds[input.name] = new ort.Tensor(input.type, new arrays[input.type](copy), input.dims);
  }
  const results = await session.run(feeds), line = {};
  for (const [name, tensor] of Object.entries(results)) {
    const data = tensor.data;
    fs.writeFileSync(job.save + '.' + name, Buffer.from(data.buffer, data.byteOffset, data.byteLength));
    line[name] = {type: tensor.type, dims: tensor.dims};
  }
  await session.release();
  console.log(JSON.stringify(line));
}

(async () => {
  for (const job of JSON.parse(fs.readFileSync(process.argv[2]))) {
    try {
      await run(job);
    } catch (error) {
      console.log(JSON.stringify({error: String(error.message)}));
    }
  }
})();
