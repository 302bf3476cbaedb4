import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import type { CommandEnd, CommandOptions, CommandRunner } from '../../../src/features/code/commands/command-runner.ts';
import { parseCommand } from '../../../src/features/code/commands/parse-command.ts';
import type { Wall } from '../../../src/features/code/kernel/wall.ts';
import { NEVER_ABORTED } from '../../../src/lib/abort.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { endOf, openSandbox, wallOf, type TestSandbox } from '../../support/kernels.ts';

// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

/** The state, parent, group and user of each process that has not ended. */
async function processes(): Promise<{ parent: number; group: number; uid: number; pid: number }[]> {
  const pids = (await readdir('/proc')).filter((pid) => /^\d+$/.test(pid));
  const found = await Promise.all(
    pids.map(async (pid) => {
      const read = (file: string) => readFile(`/proc/${pid}/${file}`, 'utf8').catch(() => '');
      const [stat, status] = await Promise.all([read('stat'), read('status')]);
      const [state, parent, group] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      const uid = Number(/^Uid:\t(\d+)/m.exec(status)?.[1] ?? -1);
      return {
        isRunning: stat !== '' && state !== 'Z',
        pid: Number(pid),
        parent: Number(parent),
        group: Number(group),
        uid,
      };
    }),
  );
  return found.filter(({ isRunning }) => isRunning);
}

