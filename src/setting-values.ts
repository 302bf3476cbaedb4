import { isIP } from 'node:net';
import path from 'node:path';
import { z } from 'zod';
import { HOST_PATTERN, type NetworkMaximum } from './spec/host-pattern.ts';
import { VARIABLE_NAME } from './spec/kernel-env.ts';
import { ROLES, SUBJECT_NAME, subjectNamed, type Caller, type Role } from './core/subject.ts';
import type { EncryptionKey } from './encryption/cipher.ts';
import { INSTALLER_NAMES } from './temporal-server/installers.ts';

// How the values of settings are read. The error of each follows the name of the setting: what the value should be.

/** Node's timers have a limit of 2^31 ms, and some are set to a minute more than the configured time. */
export const MAX_SECONDS = 24 * 86_400;

/** For timers of Temporal, which have no such limit. */
export const TEN_YEARS_SECONDS = 3_650 * 86_400;

export const seconds = (defaultSeconds: number, max = MAX_SECONDS) =>
  z.coerce
    .number({ error: 'must be a number of seconds' })
    .positive({ error: 'must be a positive number of seconds' })
    .max(max, { error: `must be at most ${max} seconds${max >= MAX_SECONDS ? `, ${max / 86_400} days` : ''}` })
    .default(defaultSeconds);

const whole = (error: string, min: number, max = Number.MAX_SAFE_INTEGER) =>
  z.coerce.number({ error }).int({ error }).min(min, { error }).max(max, { error });

export const wholeFrom = (min: number, max: number) => whole(`must be a whole number from ${min} to ${max}`, min, max);

export function numberFrom(min: number, max: number) {
  const error = `must be a number from ${min} to ${max}`;
  return z.coerce.number({ error }).min(min, { error }).max(max, { error });
}

