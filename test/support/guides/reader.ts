import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect } from 'vitest';
import { runningKernelHost } from '../../../src/server/kernel-host-record.ts';
import { ApiClient } from '../api-client.ts';
import { eventually } from '../eventually.ts';
import { INHERITED_ENV } from '../inherited-env.ts';
import { keptPort } from '../kept-port.ts';
import { killGroupAtEnd } from '../reaper.ts';
import { ROOT } from './blocks.ts';

/**
 * The programs of the machine, as its users have them: without those of this checkout, which npm and vitest put before
 * them. So `node` is the machine's, and `npx node` that of the checkout.
 */
const USERS_PATH = (process.env['PATH'] ?? '')
  .split(path.delimiter)
  .filter((folder) => !folder.includes('node_modules'))
  .join(path.delimiter);

/** Checks that the program, if it is installed, has these options, and does nothing. */
const DRY = `program=$(PATH="\${PATH#*:}" command -v "$(basename "$0")") || exit 0
for argument in "$@"; do
  case $argument in --*) "$program" --help | grep --quiet -e "\${argument%%=*}" ;; esac
done`;

/** Programs that would change more than the reader's folder, take minutes, or need what this machine does not have. */
const PROGRAMS = {
  /** The packages are installed. */
  npm: `[ "$1" = ci ] || PATH=\${PATH#*:} exec npm "$@"`,
  /** Kills only the reader's own server, which the reader then starts again. */
  pkill: `group=$(cat "$READER/group")
/usr/bin/env PATH="\${PATH#*:}" pkill -g "$group" "$@"
while kill -0 -- "-$group" 2>/dev/null; do sleep 0.1; done
until curl --silent --output /dev/null "$EVERTURN_URL/healthz" 2>/dev/null; do sleep 0.1; done`,
  /** Checks the command, its options and its query, and changes nothing. */
  temporal: `"$TEMPORAL_CLI" "$@" --help >/dev/null
while [ $# -gt 0 ]; do
  if [ "$1" = --query ]; then "$TEMPORAL_CLI" workflow count --query "$2"; fi
  shift
done`,
  pg_dump: DRY,
  pg_restore: DRY,
  rsync: DRY,
  tar: DRY,
  /** The embedded Temporal has a database, that of the tests is elsewhere. */
  sqlite3: DRY,
  /** It has its help in a pager. */
  aws: '',
  /** Checks the options and the service, and the command that would run in its container. */
  'docker-compose': `subcommand=$1; shift
help=$(PATH=\${PATH#*:} docker-compose "$subcommand" --help)
entrypoint=()
while [[ \${1-} == -* ]]; do
  grep --quiet --word-regexp -e "$1" <<< "$help"
  [ "$1" != --entrypoint ] || { shift; entrypoint=("$1"); }
  shift
done
[ $# = 0 ] || { grep --quiet "^  $1:$" docker-compose.yml; shift; }
[ $# = 0 ] || "\${entrypoint[@]}" "$@"`,
};

/** Environment variables. */
type Settings = Record<string, string>;

/** The tools of a reader of a guide: a checkout, a terminal for the server, and one for the commands. */
export class Reader {
  readonly folder: string;
  readonly api: ApiClient;
  readonly #env: Settings;
  #server: { child: ChildProcess; output: () => string } | undefined;
  #shell: Shell | undefined;

