// Queues of Node: pg-boss and graphile-worker, driven as peer.h says.
//
// usage: node node.js pg-boss|graphile-worker push|consume QUEUE CONNECTIONS BATCH SECONDS MESSAGES
'use strict';

const { Pool } = require('pg');

const [kind, operation, queue, ...numbers] = process.argv.slice(2);
const [connections, batch, seconds, wanted] = numbers.map(Number);
const payload = {
  order: 1804289383, customer: 'c-30886', status: 'shipped', total: '915.93', currency: 'EUR',
  items: [{ sku: '2d6e4f1a', quantity: 3 }, { sku: '11f0c2b8', quantity: 1 }],
  note: 'qmahjsbxvoueyrqfixxkqcmwtkyhlemzq',
};

class Boss {
  async open() {
    const PgBoss = require('pg-boss');
    this.boss = new PgBoss({ max: connections, supervise: false, schedule: false });
    this.boss.on('error', (error) => { throw error; });
    await this.boss.start();
    await this.boss.createQueue(queue);
  }
  push(n) {
    if (n === 1) return this.boss.send(queue, payload);
    return this.boss.insert(Array.from({ length: n }, () => ({ name: queue, data: payload })));
  }
  async consume() {
    const jobs = await this.boss.fetch(queue, { batchSize: batch });
    if (jobs.length > 0) await this.boss.complete(queue, jobs.map((job) => job.id));
    return jobs.length;
  }
}

class Graphile {
  async open() {
    this.worker = require('graphile-worker');
    this.pool = new Pool({ max: connections });
    this.pool.on('error', (error) => { throw error; });
    this.pool.on('connect', (client) => client.on('error', (error) => { throw error; }));
    this.utils = await this.worker.makeWorkerUtils({ pgPool: this.pool });
    await this.utils.migrate();
  }
  push(n) {
    if (n === 1) return this.utils.addJob(queue, payload);
    return this.utils.addJobs(Array.from({ length: n }, () => ({ identifier: queue, payload })));
  }
  // The worker is the consumer: it fetches into a local queue and completes in batches.
  async run(note) {
    const { Logger } = this.worker;
    const runner = await this.worker.run({
      pgPool: this.pool,
      noHandleSignals: true,
      logger: new Logger(() => () => {}),
      preset: {
        worker: {
          concurrentJobs: connections * 10,
          localQueue: { size: batch * connections },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
        },
      },
      taskList: { [queue]: () => note(1) },
    });
    await finished;
    await runner.stop();
  }
}

let done = 0;
let last = 0;
let finish;
const finished = new Promise((resolve) => { finish = resolve; });

function note(n) {
  if (n > 0) last = performance.now();
  done += n;
  if (operation !== 'push' && done >= wanted) finish();
}

async function loop(peer, end) {
  while (operation === 'push' ? performance.now() < end : done < wanted) {
    if (operation === 'push') {
      await peer.push(batch);
      note(batch);
    } else {
      note(await peer.consume());
    }
  }
}

async function main() {
  const peer = kind === 'pg-boss' ? new Boss() : new Graphile();
  await peer.open();
  const start = performance.now();
  if (operation !== 'push' && peer.run) {
    await peer.run(note);
  } else {
    const end = start + seconds * 1000;
    await Promise.all(Array.from({ length: connections }, () => loop(peer, end)));
  }
  const name = operation === 'push' ? 'pushed' : 'acknowledged';
  console.log(JSON.stringify({ seconds: (last - start) / 1000, [name]: done }));
  process.exit(operation !== 'push' && done !== wanted ? 1 : 0);
}

main().catch((error) => { console.error(error); process.exit(1); });