/** The headers of all requests to a server, by name. */
export const httpHeaders = z
  .record(
    z.string().regex(/^[\w!#$%&'*+.^`|~-]+$/),
    z.string({ error: 'must be a string' }).regex(/^[\t\x20-\x7e\x80-\xff]*$/, 'must be the value of an HTTP header'),
    { error: ({ code }) => (code === 'invalid_key' ? 'is not the name of an HTTP header' : 'must be an object') },
  )
  .default({});

export const limit = whole('must be a whole number, 0 for no limit', 0).optional();

export const mcpLimit = wholeFrom(1, 1_000_000);

export const port = whole('must be a port number, 0 to 65535', 0, 65_535);

const list = z.string().transform((value) => value.split(',').map((one) => one.trim()));

export const proxies = list
  .pipe(
    z.array(z.string().refine(isNetwork, { error: 'must be addresses or networks such as 10.0.0.0/8, with commas' })),
  )
  .default([]);

export const variableNames = list
  .pipe(z.array(z.string().regex(VARIABLE_NAME, 'must be names of environment variables, with commas')))
  .default([]);

export const networkMaximum = z
  .string()
  .transform((value, context): NetworkMaximum => {
    if (value === 'any') return value;
    const patterns = value === 'none' ? [] : value.split(',').map((one) => one.trim().toLowerCase());
    if (patterns.every((pattern) => HOST_PATTERN.test(pattern))) return patterns;
    context.addIssue('must be none, any, or host names such as pypi.org and *.example.com, with commas');
    return z.NEVER;
  })
  .default([]);

function isNetwork(value: string): boolean {
  const [address = '', prefix = '0', ...more] = value.split('/');
  const bits = { 4: 32, 6: 128 }[isIP(address)] ?? -1;
  return more.length === 0 && /^\d{1,3}$/.test(prefix) && Number(prefix) <= bits;
}

/** Relative to the working directory. */
export const absolutePath = z.string().transform((value) => path.resolve(value));

export const folders = list
  .pipe(z.array(z.string().min(1, { error: 'must be folders, with commas between them' }).pipe(absolutePath)))
  .default([]);

const INSTALLERS_RULE = `must be some of ${INSTALLER_NAMES.join(', ')}, each once, with commas, in the order in which they are tried`;

export const installers = list
  .pipe(
    z
      .array(z.enum(INSTALLER_NAMES, { error: INSTALLERS_RULE }))
      .refine((names) => new Set(names).size === names.length, { error: INSTALLERS_RULE }),
  )
  .default([...INSTALLER_NAMES]);

export const url = z.url({ protocol: /^https?$/, error: 'must be an http or https URL' });

export const publicUrl = url
  .refine((value) => !/[?#@]/.test(value), { error: 'must have no user name, query or fragment' })
  .transform((value) => value.replace(/\/+$/, ''));

export const flag = z
  .enum(['true', 'false', '1', '0'], { error: 'must be true or false' })
  .transform((value) => value === 'true' || value === '1');

export const apiKeys = z
  .string()
  .transform((value, context): { key: string; caller: Caller }[] => {
    const seen = new Set<string>();
    return value.split(',').flatMap((entry) => {
      const [, name = '', role = 'user', key] = /^\s*([^:=]+)(?::(\w+))?=(\S{8,})\s*$/.exec(entry) ?? [];
      const known = ROLES.find((one) => one === role);
      if (!SUBJECT_NAME.test(name) || !known || !key || seen.has(key)) {
        context.addIssue({
          code: 'custom',
          message:
            'must be <name>[:<role>]=<key>[,<name>...], each key different and at least 8 characters long, ' +
            `the role one of ${ROLES.join(', ')}`,
        });
        return [];
      }
      seen.add(key);
      return [{ key, caller: { subject: subjectNamed(name), roles: [known] } }];
    });
  })
  .default([]);

export const encryptionKeys = z
  .string()
  .transform((value, context): EncryptionKey[] => {
    const keys = value.split(',').flatMap((entry): EncryptionKey[] => {
      const [, id, base64] = /^\s*([\w.-]{1,32}):([A-Za-z0-9+/]{43}=?)\s*$/.exec(entry) ?? [];
      return id && base64 ? [{ id, key: Buffer.from(base64, 'base64') }] : [];
    });
    const ids = new Set(keys.map(({ id }) => id));
    if (keys.length === value.split(',').length && ids.size === keys.length) return keys;
    context.addIssue({
      code: 'custom',
      message:
        'must be <key id>:<32 bytes in base64>[,<key id>:...], each id different, of up to 32 letters, digits and . _ -; ' +
        '`openssl rand -base64 32` creates a key',
    });
    return [];
  })
  .default([]);

export const databaseUrl = z.string().refine((value) => /^sqlite:./.test(value) || isPostgresUrl(value), {
  error: 'must be sqlite:<file> or postgresql://<user>:<password>@<host>:<port>/<database>, its parts percent-encoded',
});

function isPostgresUrl(value: string): boolean {
  try {
    const { protocol, username, password, pathname } = new URL(value);
    decodeURIComponent(`${username}${password}${pathname}`);
    return /^postgres(ql)?:$/.test(protocol) && pathname.length > 1;
  } catch {
    return false;
  }
}

/** Names of buckets as S3 defines them; a prefix of plain names, so that no server or tool reads them differently. */
const BLOBS_URL = /^s3:\/\/([a-z\d][a-z\d.-]{1,61}[a-z\d])((?:\/[\w=-][\w.=-]*)*)\/?$/;

export const blobsUrl = z
  .string()
  .regex(BLOBS_URL, {
    error:
      'must be s3://<bucket> or s3://<bucket>/<prefix>, of letters, digits and . _ - =; ' +
      'if it is not set, blobs are in the folder EVERTURN_DATA',
  })
  .transform((value) => {
    const [, bucket = '', prefix = ''] = BLOBS_URL.exec(value) ?? [];
    return { bucket, prefix: prefix.slice(1) };
  });

export const redisUrl = z.string().refine(isRedisUrl, {
  error: 'must be redis://[[<user>]:<password>@]<host>[:<port>][/<database>], or rediss:// with TLS',
});

/** Also rejects invalid percent-encoding, which the client would report later and less clearly. */
function isRedisUrl(value: string): boolean {
  const { protocol = '', hostname, pathname = '', href = '' } = URL.parse(value) ?? {};
  return /^rediss?:$/.test(protocol) && !!hostname && /^(\/\d*)?$/.test(pathname) && !/%(?![\da-f]{2})/i.test(href);
}

export const oidcRoles = z
  .string()
  .default(ROLES.map((role) => `${role}=${role}`).join())
  .transform((value, context): ReadonlyMap<unknown, Role> => {
    const pairs = value.split(',').flatMap((pair): [string, Role][] => {
      const [, claimed, name] = /^\s*(.+)=(\w+)\s*$/.exec(pair) ?? [];
      const role = ROLES.find((one) => one === name);
      if (claimed && role) return [[claimed, role]];
      context.addIssue({
        code: 'custom',
        message: `must be <value of the claim>=<role>[,...], the role one of ${ROLES.join(', ')}`,
      });
      return [];
    });
    return new Map(pairs);
  });