describe.each(['sandbox', 'confined'] as const)('a command behind the wall %s', (name) => {
  let wall: Wall;
  let sandbox: TestSandbox;
  let runner: CommandRunner;

  beforeAll(async () => {
    wall = await wallOf(name);
  });

  beforeEach(async () => {
    sandbox = await openSandbox(wall);
    runner = sandbox.commandRunner();
  });

  afterEach(() => sandbox.remove());

  function workspace(): string {
    return name === 'sandbox' ? '/workspace' : sandbox.folders.workspace;
  }

  function home(): string {
    return name === 'sandbox' ? '/home/agent' : sandbox.folders.home;
  }

  function run(text: string, options: Partial<CommandOptions> = {}, by = runner): Promise<CommandEnd> {
    const defaults = { timeoutMs: 60_000, outputBytes: 1024 * 1024, signal: NEVER_ABORTED };
    return by.run({ text, cwd: workspace(), env: {}, ...defaults, ...options });
  }

  async function processCount(): Promise<number> {
    return (await processes()).filter(({ uid }) => uid === sandbox.uid).length;
  }

  it('has its output in the order of arrival, without escape sequences, and its exit code', async () => {
    const text = `echo one; echo two >&2; printf '\\033[31mthree\\033[0m \\377\\n'; exit 3`;
    const end = { output: 'one\ntwo\nthree \uFFFD\n', exitCode: 3, discardedBytes: 0, timedOut: false };
    expect(await run(text)).toEqual(end);
    expect(await run('kill -TERM $$')).toMatchObject({ exitCode: 143 });
    expect(await run('no-such-program')).toMatchObject({ exitCode: 127 });
    expect(await run('if')).toMatchObject({ exitCode: 2, output: expect.stringContaining('syntax error') as string });
  });

  it('runs in its folder, and its files are those of the sandbox', async () => {
    await mkdir(path.join(sandbox.folders.workspace, 'sub'));
    await writeFile(path.join(sandbox.folders.workspace, 'sub', 'given'), 'given');
    const { output } = await run('cat given && pwd && echo made > ../made', { cwd: `${workspace()}/sub` });
    expect(output).toBe(`given${workspace()}/sub\n`);
    expect(await readFile(path.join(sandbox.folders.workspace, 'made'), 'utf8')).toBe('made\n');
  });

  it.each(['/nowhere', '/root', 'a\0b'])('does not start in %j', async (cwd) => {
    const end = await run('echo ran', { cwd });
    expect(end).toMatchObject({
      exitCode: 126,
      output: expect.stringMatching(/^\[everturn\] .*not started/) as string,
    });
    expect(end.output).not.toContain('ran\n');
  });

  it.each([
    ['contains NUL', 'echo a\0b'],
    ['is longer than Linux allows', `echo ${'a'.repeat(131_072)}`],
  ])('that %s does not start', async (_, text) => {
    expect(await run(text)).toMatchObject({ exitCode: 126, output: expect.stringContaining('not started') as string });
  });

  it('has the environment of the code, without what would run other code', async () => {
    await writeFile(path.join(sandbox.folders.workspace, 'start-up'), 'echo started');
    await writeFile(path.join(sandbox.folders.home, '.bashrc'), 'echo started');
    const env = {
      GIVEN: 'a b',
      PATH: `${workspace()}:/usr/bin`,
      HOME: '/root',
      BASH_ENV: `${workspace()}/start-up`,
      SSH_CLIENT: '1',
      LD_PRELOAD: '/nowhere.so',
      'BASH_FUNC_ls%%': '() { echo function; }',
      'NO NAME': 'x',
    };
    const { output } = await run('env; ls', { env });
    const lines = output.split('\n');
    expect(lines).toEqual(expect.arrayContaining(['GIVEN=a b', `HOME=${home()}`, 'NO_COLOR=1', 'start-up']));
    expect(output).not.toMatch(/^(?:started|function|.*LD_PRELOAD.*|BASH.*|NO NAME.*)$/m);
    const search = /^PATH=(.*)$/m.exec(output)?.[1]?.split(':') ?? [];
    expect(search.indexOf(workspace())).toBeGreaterThan(search.indexOf('/usr/bin'));
    expect(output).not.toContain(process.env['PATH'] ?? 'none');
  });

  it('has the weight of the code', async () => {
    expect(await run('nice')).toMatchObject({ output: '5\n' });
  });

  it('has programs of the system, and pipes that end', async () => {
    const { output } = await run(`yes | head -2; awk 'BEGIN {print 1 + 1}'; timeout 0.1 sleep 60; echo $?`);
    expect(output).toBe('y\ny\n2\n124\n');
  });

  it('may run programs that it has made', async () => {
    const text = `printf '#!/bin/sh\\necho mine\\n' > mine && chmod +x mine && ./mine`;
    expect(await run(text)).toMatchObject({ output: 'mine\n', exitCode: 0 });
  });

  it('keeps and counts output up to its limit', async () => {
    const end = await run(`head -c 3000000 /dev/zero | tr '\\0' x`);
    expect(end).toMatchObject({ exitCode: 0, discardedBytes: 3_000_000 - 1024 * 1024 });
    expect(end.output).toBe('x'.repeat(1024 * 1024));
  });

  it('is ended at its time limit, with its output so far', async () => {
    const end = await run('echo begun; sleep 600; echo late', { timeoutMs: 3000 });
    expect(end).toMatchObject({ output: 'begun\n', exitCode: 124, timedOut: true });
    expect(await processCount()).toBe(0);
  });

  it('that floods its output is ended at its time limit', async () => {
    const end = await run('yes', { timeoutMs: 3000 });
    expect(end).toMatchObject({ exitCode: 124, timedOut: true });
    expect(end.output).toHaveLength(1024 * 1024);
    expect(end.discardedBytes).toBeGreaterThan(0);
  });

  it('is ended by its signal, also before it has started', async () => {
    const abort = new AbortController();
    const running = run('echo > begun; sleep 600', { signal: abort.signal });
    await expect.poll(() => readdir(sandbox.folders.workspace), { interval: 20 }).toContain('begun');
    abort.abort();
    expect(await running).toMatchObject({ exitCode: 130, timedOut: false });
    expect(await run('echo > again', { signal: abort.signal })).toMatchObject({ exitCode: 130, output: '' });
    expect(await readdir(sandbox.folders.workspace)).toEqual(['begun']);
    expect(await processCount()).toBe(0);
  });

  it.each(['sleep 600 &', '(trap "" HUP TERM; nohup sleep 600 >/dev/null 2>&1 &) &', 'sleep 600 | sleep 600 & disown'])(
    'leaves no process behind: %s',
    async (text) => {
      expect(await run(`${text}\necho done`)).toMatchObject({ output: 'done\n', exitCode: 0 });
      expect(await processCount()).toBe(0);
    },
  );

  it('that forks without end stays within the limit, and all of it is ended', async () => {
    const bounded = sandbox.commandRunner({ processes: 32 });
    const bomb = run('while :; do sleep 600 & done 2>/dev/null; wait', { timeoutMs: 3000 }, bounded);
    await expect.poll(processCount, { interval: 20 }).toBeGreaterThan(20);
    expect(await processCount()).toBeLessThanOrEqual(32);
    await bomb;
    expect(await processCount()).toBe(0);
  });

  it.each([
    ['one process', 'tail /dev/zero'],
    ['many processes', `for i in $(seq 12); do head -c 100000000 /dev/zero | tail & done; wait`],
  ])('with too much memory in %s is ended, and others are not', async (_, text) => {
    const small = sandbox.commandRunner({ memoryBytes: 256 * 1024 * 1024 });
    const other = run('until [ -e go ]; do sleep 0.05; done; echo calm');
    const end = await run(text, {}, small);
    expect(end).toMatchObject({
      exitCode: 137,
      output: '[everturn] the command was ended: it had more than 268435456 bytes\n',
    });
    await writeFile(path.join(sandbox.folders.workspace, 'go'), '');
    expect(await other).toMatchObject({ output: 'calm\n', exitCode: 0 });
  });

  it('cannot signal the kernel of its sandbox, and does not end with it', async () => {
    const kernel = await sandbox.startKernel();
    const running = run('echo > begun; until [ -e go ]; do sleep 0.05; done; echo went on');
    await expect.poll(() => readdir(sandbox.folders.workspace), { interval: 20 }).toContain('begun');
    const own = (await processes()).filter(({ uid }) => uid === sandbox.uid).map(({ pid }) => pid);
    const signals = await run(
      `for pid in ${own.join(' ')}; do kill -9 $pid 2>/dev/null && echo killed $pid; done; true`,
    );
    expect(signals.output).toBe('');
    await kernel.stop('the command must go on');
    await writeFile(path.join(sandbox.folders.workspace, 'go'), '');
    expect(await running).toMatchObject({ output: 'went on\n', exitCode: 0 });
  });

  it('gives a kernel no way to start programs', async () => {
    expect(await run(`cp /bin/true mine && chmod +x mine && ./mine && echo ran`)).toMatchObject({ output: 'ran\n' });
    const kernel = await sandbox.startKernel();
    const calls = [
      'subprocess.run(["/bin/true"])',
      'os.execv("./mine", ["mine"])',
      'os.posix_spawn("./mine", ["mine"], {})',
      'os.system("true") == 0 or os.execv("/bin/sh", ["sh"])',
    ];
    const code = `import os, subprocess\nfor call in ${JSON.stringify(calls)}:\n    try: print("ran", eval(call))\n    except PermissionError: print("refused")`;
    const end = await endOf(kernel.run({ id: 'cell', code }, { timeoutMs: 60_000, onOutput: () => undefined }));
    expect(JSON.stringify(end)).toContain(JSON.stringify('refused\n'.repeat(4)));
  });

  it('does not run once the sandbox has ended', async () => {
    const running = run('echo > begun; sleep 600');
    await expect.poll(() => readdir(sandbox.folders.workspace), { interval: 20 }).toContain('begun');
    await runner.stop();
    expect(await processCount()).toBe(0);
    expect(await running).toMatchObject({ exitCode: 143 });
    await expect(run('true')).rejects.toThrow('has ended');
  });

  it('does not run behind a wall that lets something through', async () => {
    const leaking = await openSandbox({ ...wall, pythonFolders: [...wall.pythonFolders, '/var/tmp'] });
    vi.stubEnv('TMPDIR', '/var/tmp');
    const text = 'echo > ran';
    await expect(run(text, { cwd: '/' }, leaking.commandRunner())).rejects.toThrow(
      'the wall does not hold: read was possible',
    );
    vi.unstubAllEnvs();
    await leaking.remove();
  });

  describe('pip', () => {
    const BACKEND = `
import zipfile
def build_wheel(folder, settings=None, metadata=None):
    name = "greeting-1.0-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("greeting.py", "def main(): print('hello')")
        info = "greeting-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: greeting\\nVersion: 1.0\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/entry_points.txt", "[console_scripts]\\ngreet = greeting:main\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
`;
    const PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n';

    beforeEach(async () => {
      const project = path.join(sandbox.folders.workspace, 'project');
      await mkdir(project);
      await writeFile(path.join(project, 'backend.py'), BACKEND);
      await writeFile(path.join(project, 'pyproject.toml'), PROJECT);
    });

    it.each([
      ['a folder of sources', 'python -m pip install --quiet ./project'],
      [
        'a wheel',
        "python -c \"import sys; sys.path.insert(0, 'project'); import backend; backend.build_wheel('.')\" && python -m pip install --quiet ./*.whl",
      ],
    ])('installs %s into the home of the sandbox', async (_, text) => {
      expect(await run(text)).toMatchObject({ output: '', exitCode: 0 });
      expect(await run('greet; python -c "import greeting; greeting.main()"')).toMatchObject({
        output: 'hello\nhello\n',
      });
      const modules = path.join(sandbox.folders.home, '.local/lib');
      const kernel = await sandbox.startKernel();
      const code = `import greeting\ngreeting.main()`;
      const end = await endOf(kernel.run({ id: 'cell', code }, { timeoutMs: 60_000, onOutput: () => undefined }));
      expect(end).toMatchObject({ exit: 'ok', parts: [{ text: 'hello\n' }] });
      expect(await readdir(modules, { recursive: true })).toContainEqual(
        expect.stringMatching(/site-packages\/greeting\.py$/),
      );
    });

    it('finds the packages of the environment installed', async () => {
      const { output } = await run('python -m pip install --no-index pandas');
      expect(output).toContain('Requirement already satisfied: pandas');
    });
  });

  it('is one process for a script of several lines', async () => {
    const script = 'x=1\nif [ $x = 1 ]; then\n  echo "$$ $x"\nfi\necho $$';
    const [first, second] = (await run(script)).output.trim().split('\n');
    expect(first).toBe(`${second} 1`);
  });

  it('of several pieces runs as they were parsed', async () => {
    const text = 'echo "a && b; c" && printf \'%s\\n\' x | tr x y; echo $HOME # not this';
    const { pieces } = parseCommand(text);
    expect(pieces.map((piece) => piece.text)).toEqual(['echo "a && b; c"', "printf '%s\\n' x", 'tr x y', 'echo $HOME']);
    expect(await run(text)).toMatchObject({ output: `a && b; c\ny\n${home()}\n`, exitCode: 0 });
  });
});

