import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import { Cipher, DecryptionFailed, EncryptionKeyMissing, NO_ENCRYPTION, type EncryptionKey } from './cipher.ts';
import { MAX_HEADER_BYTES, plainSize, readSealed, sealBytes } from './encrypted-file.ts';

function newKey(id: string): EncryptionKey {
  return { id, key: randomBytes(32) };
}

const first = newKey('k1');
const second = newKey('k2');
const cipher = new Cipher([first]);
const rotated = new Cipher([second, first]);
const place = 'archive/turn_1/1';

test('what was encrypted is read again, shows nothing of itself, and is never the same twice', () => {
  for (const text of ['', 'The door code is 4711.', '😀'.repeat(10_000)]) {
    const stored = cipher.sealText(text, place);
    expect(stored).toMatch(/^sealed:k1:/);
    if (text) expect(Buffer.from(stored.slice('sealed:k1:'.length), 'base64').includes(text)).toBe(false);
    expect(cipher.openText(stored, place)).toBe(text);
    expect(cipher.sealText(text, place)).not.toBe(stored);
  }
});

test('the first key encrypts, and all of them decrypt', () => {
  const before = cipher.sealText('before', place);
  const after = rotated.sealText('after', place);
  expect(after).toMatch(/^sealed:k2:/);
  expect(rotated.openText(before, place)).toBe('before');
  expect(new Cipher([first, second]).openText(after, place)).toBe('after');
});

test('a key that is not there is named', () => {
  const stored = rotated.sealText('after', place);
  for (const lacking of [cipher, NO_ENCRYPTION]) {
    expect(() => lacking.openText(stored, place)).toThrow(EncryptionKeyMissing);
    expect(() => lacking.openText(stored, place)).toThrow('"k2"');
  }
});

test('another key under the same id opens nothing', () => {
  const stored = cipher.sealText('text', place);
  expect(() => new Cipher([newKey('k1')]).openText(stored, place)).toThrow(DecryptionFailed);
});

test('what was changed anywhere, cut off or moved is refused', () => {
  const { keyId, data } = cipher.seal(Buffer.from('text'), place);
  for (let i = 0; i < data.length; i++) {
    const changed = Buffer.from(data);
    changed[i] = (changed[i] ?? 0) ^ 1;
    expect(() => cipher.open({ keyId, data: changed }, place), `byte ${i}`).toThrow(DecryptionFailed);
    expect(() => cipher.open({ keyId, data: data.subarray(0, i) }, place), `cut at ${i}`).toThrow(DecryptionFailed);
  }
  expect(() => cipher.open({ keyId, data }, 'archive/turn_1/2')).toThrow(DecryptionFailed);
  const both = new Cipher([first, { id: 'k2', key: first.key }]);
  expect(() => both.open({ keyId: 'k2', data }, place)).toThrow(DecryptionFailed);
  const text = cipher.sealText('text', place);
  for (const cut of ['sealed:', 'sealed:k1:', text.slice(0, 30), text.slice(0, -4)]) {
    expect(() => cipher.openText(cut, place), cut).toThrow(DecryptionFailed);
  }
});

test('what was stored without encryption is read as it is, and without keys everything is', () => {
  expect(cipher.openText('{"kind":"turn.created"}', place)).toBe('{"kind":"turn.created"}');
  expect(NO_ENCRYPTION.sealText('text', place)).toBe('text');
  expect(NO_ENCRYPTION.nameOf('hash', 'blob')).toBe('hash');
});

test('a label may be called as it wants; one that can not be decrypted is none', () => {
  const sealed = rotated.sealText('title', place);
  expect(rotated.openLabel(sealed, place)).toBe('title');
  expect(cipher.openLabel(sealed, place)).toBeNull();
  for (const title of ['sealed:k1:letter', 'sealed:', null]) expect(cipher.openLabel(title, place)).toBe(title);
  expect(NO_ENCRYPTION.openLabel(sealed, place)).toBe(sealed);
});

test('names are the same for the same content in the same scope, and known again after a rotation', () => {
  const name = cipher.nameOf('hash', 'blob/ses_1');
  expect(name).toMatch(/^[0-9a-f]{64}$/);
  expect(cipher.nameOf('hash', 'blob/ses_1')).toBe(name);
  expect(cipher.nameOf('hash', 'blob/ses_2')).not.toBe(name);
  expect(rotated.nameOf('hash', 'blob/ses_1')).not.toBe(name);
  expect(rotated.namesOf('hash', 'blob/ses_1')).toEqual([rotated.nameOf('hash', 'blob/ses_1'), name, 'hash']);
});

test('bytes are told apart by their beginning, and know their size', () => {
  const bytes = randomBytes(1_000);
  const stored = sealBytes(bytes, place, cipher);
  const sealed = readSealed(stored);
  expect(sealed?.keyId).toBe('k1');
  expect(sealed && cipher.open(sealed, place)).toEqual(bytes);
  expect(plainSize(stored.subarray(0, MAX_HEADER_BYTES), stored.length)).toBe(1_000);
  for (let i = 8; i < 60; i++) {
    const cut = readSealed(stored.subarray(0, i));
    expect(() => cut && cipher.open(cut, place), `cut at ${i}`).toThrow(/cut off|"k?1?"/);
  }
  expect(readSealed(bytes)).toBeUndefined();
  expect(readSealed(Buffer.alloc(0))).toBeUndefined();
});
