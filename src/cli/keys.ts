import { InvalidArgumentError, Option, type Command } from 'commander';
import { hashOfKey, newApiKey } from '../auth/api-keys.ts';
import { ROLES, SUBJECT_NAME, type Role } from '../core/subject.ts';
import { Catalog } from '../features/catalog.ts';
import type { KeyRow } from '../catalog/schema.ts';
import { ConfigError, loadConfig } from '../config.ts';
import { openDataDir } from '../lib/data-dir.ts';
import { createLogger } from '../telemetry/logger.ts';
import { newId } from '../engine/new-id.ts';

const DAY_MS = 86_400_000;

/** `everturn keys create|list|revoke`: works on a server's catalog, whether or not the server is running. */
export function addKeysCommand(program: Command): void {
  const keys = program.command('keys').description('create, list and revoke API keys');
  keys
    .command('create')
    .description('create a key, which is shown only once, alone on standard output')
    .argument('<name>', 'the owner; several keys may share a name, and sessions belong to the name', subjectName)
    .addOption(new Option('--role <role>', 'what the key permits').choices(ROLES).default('user'))
    .option('--expires-days <days>', 'expire after this many days', positiveDays)
    .action(create);
  keys.command('list').description('list all keys, including revoked ones').action(list);
  keys
    .command('revoke')
    .description('revoke a key; it stops working within seconds, and its open streams end')
    .argument('<id>', 'the id that list shows')
    .action(revoke);
}

async function create(name: string, options: { role: Role; expiresDays?: number }): Promise<void> {
  const key = newApiKey();
  const now = Date.now();
  const id = newId('key', now);
  const { role, expiresDays } = options;
  const config = loadConfig();
  // The key may be for a server that has not been started yet.
  await openDataDir(config.dataDir);
  await using catalog = await Catalog.open(config.database, createLogger(config));
  const isFirst = !(await catalog.keys.any());
  await catalog.keys.insert({
    id,
    hash: hashOfKey(key),
    name,
    role,
    created_at: new Date(now).toISOString(),
    expires_at: expiresDays === undefined ? null : new Date(now + expiresDays * DAY_MS).toISOString(),
  });
  process.stderr.write(`${id} is a key for ${name}, role ${role}. It is not stored and not shown again:\n`);
  process.stdout.write(`${key}\n`);
  if (isFirst) process.stderr.write('This is the first key: from now on every request to this server needs one.\n');
}

async function list(): Promise<void> {
  const keys = await withCatalog((catalog) => catalog.keys.list());
  const now = new Date().toISOString();
  const rows = keys.map((key) => {
    const { id, name, role, created_at: created, last_used_at: used } = key;
    return [id, name, role, created, used ?? '-', stateOf(key, now)];
  });
  process.stdout.write(table([['id', 'name', 'role', 'created', 'last used', 'state'], ...rows]));
}

async function revoke(id: string): Promise<void> {
  const key = await withCatalog((catalog) => catalog.keys.revoke(id, new Date().toISOString()));
  if (!key) throw new ConfigError(`there is no key ${id}: \`everturn keys list\` shows them`);
  process.stderr.write(`${id} of ${key.name} was revoked at ${key.revoked_at}\n`);
}

function stateOf({ revoked_at: revoked, expires_at: expires }: KeyRow, now: string): string {
  if (revoked !== null) return `revoked ${revoked}`;
  if (expires === null) return 'active';
  return expires <= now ? `expired ${expires}` : `active until ${expires}`;
}

/** Formats rows with columns as wide as their longest cell. */
function table(rows: string[][]): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  const lines = rows.map((row) => row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  '));
  return lines.map((line) => `${line.trimEnd()}\n`).join('');
}

async function withCatalog<T>(work: (catalog: Catalog) => Promise<T>): Promise<T> {
  const config = loadConfig();
  await using catalog = await Catalog.openExisting(config.database, createLogger(config));
  return await work(catalog);
}

function subjectName(value: string): string {
  if (SUBJECT_NAME.test(value)) return value;
  throw new InvalidArgumentError('A name has 1 to 128 letters, digits and . _ @ - only.');
}

function positiveDays(value: string): number {
  const days = Number(value);
  if (days > 0 && days <= 36_500) return days;
  throw new InvalidArgumentError('It must be a positive number of days, at most 36500.');
}
