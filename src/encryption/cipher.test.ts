import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import {
  Cipher,
  DecryptionFailed,
  EncryptionKeyMissing,
  NO_ENCRYPTION,
  readSealed,
  sealBytes,
  type EncryptionKey,
} from './cipher.ts';

function newKey(id: string): EncryptionKey {
  return { id, key: randomBytes(32) };
}

const first = newKey('k1');
const second = newKey('k2');
const cipher = new Cipher([first]);
const rotated = new Cipher([second, first]);
const aad = 'archive/turn_1/1';

test('an encrypted text can be read again, does not contain its plaintext, and differs each time', () => {
  for (const text of ['', 'The door code is 4711.', '😀'.repeat(10_000)]) {
    const stored = cipher.sealText(text, aad);
    expect(stored).toMatch(/^sealed:k1:/);
    if (text) expect(Buffer.from(stored.slice('sealed:k1:'.length), 'base64').includes(text)).toBe(false);
    expect(cipher.openText(stored, aad)).toBe(text);
    expect(cipher.sealText(text, aad)).not.toBe(stored);
  }
});

test('the first key encrypts, and all of them decrypt', () => {
  const before = cipher.sealText('before', aad);
  const after = rotated.sealText('after', aad);
  expect(after).toMatch(/^sealed:k2:/);
  expect(rotated.openText(before, aad)).toBe('before');
  expect(new Cipher([first, second]).openText(after, aad)).toBe('after');
});

test('a missing key is named', () => {
  const stored = rotated.sealText('after', aad);
  for (const lacking of [cipher, NO_ENCRYPTION]) {
    expect(() => lacking.openText(stored, aad)).toThrow(EncryptionKeyMissing);
    expect(() => lacking.openText(stored, aad)).toThrow('"k2"');
  }
});

test('the salt changes after its number of messages, each of which can be read', () => {
  const renewing = new Cipher([first], { messagesPerSalt: 2 });
  const sealed = Array.from({ length: 5 }, (_, i) => renewing.seal(Buffer.from(`text ${i}`), aad));
  const salts = sealed.map(({ data }) => data.subarray(0, 16).toString('hex'));
  expect(salts.map((salt) => salts.indexOf(salt))).toEqual([0, 0, 2, 2, 4]);
  expect(sealed.map((one) => cipher.open(one, aad).toString())).toEqual(sealed.map((_, i) => `text ${i}`));
});

test('another key with the same id decrypts nothing', () => {
  const stored = cipher.sealText('text', aad);
  expect(() => new Cipher([newKey('k1')]).openText(stored, aad)).toThrow(DecryptionFailed);
});

test('a value that was altered, truncated or moved cannot be decrypted', () => {
  const { keyId, data } = cipher.seal(Buffer.from('text'), aad);
  for (let i = 0; i < data.length; i++) {
    const changed = Buffer.from(data);
    changed[i] = (changed[i] ?? 0) ^ 1;
    expect(() => cipher.open({ keyId, data: changed }, aad), `byte ${i}`).toThrow(DecryptionFailed);
    expect(() => cipher.open({ keyId, data: data.subarray(0, i) }, aad), `cut at ${i}`).toThrow(DecryptionFailed);
  }
  expect(() => cipher.open({ keyId, data }, 'archive/turn_1/2')).toThrow(DecryptionFailed);
  const both = new Cipher([first, { id: 'k2', key: first.key }]);
  expect(() => both.open({ keyId: 'k2', data }, aad)).toThrow(DecryptionFailed);
  const text = cipher.sealText('text', aad);
  for (const cut of ['sealed:', 'sealed:k1:', text.slice(0, 30), text.slice(0, -4)]) {
    expect(() => cipher.openText(cut, aad), cut).toThrow(DecryptionFailed);
  }
});

test('plain text is read unchanged, and without keys every text is stored as plain text', () => {
  expect(cipher.openText('{"kind":"turn.created"}', aad)).toBe('{"kind":"turn.created"}');
  expect(NO_ENCRYPTION.sealText('text', aad)).toBe('text');
  expect(NO_ENCRYPTION.nameOf('hash', 'blob')).toBe('hash');
});

test('a label may look like an encrypted text; one that cannot be decrypted is null', () => {
  const sealed = rotated.sealText('title', aad);
  expect(rotated.openLabel(sealed, aad)).toBe('title');
  expect(cipher.openLabel(sealed, aad)).toBeNull();
  for (const title of ['sealed:k1:letter', 'sealed:', null]) expect(cipher.openLabel(title, aad)).toBe(title);
  expect(NO_ENCRYPTION.openLabel(sealed, aad)).toBe(sealed);
});

test('the same content in the same scope has the same name, which is recognized after a rotation', () => {
  const name = cipher.nameOf('hash', 'blob/ses_1');
  expect(name).toMatch(/^[0-9a-f]{64}$/);
  expect(cipher.nameOf('hash', 'blob/ses_1')).toBe(name);
  expect(cipher.nameOf('hash', 'blob/ses_2')).not.toBe(name);
  expect(rotated.nameOf('hash', 'blob/ses_1')).not.toBe(name);
  expect(rotated.namesOf('hash', 'blob/ses_1')).toEqual([rotated.nameOf('hash', 'blob/ses_1'), name, 'hash']);
});

test('encrypted bytes are recognized by their marker', () => {
  const bytes = randomBytes(1_000);
  const stored = sealBytes(bytes, aad, cipher);
  const sealed = readSealed(stored);
  expect(sealed?.keyId).toBe('k1');
  expect(sealed && cipher.open(sealed, aad)).toEqual(bytes);
  for (let i = 8; i < 60; i++) {
    const cut = readSealed(stored.subarray(0, i));
    expect(() => cut && cipher.open(cut, aad), `cut at ${i}`).toThrow(/truncated|"k?1?"/);
  }
  expect(readSealed(bytes)).toBeUndefined();
  expect(readSealed(Buffer.alloc(0))).toBeUndefined();
});
