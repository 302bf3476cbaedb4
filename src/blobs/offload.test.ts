import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fc } from '../../test/support/fast-check.ts';
import { expect, onTestFinished, test } from 'vitest';
import { SEED } from '../../test/support/seed.ts';
import { BlobNotFound, BlobsUnavailable, type BlobStore } from './blob-store.ts';
import { FolderBlobStore } from './folder-blob-store.ts';
import { offload, offloadItems, offloadResult, offloadText, PayloadTooLarge, restore } from './offload.ts';

const sessionId = 'ses_1';

async function folder(): Promise<string> {
  const root = await mkdtemp(path.join(tmpdir(), 'everturn-blobs-'));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  return root;
}

test('a value that fits is unchanged; otherwise its largest strings are moved until it fits', async () => {
  const blobs = new FolderBlobStore(await folder());
  const value = { a: 'x'.repeat(5_000), b: ['y'.repeat(3_000), 'z'.repeat(100)], c: 1 };
  expect(await offload(value, { blobs, sessionId, maxBytes: 10_000 })).toBe(value);
  const stored = await offload(value, { blobs, sessionId, maxBytes: 4_000 });
  expect(stored).toEqual({ ...value, a: { $blob: expect.stringMatching(/^[0-9a-f]{64}$/) } });
  expect(await restore(stored, { blobs, sessionId })).toEqual(value);
});

test('at most 16 KiB of a result stay in the history, except for strings too small to move', async () => {
  const blobs = new FolderBlobStore(await folder());
  const bytesOf = (value: unknown) => Buffer.byteLength(JSON.stringify(value));
  const texts = Array.from({ length: 30 }, (_, i) => ({ id: `evt_${i}`, content: `${i} `.padEnd(4_000, 'x') }));
  const stored = await offloadResult(texts, { blobs, sessionId });
  expect(bytesOf(stored)).toBeLessThanOrEqual(16 * 1024);
  expect(await restore(stored, { blobs, sessionId })).toEqual(texts);
  const calls = Array.from({ length: 1_000 }, (_, i) => ({ id: `call_${i}`, arguments: 'x'.repeat(80) }));
  expect(bytesOf(calls)).toBeGreaterThan(100 * 1024);
  expect(await offloadResult(calls, { blobs, sessionId })).toEqual(calls);
  await expect(offloadResult([...calls, ...calls], { blobs, sessionId })).rejects.toThrow(PayloadTooLarge);
});

test('a value that cannot fit is rejected before anything is written', async () => {
  const root = await folder();
  const value = Array.from({ length: 2_000 }, (_, i) => `${i} ${'x'.repeat(1_500)}`);
  const offloaded = offload(value, { blobs: new FolderBlobStore(root), sessionId, maxBytes: 50_000 });
  await expect(offloaded).rejects.toThrow(PayloadTooLarge);
  expect(await readdir(root)).toEqual([]);
});

test('thousands of blobs are written with few files open at once', async () => {
  const blobs = new FolderBlobStore(await folder());
  const value = Array.from({ length: 3_000 }, (_, i) => `${i} ${'x'.repeat(1_500)}`);
  const stored = await offload(value, { blobs, sessionId, maxBytes: 300_000 });
  expect(await restore(stored, { blobs, sessionId })).toEqual(value);
});

test('a failing store rejects the call with its error, however many blobs were being written', async () => {
  const full = new Error('ENOSPC');
  const blobs: BlobStore = {
    put: () => Promise.reject(full),
    get: () => Promise.reject(full),
    list: () => {
      throw full;
    },
    delete: () => Promise.reject(full),
    deleteAll: () => Promise.reject(full),
    check: () => Promise.resolve(),
    close: () => undefined,
  };
  const value = Array.from({ length: 50 }, () => 'x'.repeat(5_000));
  await expect(offload(value, { blobs, sessionId, maxBytes: 20_000 })).rejects.toBe(full);
});

/** Blobs in memory. */
function memoryStore(): { blobs: BlobStore; stored: Map<string, Buffer> } {
  const stored = new Map<string, Buffer>();
  const store: Pick<BlobStore, 'put' | 'get'> = {
    put: (_session, bytes) => {
      const name = String(stored.size).padStart(64, '0');
      stored.set(name, Buffer.from(bytes));
      return Promise.resolve(name);
    },
    get: (session, blob) => {
      const bytes = stored.get(blob);
      return bytes ? Promise.resolve(bytes) : Promise.reject(new BlobNotFound(session, blob));
    },
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the functions that are called
  return { blobs: store as BlobStore, stored };
}

const character = fc.constantFrom('a', '"', '\\', '$', '\u0000', 'é', '漢', '😀', '\ud800', '\udc00');
const text = fc
  .tuple(fc.string({ unit: character, maxLength: 5 }), fc.constantFrom(1, 1, 1, 300))
  .map(([word, times]) => word.repeat(times));
const key = fc.oneof(
  fc.constantFrom(
    '$blob',
    '$$blob',
    '$$$blob',
    '$value',
    '$ref',
    '$',
    'blob',
    'encoding',
    '__proto__',
    'constructor',
    '',
  ),
  fc.string({ unit: character, maxLength: 3 }),
);

/** Any JSON that a model, a server or a client may send. */
const { json } = fc.letrec<{ json: unknown }>((tie) => ({
  json: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    fc.oneof(text, fc.constant('0'.repeat(64)), fc.integer(), fc.double(), fc.boolean(), fc.constant(null)),
    fc.array(tie('json'), { maxLength: 4 }),
    fc.array(fc.tuple(key, tie('json')), { maxLength: 4 }).map((entries): unknown => Object.fromEntries(entries)),
  ),
}));

