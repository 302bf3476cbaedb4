import { expect, test } from 'vitest';
import { HOST_PATTERN, hostName, isWithin, isWithinMaximum } from './host-pattern.ts';

test('a pattern is a host name, or all names below one', () => {
  for (const pattern of ['pypi.org', '*.example.com', 'localhost', 'a_b.x-1.Example', 'xn--bcher-kva.example']) {
    expect(pattern).toMatch(HOST_PATTERN);
  }
  const addresses = ['127.0.0.1', '127.1', '2130706433', '0x7f000001', '*.0.0.1', '[::1]', '::1', '1.2.3.0x4'];
  const others = [
    '',
    '*',
    '*.',
    'a.*.com',
    '*a.com',
    'a..b',
    '.a',
    'a.',
    '-a.com',
    'a-.com',
    'a b',
    'a/b',
    'a:80',
    'é.fr',
    'a\n',
  ];
  for (const pattern of [...addresses, ...others, 'http://a.com', 'a@b.com', `${'a'.repeat(64)}.com`]) {
    expect(pattern).not.toMatch(HOST_PATTERN);
  }
});

test('a host name is compared in lower case and without the root, and no address is one', () => {
  expect(hostName('PyPI.org.')).toBe('pypi.org');
  for (const given of ['127.0.0.1', '[::1]', '0x7f.1', '*.a.com', 'a..', '', `${'a.'.repeat(127)}com`]) {
    expect(hostName(given), given).toBeUndefined();
  }
});

test('`*.` stands for all names below, and not for the name itself or one that only ends like it', () => {
  expect(isWithin('a.example.com', '*.example.com')).toBe(true);
  expect(isWithin('a.b.example.com', '*.example.com')).toBe(true);
  expect(isWithin('*.b.example.com', '*.example.com')).toBe(true);
  expect(isWithin('example.com', '*.example.com')).toBe(false);
  expect(isWithin('an-example.com', '*.example.com')).toBe(false);
  expect(isWithin('*.example.com', 'example.com')).toBe(false);
  expect(isWithin('*.example.com', 'a.example.com')).toBe(false);
  expect(isWithin('a.example.com', 'example.com')).toBe(false);
});

test('the maximum of an operator is any host, or those of its patterns', () => {
  expect(isWithinMaximum('*.com', 'any')).toBe(true);
  expect(isWithinMaximum('pypi.org', [])).toBe(false);
  expect(isWithinMaximum('pypi.org', ['a.com', 'pypi.org'])).toBe(true);
  expect(isWithinMaximum('*.org', ['a.com', 'pypi.org'])).toBe(false);
});
