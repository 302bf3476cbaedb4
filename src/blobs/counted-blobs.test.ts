import { pino } from 'pino';
import { expect, test } from 'vitest';
import type { BlobStore } from './blob-store.ts';
import { countedBlobs } from './counted-blobs.ts';

const log = pino({ level: 'silent' });

test('a blob counts once it is stored, and stays stored if it cannot be counted', async () => {
  const events: unknown[] = [];
  const failures = [new Error('the store is full'), undefined, undefined];
  const store = {
    put: () => {
      const failure = failures.shift();
      if (failure) return Promise.reject(failure);
      events.push('stored');
      return Promise.resolve('name');
    },
  } as unknown as BlobStore;
  let isAvailable = true;
  const count = (...counted: unknown[]) => {
    events.push(counted);
    return isAvailable ? Promise.resolve() : Promise.reject(new Error('the catalog is unavailable'));
  };
  const blobs = countedBlobs(store, { count, log });
  const put = () => blobs.put('ses_1', Buffer.from('1234'));
  await expect(put()).rejects.toThrow('the store is full');
  expect(await put()).toBe('name');
  isAvailable = false;
  expect(await put()).toBe('name');
  const counted = ['ses_1', 'name', 4];
  expect(events).toEqual(['stored', counted, 'stored', counted]);
});