describe('a command whose host is killed', () => {
  let parent: string;

  afterEach(() => rm(parent, { recursive: true, force: true }));

  it.each([
    { wanted: 'bwrap', user: 'root', uid: 0, isolation: 'sandbox', hasOwnUser: true },
    { wanted: 'landlock', user: 'root', uid: 0, isolation: 'confined', hasOwnUser: true },
    { wanted: 'auto', user: 'nobody', uid: 65_534, isolation: 'sandbox', hasOwnUser: false },
    { wanted: 'landlock', user: 'nobody', uid: 65_534, isolation: 'confined', hasOwnUser: false },
  ])('ends with its children: $wanted as $user', async ({ wanted, uid, isolation, hasOwnUser }) => {
    parent = await mkdtemp(path.join(os.tmpdir(), 'everturn-host-'));
    await chmod(parent, 0o777);
    const script = path.join(import.meta.dirname, 'command-host.ts');
    const args = [script, wanted, await kernelPython(), parent];
    const host = spawn(process.execPath, args, { uid, gid: uid, stdio: ['ignore', 'pipe', 'inherit'] });
    const [printed] = (await once(host.stdout, 'data')) as [Buffer];
    expect(JSON.parse(printed.toString())).toMatchObject({ isolation, hasOwnUser });
    const group = (await processes()).find((one) => one.parent === host.pid)?.pid ?? 0;
    const members = async () => (await processes()).filter((one) => one.group === group).length;
    expect(await members()).toBeGreaterThanOrEqual(3);
    host.kill('SIGKILL');
    await expect.poll(members, { interval: 50 }).toBe(0);
  });
});

describe('where the user is shared', () => {
  let sandbox: TestSandbox;

  beforeAll(async () => {
    sandbox = await openSandbox(await wallOf('sharing'));
  });

  afterAll(() => sandbox.remove());

  it.each([
    ['processes', 'for i in $(seq 64); do sleep 600 & done; wait'],
    [
      'processes that have ended',
      `python -c 'import os, time\nfor _ in range(64): os.fork() or os._exit(0)\ntime.sleep(600)'`,
    ],
  ])('%s are bounded by the kernel host', async (_, text) => {
    const options = {
      cwd: sandbox.folders.workspace,
      env: {},
      timeoutMs: 60_000,
      outputBytes: 1024,
      signal: NEVER_ABORTED,
    };
    const end = await sandbox.commandRunner({ processes: 32 }).run({ text, ...options });
    expect(end).toMatchObject({
      exitCode: 137,
      output: '[everturn] the command was ended: it had more than 32 processes\n',
    });
  });
});
