// usage: client.js URL
//
// Uses the server as the JavaScript client libraries do: with the HTTP client of Node.js and its
// pool of connections, "Content-Type: application/json" on every request, names raw in the paths
// of pops and encoded elsewhere, null for 204, consumers that poll, acknowledge and fail. Prints a
// JSON array: the name of every step, and what was wrong with it or null.
'use strict';
const assert = require('node:assert');

const base = process.argv[2];

async function request(method, path, body, options = {}) {
  const response = await fetch(base + path, {
    method, headers: { 'Content-Type': 'application/json' }, body: body === undefined ? undefined : JSON.stringify(body), ...options
  });
  if (response.status === 204) return null;
  const type = response.headers.get('content-type') || '';
  const text = await response.text();
  const value = type.includes('application/json') ? JSON.parse(text) : text;
  if (!response.ok) throw Object.assign(new Error(value.error || `HTTP ${response.status}`), { status: response.status });
  return value;
}

const post = (path, body) => request('POST', path, body);
const push = (items) => post('/api/v1/push', { items });
const query = (options) => new URLSearchParams(options).toString();
const pop = (queue, options, more) => request('GET', `/api/v1/pop/queue/${queue}?${query(options)}`, undefined, more);
const ackAll = (group, messages, status, error) => post('/api/v1/ack/batch', {
  consumerGroup: group,
  acknowledgments: messages.map(({ transactionId, partitionId, leaseId }) => ({ transactionId, partitionId, leaseId, status, error }))
});

function create(queue, options = {}) {
  const all = {
    leaseTime: 300, retryLimit: 3, priority: 0, delayedProcessing: 0, windowBuffer: 0, maxSize: 0, retentionSeconds: 0,
    completedRetentionSeconds: 0, encryptionEnabled: false, ...options
  };
  return post('/api/v1/configure', { queue, namespace: null, task: null, options: all }).then((answer) => {
    assert.strictEqual(answer.configured, true);
    for (const [name, value] of Object.entries(all)) assert.strictEqual(answer.options[name], value, name);
    return answer;
  });
}

// Polls until nothing has come for one poll; an error of the handler fails the batch.
async function consume(queue, group, options, handler) {
  for (;;) {
    const answer = await pop(queue, { consumerGroup: group, wait: true, timeout: 1000, ...options });
    if (answer === null) return;
    try {
      await handler(answer.messages);
    } catch (error) {
      await ackAll(group, answer.messages, 'failed', error.message);
      continue;
    }
    const results = await ackAll(group, answer.messages, 'completed');
    assert.strictEqual(results.length, answer.messages.length);
    for (const result of results) assert.deepStrictEqual([result.success, result.error], [true, null]);
  }
}