  private constructor(folder: string, { port, programs, env }: { port: number; programs: string; env: Settings }) {
    this.folder = folder;
    this.api = new ApiClient(`http://127.0.0.1:${port}`);
    this.#env = {
      ...INHERITED_ENV,
      PATH: [path.join(folder, 'reader'), programs].join(path.delimiter),
      READER: path.join(folder, 'reader'),
      CURL_HOME: path.join(folder, 'reader'),
      EVERTURN_PORT: String(port),
      EVERTURN_URL: this.api.url,
      ...env,
    };
  }

  /**
   * @param env settings of the server, such as its Temporal
   * @param machine a folder with programs that precede those of this machine, such as another Node
   */
  static async start(env: Settings, machine?: { programs: string }): Promise<Reader> {
    const folder = await mkdtemp(path.join(tmpdir(), 'everturn-guide-'));
    for (const name of await readdir(ROOT)) {
      if (name !== '.git' && name !== '.everturn') await symlink(path.join(ROOT, name), path.join(folder, name));
    }
    const own = path.join(folder, 'reader');
    await mkdir(own);
    for (const [name, script] of Object.entries(PROGRAMS)) {
      await writeFile(path.join(own, name), `#!/usr/bin/env bash\nset -e\n${script}\n`);
      await chmod(path.join(own, name), 0o755);
    }
    // A request that the server rejects fails its block.
    await writeFile(path.join(own, '.curlrc'), 'fail\nshow-error\n');
    const programs = machine ? [machine.programs, USERS_PATH].join(path.delimiter) : USERS_PATH;
    return new Reader(folder, { port: await keptPort(), programs, env });
  }

  get isServing(): boolean {
    return this.#server !== undefined;
  }

  /** Starts the server by a block with `npm start`, in a terminal of its own, after the one before has stopped. */
  async serve(text: string, env: Settings = {}): Promise<void> {
    await this.#stopServer();
    const child = killGroupAtEnd(
      spawn('bash', ['-c', this.#local(text)], {
        cwd: this.folder,
        env: { ...this.#env, ...env },
        stdio: ['ignore', 'pipe', 'pipe'],
        detached: true,
      }),
    );
    await writeFile(path.join(this.folder, 'reader', 'group'), String(child.pid));
    let output = '';
    const server = { child, output: () => output };
    this.#server = server;
    const listening = Promise.withResolvers<void>();
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (chunk: string) => {
        output += chunk;
        if (output.includes('Everturn listens on')) listening.resolve();
      });
    }
    child.once('exit', () => {
      listening.reject(new Error(`the server has ended:\n${output}`));
      // A block has killed it, and asks the reader to start it again.
      if (this.#server === server) this.serve(text, env).catch(() => undefined);
    });
    await listening.promise;
  }

  /** Executes a block in the terminal of the page. @returns its output @throws Error if one of its commands fails */
  async run(text: string, env: Settings = {}): Promise<string> {
    this.#shell ??= new Shell(this.folder, this.#env);
    return this.#shell.run(this.#local(text), env);
  }

  /** Writes a file that a page shows. */
  async save(name: string, text: string): Promise<void> {
    await writeFile(path.join(this.folder, name), text);
  }

  /** Closes the terminal of the page, and removes what it has registered. */
  async turnPage(): Promise<void> {
    this.#shell?.close();
    this.#shell = undefined;
    for (const { name } of await this.api.list<{ name: string }>('/v1/agents')) {
      if (name !== 'demo') await this.api.send('DELETE', `/v1/agents/${name}`);
    }
    for (const { id } of (await this.api.get<{ data: { id: string }[] }>('/v1/webhooks')).data) {
      await this.api.send('DELETE', `/v1/webhooks/${id}`);
    }
  }

  async stop(): Promise<void> {
    this.#shell?.close();
    await this.#stopServer();
    await this.#stopKernelHost();
    await rm(this.folder, { recursive: true, force: true });
  }

  async #stopServer(): Promise<void> {
    const child = this.#server?.child;
    this.#server = undefined;
    if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const closed = once(child, 'close');
    // Everything that it needs survives that, as README.md shows.
    process.kill(-child.pid, 'SIGKILL');
    await closed;
  }

  /** It survives its server. */
  async #stopKernelHost(): Promise<void> {
    const dataDir = path.join(this.folder, '.everturn');
    const host = await runningKernelHost(dataDir);
    if (!host) return;
    process.kill(host.pid);
    await eventually(async () => expect(await runningKernelHost(dataDir)).toBeUndefined());
  }

  /** The block for the port of this reader's server. */
  #local(text: string): string {
    return text.replaceAll(/(?:127\.0\.0\.1|localhost):8080/g, new URL(this.api.url).host);
  }
}

/** One bash for all blocks of a page, whose variables the later ones use. */
class Shell {
  readonly #folder: string;
  readonly #child;
  #output = '';
  #blocks = 0;
  #wake = (): void => undefined;

  constructor(folder: string, env: Settings) {
    this.#folder = folder;
    this.#child = killGroupAtEnd(spawn('bash', [], { cwd: folder, env, detached: true }));
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream.setEncoding('utf8').on('data', (chunk: string) => {
        this.#output += chunk;
        this.#wake();
      });
    }
    this.#child.once('close', () => this.#wake());
    this.#child.stdin.write('set -eE; exec 2>&1; trap \'echo "failed: $BASH_COMMAND"\' ERR\n');
  }

  async run(text: string, env: Settings): Promise<string> {
    const start = this.#output.length;
    const file = path.join(this.#folder, 'reader', `block-${++this.#blocks}`);
    await writeFile(file, text);
    const exports = Object.entries(env).map(([name, value]) => `export ${name}=${value}\n`);
    const end = `--- the end of block ${this.#blocks}\n`;
    this.#child.stdin.write(`${exports.join('')}. ${file} </dev/null\nprintf '\\n%s\\n' '${end.trimEnd()}'\n`);
    while (!this.#output.includes(end, start)) {
      if (this.#child.exitCode !== null || this.#child.signalCode !== null) {
        throw new Error(`the block failed:\n${text}\n${this.#output.slice(start)}`);
      }
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    return this.#output.slice(start, this.#output.indexOf(end, start));
  }

  close(): void {
    const { pid, exitCode } = this.#child;
    if (pid !== undefined && exitCode === null) process.kill(-pid, 'SIGKILL');
  }
}