/** The values in records from the protocols: of models, of MCP, and of the items of runs. */
const records = fc.oneof(
  fc.record({
    kind: fc.constant('model.message'),
    content: text,
    providerFields: fc.record({ reasoning_details: json }),
  }),
  fc.record({
    kind: fc.constant('model.message'),
    providerFields: fc.record({ extra_content: json, thoughtSignature: text }),
  }),
  fc.record({
    kind: fc.constant('model.message'),
    providerFields: fc.record({ thinking: fc.array(json), signature: text }),
  }),
  fc.record({ kind: fc.constant('model.message'), providerFields: fc.record({ encrypted_content: text, item: json }) }),
  fc.record({ toolCalls: fc.array(fc.record({ id: text, arguments: text, providerFields: json }), { maxLength: 3 }) }),
  fc.record({
    content: fc.array(fc.record({ type: fc.constant('text'), text })),
    structuredContent: json,
    _meta: json,
  }),
  fc.record({ elicitation: fc.record({ mode: fc.constant('form'), message: text, requestedSchema: json }) }),
  fc.record({ type: fc.constant('tool-call'), args: json, signature: json }),
  json,
);

test('a restored value equals the offloaded one, for any JSON from outside', async () => {
  // Through JSON, as histories and the catalog keep it; that is also what a record was received as.
  const sent = <T>(value: T): T => JSON.parse(JSON.stringify(value)) as T;
  await fc.assert(
    fc.asyncProperty(
      fc.array(records, { maxLength: 3 }),
      fc.constantFrom(100, 2_000, Infinity),
      async (made, inlineBytes) => {
        const { blobs, stored } = memoryStore();
        const value = sent(made);
        const all = { blobs, sessionId, maxBytes: Infinity };
        const whole = sent(await offload(value, { ...all, inlineBytes }));
        const items = sent(await offloadItems(value, { ...all, inlineBytesOf: () => inlineBytes }));
        expect(sent(made)).toEqual(value);
        for (const one of [whole, items]) {
          expect(JSON.stringify(await restore(one, { blobs, sessionId }))).toBe(JSON.stringify(value));
        }
        if (inlineBytes === Infinity) expect(stored.size).toBe(0);
      },
    ),
    { seed: SEED, numRuns: 300 },
  );
});

test('a text of any size that is moved by itself is restored', async () => {
  const { blobs } = memoryStore();
  for (const one of ['', 'short', '{"$blob":"x"}', '\ud800'.repeat(2_000)]) {
    const question = await offloadText(one, { blobs, sessionId });
    expect(question).toMatchObject({ $blob: expect.any(String) });
    expect(await restore({ question }, { blobs, sessionId })).toEqual({ question: one });
  }
});

test('each item is as small as its own target says, and all together as the limit requires', async () => {
  const { blobs } = memoryStore();
  const items = [1_500, 1_600, 5_000].map((length) => ({ length, text: 'x'.repeat(length) }));
  const inlineBytesOf = ({ length }: { length: number }) => (length === 1_500 ? 1_000 : Infinity);
  const isMoved = async (maxBytes: number) => {
    const stored = await offloadItems(items, { blobs, sessionId, maxBytes, inlineBytesOf });
    expect(await restore(stored, { blobs, sessionId })).toEqual(items);
    return stored.map(({ text: one }) => typeof one !== 'string');
  };
  expect(await isMoved(10_000)).toEqual([true, false, false]);
  expect(await isMoved(4_000)).toEqual([true, false, true]);
});

test('a text that is lost is an error, or what the reader has in its place', async () => {
  const { blobs, stored } = memoryStore();
  const value = { name: 'a', body: 'x'.repeat(5_000), list: ['y'.repeat(5_000)] };
  const offloaded = await offload(value, { blobs, sessionId, maxBytes: 1_000 });
  stored.clear();
  await expect(restore(offloaded, { blobs, sessionId })).rejects.toThrow(BlobNotFound);
  const lostText = (at: string) => `lost ${at}`;
  expect(await restore(offloaded, { blobs, sessionId, lostText })).toEqual({
    name: 'a',
    body: 'lost body',
    list: ['lost 0'],
  });
  const away = { ...blobs, get: () => Promise.reject(new BlobsUnavailable('away')) };
  await expect(restore(offloaded, { blobs: away, sessionId, lostText })).rejects.toThrow(BlobsUnavailable);
});
