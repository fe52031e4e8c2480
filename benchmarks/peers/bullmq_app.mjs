// The no-op job in BullMQ: its worker (`MODULES worker`) and its client (`MODULES KIND N AT_ONCE WARM_UP`), which
// says and hears what ../calling.py does. MODULES is the folder that npm has installed it into.
import fs from 'node:fs';
import { once } from 'node:events';
import { createRequire } from 'node:module';

const [modules, kind, ...numbers] = process.argv.slice(2);
const { FlowProducer, Queue, QueueEvents, Worker } = createRequire(`${modules}/`)('bullmq');

const QUEUE = 'default';
const BATCH = 1000;
const RECORD_BYTES = 16;
const FLUSH_MS = 10;
const WAIT_MS = 60_000;
const url = new URL(process.env.REDFLOW_BENCH_REDIS);
const connection = { host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null };

// The counter of ../counter.py. Node maps no files, so it is written by a timer; the time in it is that of the last
// job all the same.
function startCounter() {
  const file = fs.openSync(process.env.REDFLOW_BENCH_COUNTER, 'r+');
  const record = Buffer.alloc(RECORD_BYTES);
  let done = 0;
  let at = 0n;
  setInterval(() => {
    record.writeBigInt64LE(BigInt(done), 0);
    record.writeDoubleLE(Number(at) / 1e9, 8);
    fs.writeSync(file, record, 0, RECORD_BYTES, 0);
  }, FLUSH_MS);
  return () => {
    done += 1;
    at = process.hrtime.bigint();
  };
}

function work() {
  const count = startCounter();
  const handle = async (job) => {
    if (job.name !== 'child') count();
    return job.data.number;
  };
  const worker = new Worker(QUEUE, handle, { connection, concurrency: Number(process.env.REDFLOW_BENCH_SLOTS) });
  worker.on('error', (error) => console.error(error));
  process.on('SIGTERM', () => process.exit(0));
}

const child = (number, children) => ({ name: 'child', queueName: QUEUE, data: { number }, children });

async function connect() {
  const queue = new Queue(QUEUE, { connection });
  const events = new QueueEvents(QUEUE, { connection });
  events.setMaxListeners(0);
  const flows = new FlowProducer({ connection });
  await Promise.all([queue.waitUntilReady(), events.waitUntilReady()]);
  const check = (answer, number) => {
    if (answer !== number) throw new Error(`${number} was answered with ${answer}`);
  };
  return {
    enqueue: (number) => queue.add('noop', { number }),
    fill: async (first, end) => {
      for (let at = first; at < end; at += BATCH) {
        const length = Math.min(BATCH, end - at);
        await queue.addBulk(Array.from({ length }, (_, i) => ({ name: 'noop', data: { number: at + i } })));
      }
    },
    roundtrip: async (number) => {
      const job = await queue.add('noop', { number });
      check(await job.waitUntilFinished(events, WAIT_MS), number);
    },
    // A tree that is known beforehand, which is what it has instead of runs that start runs.
    children: async (number) => {
      const tree = { ...child(number, [child(number, [child(number)])]), name: 'parent' };
      const { job } = await flows.add(tree);
      check(await job.waitUntilFinished(events, WAIT_MS), number);
    },
  };
}

async function callAll(call, first, end, atOnce) {
  const tookMs = [];
  let next = first;
  const caller = async () => {
    while (next < end) {
      const number = next++;
      const began = performance.now();
      await call(number);
      tookMs.push(performance.now() - began);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, caller));
  return tookMs;
}

async function measure() {
  const [n, atOnce, warmUp] = numbers.map(Number);
  const calls = await connect();
  const play = async (first, end) =>
    kind === 'fill' ? (await calls.fill(first, end), []) : callAll(calls[kind], first, end, atOnce);
  await play(0, warmUp);
  process.stdout.write('ready\n');
  await once(process.stdin, 'data');
  const [began, cpuBefore] = [performance.now(), process.cpuUsage()];
  const tookMs = await play(warmUp, warmUp + n);
  const seconds = (performance.now() - began) / 1000;
  const cpu = process.cpuUsage(cpuBefore);
  const told = { seconds, cpu_s: (cpu.user + cpu.system) / 1e6, took_ms: tookMs };
  process.stdout.write(`${JSON.stringify(told)}\n`);
  // Until its memory has been read.
  await once(process.stdin, 'end');
  process.exit(0);
}

if (kind === 'worker') work();
else await measure();
