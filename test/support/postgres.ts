import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chown, mkdtemp, readdir, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { onPath } from '../../src/lib/on-path.ts';
import { keptPort } from './kept-port.ts';
import { killAtEnd } from './reaper.ts';

const run = promisify(execFile);

const USER = 'postgres';
const PASSWORD = 'secret/of+the@test';

/** PostgreSQL does not run as root. */
type Identity = { uid?: number; gid?: number };

/** A PostgreSQL server for a test, with its own folder, port and databases. */
export class Postgres {
  readonly #folder: string;
  readonly #port: number;
  readonly #bin: string;
  readonly #identity: Identity;
  readonly #isDurable: boolean;
  #child: ChildProcess | undefined;

  private constructor(options: { folder: string; port: number; bin: string; identity: Identity; isDurable: boolean }) {
    this.#folder = options.folder;
    this.#port = options.port;
    this.#bin = options.bin;
    this.#identity = options.identity;
    this.#isDurable = options.isDurable;
  }

  /** `isDurable`: with fsync, for measurements. Data of tests need not survive a crash of the machine. */
  static async start({ isDurable = false } = {}): Promise<Postgres> {
    const [bin, identity, port] = [await findPrograms(), await unprivileged(), await keptPort()];
    const folder = await mkdtemp(path.join(tmpdir(), 'everturn-postgres-'));
    const { uid, gid } = identity;
    if (uid !== undefined && gid !== undefined) await chown(folder, uid, gid);
    const postgres = new Postgres({ folder, port, bin, identity, isDurable });
    try {
      await postgres.#initialize();
      await postgres.up();
    } catch (error) {
      await postgres.stop();
      throw error;
    }
    return postgres;
  }

  async #initialize(): Promise<void> {
    const passwordFile = path.join(this.#folder, 'password');
    await writeFile(passwordFile, PASSWORD, { mode: 0o644 });
    // A natural-language collation instead of byte order: no code may depend on the collation.
    const locale = ['--encoding=UTF8', '--locale=C.UTF-8', '--locale-provider=icu', '--icu-locale=en-US'];
    const login = ['--auth=scram-sha-256', `--username=${USER}`, `--pwfile=${passwordFile}`];
    const options = { ...this.#identity, cwd: this.#folder };
    await run(
      path.join(this.#bin, 'initdb'),
      ['--no-sync', ...login, ...locale, path.join(this.#folder, 'data')],
      options,
    );
  }

  /** The URL of the default database, for the superuser. */
  get url(): string {
    return `postgresql://${USER}:${encodeURIComponent(PASSWORD)}@127.0.0.1:${this.#port}/postgres`;
  }

  /** Starts the server; resolves when it accepts connections. */
  async up(): Promise<void> {
    const settings = {
      port: this.#port,
      listen_addresses: '127.0.0.1',
      unix_socket_directories: this.#folder,
      max_connections: 200,
      ...(!this.#isDurable && { fsync: 'off', full_page_writes: 'off', synchronous_commit: 'off' }),
    };
    const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
    const child = spawn(path.join(this.#bin, 'postgres'), ['-D', path.join(this.#folder, 'data'), ...flags], {
      ...this.#identity,
      cwd: this.#folder,
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    // An immediate shutdown, which gives its shared memory back.
    this.#child = killAtEnd(child, 'SIGQUIT');
    const ready = Promise.withResolvers<void>();
    let log = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      log = `${log}${text}`.slice(-10_000);
      if (log.includes('ready to accept connections')) ready.resolve();
    });
    child.once('error', ready.reject);
    child.once('exit', (code) => ready.reject(new Error(`PostgreSQL ended with ${code}:\n${log}`)));
    await ready.promise;
  }

  /** A fast shutdown: clients are disconnected. */
  async down(): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill('SIGINT');
    await exited;
  }

  async stop(): Promise<void> {
    await this.down();
    await rm(this.#folder, { recursive: true, force: true });
  }
}

/** The folder of the newest PostgreSQL of this machine. Debian keeps it off PATH. */
async function findPrograms(): Promise<string> {
  const debian = '/usr/lib/postgresql';
  const versions = await readdir(debian).catch(() => []);
  const newest = versions.map(Number).sort((a, b) => b - a)[0];
  if (newest !== undefined) return path.join(debian, String(newest), 'bin');
  const [initdb] = await onPath('initdb', process.env);
  if (!initdb) throw new Error('PostgreSQL is not installed: apt-get install postgresql');
  return path.dirname(await realpath(initdb));
}

async function unprivileged(): Promise<Identity> {
  if (process.getuid?.() !== 0) return {};
  const id = async (flag: string) => Number((await run('id', [flag, USER])).stdout);
  return { uid: await id('-u'), gid: await id('-g') };
}