const steps = {
  async 'a queue is created with the options of the caller'() {
    await create('work', { leaseTime: 30, retryLimit: 1, deadLetterQueue: true });
  },

  async 'messages of ten partitions go through eight consumers, each once and in order'() {
    const pushed = [];
    for (let round = 0; round < 10; round++) {
      const items = Array.from({ length: 100 }, (_, i) => ({ queue: 'work', partition: `p${i % 10}`, payload: { n: round * 100 + i } }));
      const answer = await push(items);
      assert.deepStrictEqual(answer.map((a) => [a.index, a.status]), items.map((_, i) => [i, 'queued']));
      pushed.push(...items);
    }
    const seen = new Map();
    await Promise.all(Array.from({ length: 8 }, () => consume('work', 'workers', { batch: 7 }, (messages) => {
      for (const m of messages) seen.set(m.partition, [...(seen.get(m.partition) || []), m.data.n]);
    })));
    for (let p = 0; p < 10; p++) {
      assert.deepStrictEqual(seen.get(`p${p}`), pushed.filter((i) => i.partition === `p${p}`).map((i) => i.payload.n));
    }
  },

  async 'a repeated push is a duplicate of the first'() {
    const item = { queue: 'work', partition: 'once', transactionId: 'only', payload: 1 };
    const [[first], [second]] = [await push([item]), await push([item])];
    assert.deepStrictEqual([second.status, second.message_id], ['duplicate', first.message_id]);
    await consume('work', 'workers', {}, () => {});
  },

  async 'a handler that throws is tried again, then its message is a dead letter with the error'() {
    await push([{ queue: 'work', partition: 'bad', transactionId: 'bad', payload: { bad: true } }]);
    const attempts = [];
    await consume('work', 'workers', { batch: 1 }, ([message]) => {
      attempts.push(message.deliveryAttempt);
      throw new Error('handler gave up');
    });
    assert.deepStrictEqual(attempts, [1, 2]);
    const { messages } = await request('GET', '/api/v1/dlq?queue=work&consumerGroup=workers&limit=100&offset=0');
    assert.deepStrictEqual(messages.map((m) => [m.data, m.errorMessage]), [[{ bad: true }, 'handler gave up']]);
  },

  async 'a transaction acknowledges and pushes, once'() {
    await push([{ queue: 'work', partition: 'tx', payload: 'in' }]);
    const { messages: [message] } = await pop('work/partition/tx', { batch: 1 });
    const bundle = {
      operations: [
        { type: 'ack', transactionId: message.transactionId, partitionId: message.partitionId, status: 'completed', consumerGroup: '__QUEUE_MODE__' },
        { type: 'push', items: [{ queue: 'out', payload: 'result' }] }],
      requiredLeases: [message.leaseId]
    };
    assert.strictEqual((await post('/api/v1/transaction', bundle)).success, true);
    const again = await post('/api/v1/transaction', bundle);
    assert.strictEqual(again.success, false);
    assert.match(again.error, /lease/);
    const out = await pop('out', { batch: 10, autoAck: true });
    assert.deepStrictEqual(out.messages.map((m) => [m.data, m.leaseId]), [['result', '']]);
  },

  async 'groups start at the beginning, with what is new, or at a time'() {
    const of = async (group, options) => ((await pop('news', { consumerGroup: group, batch: 10, autoAck: true, ...options })) || { messages: [] }).messages.map((m) => m.data);
    await push([{ queue: 'news', payload: 1 }]);
    assert.deepStrictEqual(await of('all', {}), [1]);
    assert.deepStrictEqual(await of('new', { subscriptionMode: 'new' }), []);
    assert.deepStrictEqual(await of('from', { subscriptionFrom: new Date(0).toISOString() }), [1]);
    await push([{ queue: 'news', partition: 'born later', payload: 2 }]);
    for (const group of ['all', 'new', 'from']) assert.deepStrictEqual(await of(group, {}), [2], group);
  },

  async 'a consumer that goes away while it waits takes nothing with it'() {
    const leaving = new AbortController();
    const parked = pop('idle', { wait: true, timeout: 60000, batch: 1 }, { signal: leaving.signal });
    const staying = pop('idle', { wait: true, timeout: 60000, batch: 1 });
    while ((await request('GET', '/metrics')).queen.parkedPops < 2);
    leaving.abort();
    await assert.rejects(parked, { name: 'AbortError' });
    await push([{ queue: 'idle', payload: 'for who stayed' }]);
    assert.deepStrictEqual((await staying).messages.map((m) => m.data), ['for who stayed']);
  },

  async 'a lease is renewed with an empty object'() {
    await push([{ queue: 'work', partition: 'slow', payload: 1 }]);
    const { leaseId } = await pop('work/partition/slow', { batch: 1, leaseSeconds: 5 });
    const answer = await post(`/api/v1/lease/${leaseId}/extend`, {});
    assert.strictEqual(answer.leaseId, leaseId);
    assert.ok(Date.parse(answer.newExpiresAt) > Date.now() + 5000);
  },

  async 'names are raw in one path and encoded in another'() {
    const queue = 'caf\u00e9 & co.\u{1f422}';
    await create(queue);
    await push([{ queue, partition: 'a b', payload: 'x' }]);
    assert.strictEqual((await pop(`${queue}/partition/a b`, { batch: 1, autoAck: true })).messages[0].data, 'x');
    const gone = await request('DELETE', `/api/v1/resources/queues/${encodeURIComponent(queue)}`);
    assert.deepStrictEqual(gone, { deleted: true, queue, existed: true });
  },

  async 'parameters of later versions do no harm'() {
    await push([{ queue: 'later', payload: 1 }]);
    const answer = await pop('later', { autopilot: true, conflation: false, autoAck: true });
    assert.deepStrictEqual([answer.messages.length, 'conflation' in answer, 'autopilot' in answer], [1, false, false]);
  },

  async 'an error has a text and is final'() {
    await assert.rejects(push([{ payload: 1 }]), (error) => error.status === 400 && /queue/.test(error.message));
  },

  async 'a stream sums up its source exactly once'() {
    await push(Array.from({ length: 60 }, (_, i) => ({ queue: 'source', partition: `s${i % 3}`, payload: i })));
    const { query_id } = await post('/streams/v1/queries', { name: 'sum', source_queue: 'source', sink_queue: 'sums', config_hash: 'h' });
    await assert.rejects(post('/streams/v1/queries', { name: 'sum', source_queue: 'source', config_hash: 'other' }), /config_hash mismatch/i);
    for (;;) {
      const answer = await pop('source', { consumerGroup: 'streams.sum', batch: 8, partitions: 4, wait: true, timeout: 1000 });
      if (answer === null) break;
      for (const partition_id of new Set(answer.messages.map((m) => m.partitionId))) {
        const messages = answer.messages.filter((m) => m.partitionId === partition_id);
        const sorted = [...messages].sort((a, b) => a.createdAt.slice(0, 23).localeCompare(b.createdAt.slice(0, 23)) || (a.id < b.id ? -1 : 1));
        assert.deepStrictEqual(sorted, messages);
        const { rows } = await post('/streams/v1/state/get', { query_id, partition_id, keys: ['sum'] });
        const sum = messages.reduce((n, m) => n + m.data, rows.length ? rows[0].value : 0);
        const cycle = await post('/streams/v1/cycle', {
          query_id, partition_id, consumer_group: 'streams.sum', state_ops: [{ type: 'upsert', key: 'sum', value: sum }],
          push_items: [{ queue: 'sums', partition: messages[0].partition, payload: sum }],
          ack: { transactionId: messages.at(-1).transactionId, leaseId: answer.leaseId, status: 'completed', count: messages.length },
          release_lease: true
        });
        assert.strictEqual(cycle.success, true, cycle.error);
      }
    }
    const last = {};
    const { messages } = await pop('sums', { batch: 100, partitions: 0, autoAck: true });
    for (const m of messages) last[m.partition] = m.data;
    assert.deepStrictEqual(last, { s0: 570, s1: 590, s2: 610 });
  }
};

(async () => {
  const results = [];
  for (const [name, step] of Object.entries(steps)) {
    results.push({ name, error: await step().then(() => null, (error) => error.stack) });
  }
  console.log(JSON.stringify(results));
  process.exit(0);    // connections that are kept alive would wait for their end
})();
