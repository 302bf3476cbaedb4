import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { BlobNotFound, BlobTooLarge, type BlobStore } from '../../src/blobs/blob-store.ts';
import { Cipher } from '../../src/encryption/cipher.ts';
import { newId } from '../../src/engine/new-id.ts';

/** A blob store, and what a test can do to its stored data. */
export interface StoreUnderTest {
  open: (cipher?: Cipher) => BlobStore;
  /** The stored bytes of a blob. */
  read: (sessionId: string, blob: string) => Promise<Buffer>;
  /** Moves the stored bytes of a blob to another session. */
  move: (blob: string, from: string, to: string) => Promise<void>;
  /** Begins to write into a session, and leaves it unfinished, as a crash does. */
  crash: (sessionId: string) => Promise<void>;
}

const content = Buffer.from('the content of a file');
const otherContent = Buffer.from('something else');
const keys = [{ id: 'k1', key: randomBytes(32) }];
const newSession = () => newId('ses');

async function listed(store: BlobStore, sessionId: string): Promise<{ name: string; storedAt: number }[]> {
  return (await Array.fromAsync(store.list(sessionId))).flat();
}

async function namesIn(store: BlobStore, sessionId: string): Promise<string[]> {
  return (await listed(store, sessionId)).map(({ name }) => name).toSorted();
}

/** The guarantees of every blob store, with and without encryption. */
export function testBlobStore(underTest: () => StoreUnderTest): void {
  const both: [string, Cipher | undefined][] = [
    ['plain', undefined],
    ['encrypted', new Cipher(keys)],
  ];

  test.each(both)('%s: what was put is read, in parts too, and the same content has one name', async (_, cipher) => {
    const store = underTest().open(cipher);
    const sessionId = newSession();
    const large = randomBytes(20 * 1024 * 1024 + 1);
    for (const bytes of [content, large, Buffer.alloc(0)]) {
      const [name, again] = await Promise.all([store.put(sessionId, bytes), store.put(sessionId, bytes)]);
      expect(name).toMatch(/^[0-9a-f]{64}$/);
      expect(again).toBe(name);
      expect((await store.get(sessionId, name)).equals(bytes)).toBe(true);
    }
    expect((await namesIn(store, sessionId)).length).toBe(3);
    await expect(store.check()).resolves.toBeUndefined();
  });

  test.each(both)('%s: a blob that is larger than allowed is not read', async (_, cipher) => {
    const store = underTest().open(cipher);
    const sessionId = newSession();
    for (const bytes of [content, randomBytes(300_000)]) {
      const name = await store.put(sessionId, bytes);
      expect(await store.get(sessionId, name, bytes.length)).toEqual(bytes);
      await expect(store.get(sessionId, name, bytes.length - 1)).rejects.toThrow(BlobTooLarge);
      await expect(store.get(sessionId, name, 10)).rejects.toThrow(BlobTooLarge);
    }
  });

  test('a missing blob is not found, whatever its name', async () => {
    const store = underTest().open();
    const sessionId = newSession();
    const name = await store.put(sessionId, content);
    const wrong: [string, string][] = [
      [sessionId, '0'.repeat(64)],
      [newSession(), name],
      [sessionId, `../${sessionId}/${name}`],
      [`../${sessionId}`, name],
      ['', name],
    ];
    for (const [session, blob] of wrong) await expect(store.get(session, blob)).rejects.toThrow(BlobNotFound);
    expect(await namesIn(store, newSession())).toEqual([]);
    await expect(store.deleteAll('..')).rejects.toThrow('is not the id of a session');
  });

  test('a session has its own blobs, which are deleted by name or together', async () => {
    const store = underTest().open();
    const [one, two] = [newSession(), newSession()];
    const names = await Promise.all([content, otherContent].map((bytes) => store.put(one, bytes)));
    const [name = '', other = ''] = names;
    // Its id begins with the other's.
    const longer = `${one}0`;
    await Promise.all([two, longer].map((sessionId) => store.put(sessionId, content)));
    await store.delete(one, []);
    await store.delete(one, [name, '0'.repeat(64)]);
    expect(await namesIn(store, one)).toEqual([other]);
    await expect(store.get(one, name)).rejects.toThrow(BlobNotFound);
    await store.put(one, content);
    await store.deleteAll(one);
    await store.deleteAll(one);
    expect(await namesIn(store, one)).toEqual([]);
    for (const sessionId of [two, longer]) expect(await store.get(sessionId, name)).toEqual(content);
  });

  test('a blob that is put again has a new time', async () => {
    const store = underTest().open();
    const sessionId = newSession();
    const name = await store.put(sessionId, content);
    const storedAt = async () => (await listed(store, sessionId))[0]?.storedAt ?? 0;
    const first = await storedAt();
    expect(Math.abs(first - Date.now())).toBeLessThan(3_600_000);
    // The times of S3 have whole seconds.
    await sleep(1_100);
    expect(await storedAt()).toBe(first);
    expect(await store.put(sessionId, content)).toBe(name);
    expect(await storedAt()).toBeGreaterThan(first);
  });

  test('unfinished writes are listed, and deleted as blobs are', async () => {
    const { open, crash } = underTest();
    const store = open();
    const sessionId = newSession();
    const name = await store.put(sessionId, content);
    await crash(sessionId);
    const unfinished = (await listed(store, sessionId)).filter((entry) => entry.name !== name);
    expect(unfinished).toEqual([{ name: expect.any(String), storedAt: expect.any(Number) }]);
    const names = unfinished.map((entry) => entry.name);
    await store.delete(sessionId, names);
    await store.delete(sessionId, names);
    expect(await namesIn(store, sessionId)).toEqual([name]);
    await crash(sessionId);
    await store.deleteAll(sessionId);
    expect(await namesIn(store, sessionId)).toEqual([]);
  });

  test('more blobs than a page holds are all listed and deleted', async () => {
    const store = underTest().open();
    const sessionId = newSession();
    const names = await Promise.all(
      Array.from({ length: 1_100 }, (_, i) => store.put(sessionId, Buffer.from(`blob ${i}`))),
    );
    const pages = await Array.fromAsync(store.list(sessionId));
    expect(pages.length).toBeGreaterThan(1);
    expect(Math.max(...pages.map(({ length }) => length))).toBeLessThanOrEqual(1_000);
    expect(pages.flatMap((page) => page.map(({ name }) => name)).toSorted()).toEqual(names.toSorted());
    await store.deleteAll(sessionId);
    expect(await namesIn(store, sessionId)).toEqual([]);
  });

  test('neither the name nor the bytes of an encrypted blob tell its content, which is bound to its place', async () => {
    const { open, read, move } = underTest();
    const store = open(new Cipher(keys));
    const [sessionId, other] = [newSession(), newSession()];
    const name = await store.put(sessionId, content);
    expect(name).not.toBe(await open().put(other, content));
    const stored = await read(sessionId, name);
    expect(stored.subarray(0, 11).toString('latin1')).toBe('\xffsealed:k1:');
    expect(stored.includes('content')).toBe(false);
    // Blobs from before there were keys stay readable.
    const plain = await open().put(sessionId, content);
    expect(await store.get(sessionId, plain)).toEqual(content);
    await expect(open().get(sessionId, name)).rejects.toThrow('does not contain');
    await move(name, sessionId, other);
    await expect(store.get(other, name)).rejects.toThrow('cannot be decrypted');
  });
}
