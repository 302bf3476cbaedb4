import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { apiReference } from './api-reference.ts';

test('docs/api.md is what the routes declare: `npm run docs:api` writes it', () => {
  expect(readFileSync(new URL('api.md', import.meta.url), 'utf8')).toBe(apiReference());
});
