import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Kernel } from '../../../src/features/code/kernel/kernel.ts';
import type { CellEnd } from '../../../src/features/code/kernel/running-cell.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { endOf, openSandbox, runAnswering, wallOf, type TestSandbox } from '../../support/kernels.ts';

let cells = 0;

// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

function run(kernel: Kernel, code: string, timeoutMs = 30_000): Promise<CellEnd> {
  return endOf(kernel.run({ id: `cell-${cells++}`, code }, { timeoutMs, onOutput: () => {} }));
}

function textOf({ parts }: CellEnd): string {
  return parts.map(({ text }) => text).join('');
}

/** Sends lines to the kernel host as if they were the kernel's. `ME` is the running cell. */
const FORGE = `
import json, os
def forge(*frames):
    data = b"".join(json.dumps(frame).encode() + b"\\n" for frame in frames)
    while data: data = data[os.write(3, data):]
ME = get_ipython().output._cell
GATEWAY = get_ipython()._commands._gateway
def calls(*calls, token=GATEWAY._token):
    return {"type": "calls", "id": ME, "token": token, "calls": list(calls)}
TOOL = {"kind": "tool", "number": 1, "server": "lab", "tool": "add", "arguments": "{}"}
COMMAND = {"kind": "command", "number": 1, "text": "ls", "isScript": False, "cwd": "/", "env": {}}
END = {"type": "end", "id": ME, "isMarked": False, "error": None, "isDenied": False, "defined": [], "names": [], "nameCount": 0, "discardedBytes": 0, "notices": []}
`;

describe.each(['sandbox', 'confined'] as const)('behind the wall %s', (name) => {
  let sandbox: TestSandbox;

  beforeAll(async () => {
    sandbox = await openSandbox(await wallOf(name));
  });

  afterAll(() => sandbox.remove());

  /** How many processes of a sandbox's user run. */
  async function processesOf({ uid }: TestSandbox): Promise<number> {
    return (await processes()).filter((one) => one.uid === uid).length;
  }

  describe('a forged frame', () => {
    it('of another cell is ignored', async () => {
      const kernel = await sandbox.startKernel();
      const code = `${FORGE}\nforge({**END, "id": "other"}, {"type": "output", "id": "other", "channel": "stdout", "text": "no"})\n"mine"`;
      expect(textOf(await run(kernel, code))).toBe("'mine'\n");
    });

    it('that ends its own cell leaves the next one alone', async () => {
      const kernel = await sandbox.startKernel();
      const end = await run(
        kernel,
        `${FORGE}\nprint("first")\nforge(END)\nimport time; time.sleep(0.3); print("late")`,
      );
      expect(end).toMatchObject({ exit: 'ok' });
      const next = textOf(await run(kernel, '"second"'));
      expect(next).toContain("'second'");
      expect(next).not.toContain('late');
    });

    it('that declares itself ready again has no effect', async () => {
      const kernel = await sandbox.startKernel();
      expect(textOf(await run(kernel, `${FORGE}\nforge({"type": "ready", "pid": 1})\n"mine"`))).toBe("'mine'\n");
      kernel.interrupt();
    });

    it('of calls without the token of the cell is ignored', async () => {
      const kernel = await sandbox.startKernel();
      const code = `${FORGE}\nforge(calls(TOOL, token="0" * 32))\n"mine"`;
      expect(textOf(await run(kernel, code))).toBe("'mine'\n");
    });

    it('of calls with the token of an earlier cell is ignored', async () => {
      const kernel = await sandbox.startKernel();
      await run(kernel, `${FORGE}\nearlier = GATEWAY._token`);
      expect(textOf(await run(kernel, `${FORGE}\nforge(calls(TOOL, token=earlier))\n"mine"`))).toBe("'mine'\n");
    });

    it('of calls can ask for them only: the answers reach no code', async () => {
      const kernel = await sandbox.startKernel();
      const answer = { status: 'succeeded', content: 'secret' } as const;
      const code = `${FORGE}\nforge(calls(TOOL))\n"mine"`;
      const { text, batches } = await runAnswering(kernel, code, () => answer);
      expect(batches).toHaveLength(1);
      expect(text).toBe("'mine'\n");
    });

    it('that ends its own cell, whose code runs on, ends the kernel at the time limit of the next one', async () => {
      const kernel = await sandbox.startKernel();
      await run(kernel, `${FORGE}\nforge({**END, "isMarked": False})\nwhile True: pass`);
      expect(await run(kernel, '"second"', 300)).toMatchObject({ kernelEnd: { reason: 'unresponsive' } });
    });

    it.each([
      ['a number that does not follow', 'forge(calls({**TOOL, "number": 2}))'],
      ['the same number twice', 'forge(calls(TOOL, TOOL))'],
      ['calls before the last ones are answered', 'forge(calls(TOOL), calls({**TOOL, "number": 2}))'],
      ['more calls than a cell may make', 'forge(calls({**TOOL, "number": 1001}))'],
      ['more calls than a batch may have', 'forge(calls(*({**TOOL, "number": n + 1} for n in range(501))))'],
      ['no calls', 'forge(calls())'],
      ['an unknown kind', 'forge(calls({**TOOL, "kind": "agent"}))'],
      ['arguments that are no JSON', 'forge(calls({**TOOL, "arguments": "{"}))'],
      ['arguments that are no object', 'forge(calls({**TOOL, "arguments": "[]"}))'],
      [
        'arguments that are nested deeply',
        'forge(calls({**TOOL, "arguments": "{\\"a\\":" + "[" * 99 + "]" * 99 + "}"}))',
      ],
      ['arguments that are large', 'forge(calls({**TOOL, "arguments": json.dumps({"a": "x" * (1 << 20)})}))'],
      ['a long name', 'forge(calls({**TOOL, "server": "x" * 1025}))'],
      ['a command that is large', 'forge(calls({**COMMAND, "text": "\u20ac" * 350_000}))'],
      ['a command with a null character', 'forge(calls({**COMMAND, "text": "ls\\0"}))'],
      ['a command that is no Unicode', 'forge(calls({**COMMAND, "text": "\\ud800"}))'],
      ['a large environment', 'forge(calls({**COMMAND, "env": {"A": "x" * 300_000}}))'],
      ['an odd environment', 'forge(calls({**COMMAND, "env": {"A=B": "x"}}))'],
      ['a long working directory', 'forge(calls({**COMMAND, "cwd": "/" * 5000}))'],
    ])('of calls with %s ends the kernel', async (_, code) => {
      const kernel = await sandbox.startKernel();
      const waiting = await kernel.run(
        { id: `cell-${cells++}`, code: `${FORGE}\n${code}\nimport time; time.sleep(20)` },
        { timeoutMs: 30_000, onOutput: () => {} },
      );
      // The first of two is asked for before the second comes.
      const stop =
        waiting.status === 'calls'
          ? await kernel.ended.then(() =>
              kernel.resume([{ number: 1, status: 'failed', message: 'no' }], { spentMs: 0 }),
            )
          : waiting;
      expect(stop).toMatchObject({
        end: { exit: 'died', kernelEnd: { reason: 'died', detail: expect.stringMatching(/^it has sent/) as string } },
      });
    });

    it('with more displays than allowed is bounded', async () => {
      const kernel = await sandbox.startKernel();
      const code = `${FORGE}\nforge(*[{"type": "display", "id": ME, "mediaType": "image/png", "data": "AAAA"}] * 100)`;
      expect((await run(kernel, code)).displays).toHaveLength(20);
    });

    it('with more output than allowed is bounded', async () => {
      const kernel = await sandbox.startKernel();
      const code = `${FORGE}\nforge(*[{"type": "output", "id": ME, "channel": "stdout", "text": "x" * 100_000}] * 100)`;
      const end = await run(kernel, code);
      expect(textOf(end)).toHaveLength(1024 * 1024);
      expect(end.outputBytes).toBe(10_000_000);
    });

    it.each([
      ['no JSON', 'os.write(3, b"{]\\n")'],
      ['no known frame', 'forge({"type": "run", "id": ME, "code": "1"})'],
      ['more names than allowed', 'forge({**END, "names": ["x"] * 201})'],
      ['a name that is long', 'forge({**END, "defined": ["x" * 257]})'],
      ['a negative count', 'forge({**END, "discardedBytes": -1})'],
      ['a media type that is none of ours', 'forge({"type": "display", "id": ME, "mediaType": "text/x", "data": ""})'],
      ['deep nesting', 'os.write(3, b"[" * 200_000 + b"\\n")'],
      ['larger than a frame may be', 'forge("x" * (13 << 20))'],
    ])('that is %s ends the kernel', async (_, code) => {
      const kernel = await sandbox.startKernel();
      const end = await run(kernel, `${FORGE}\n${code}\nimport time; time.sleep(20)`);
      expect(end).toMatchObject({
        exit: 'died',
        kernelEnd: { reason: 'died', detail: 'it has sent what is no frame' },
      });
    });
  });

  it('a closed channel ends the kernel', async () => {
    const kernel = await sandbox.startKernel();
    const end = await run(kernel, 'import os; os.close(3)');
    expect(end).toMatchObject({ exit: 'died', kernelEnd: { reason: 'died' } });
  });

  it('a flood of bytes is bounded, and other kernels continue', async () => {
    const [flooding, other] = await Promise.all([sandbox.startKernel(), sandbox.startKernel()]);
    const flood = run(flooding, 'import os\nchunk = b"x" * 65536\nwhile True: os.write(1, chunk)', 1500);
    expect(textOf(await run(other, '"calm"'))).toBe("'calm'\n");
    const end = await flood;
    expect(end.exit).toBe('timeout');
    expect(textOf(end).length).toBeLessThanOrEqual(1024 * 1024 + 1000);
    expect(end.discardedBytes).toBeGreaterThan(0);
  });

  describe('a process', () => {
    let own: TestSandbox;

    beforeEach(async () => {
      own = await openSandbox(await wallOf(name));
    });

    afterEach(() => own.remove());

    it('that forks without end stays within the limit and ends with its kernel', async () => {
      const kernel = await own.startKernel({ limits: { processes: 32 } });
      const code = 'import os, time\nwhile True:\n    try: os.fork()\n    except OSError: time.sleep(0.05)';
      const bomb = run(kernel, code, 5000);
      await expect.poll(() => processesOf(own), { interval: 50 }).toBeGreaterThan(20);
      expect(await processesOf(own)).toBeLessThanOrEqual(32);
      await bomb;
      await kernel.stop('the bomb has been seen');
      expect(await processesOf(own)).toBe(0);
    });

    it('that outlives its cell ends with its kernel', async () => {
      const kernel = await own.startKernel();
      await run(kernel, 'import os, time\nif os.fork() == 0: time.sleep(600)');
      expect(await processesOf(own)).toBe(2);
      await kernel.stop('its child must go');
      expect(await processesOf(own)).toBe(0);
    });
  });

  it.each([
    ['one process', 'data = bytearray(2 << 30)\nfor i in range(0, len(data), 4096): data[i] = 1'],
    [
      'many processes',
      'import os, time\nfor _ in range(20):\n    if os.fork() == 0:\n        data = b"x" * (100 << 20); time.sleep(60)\ntime.sleep(60)',
    ],
  ])('memory above the limit in %s ends this kernel only', async (_, code) => {
    const [greedy, other] = await Promise.all([sandbox.startKernel(), sandbox.startKernel()]);
    await run(other, 'kept = 1');
    expect(await run(greedy, code, 60_000)).toMatchObject({ exit: 'died', kernelEnd: { reason: 'out_of_memory' } });
    expect(textOf(await run(other, 'kept'))).toBe('1\n');
  });

  it('memory that forked processes share is counted once', async () => {
    const kernel = await sandbox.startKernel({ limits: { memoryBytes: 400 * 1024 * 1024 } });
    const code = [
      'import gc, os, time',
      'data = b"x" * (150 << 20)',
      'gc.freeze()',
      'children = []',
      'for _ in range(4):',
      '    if (child := os.fork()) == 0: time.sleep(1); os._exit(0)',
      '    children.append(child)',
      'for child in children: os.waitpid(child, 0)',
      '"within"',
    ].join('\n');
    expect(textOf(await run(kernel, code))).toBe("'within'\n");
  });

  it('code has a third of the weight of its host, with which it shares a session, and gets no more', async () => {
    const own = await openSandbox(await wallOf(name));
    const kernel = await own.startKernel();
    const raised = await run(kernel, 'import os; os.setpriority(os.PRIO_PROCESS, 0, 0)');
    expect(raised).toMatchObject({ error: { name: 'PermissionError' } });
    const all = await processes();
    const session = all.find(({ pid }) => pid === process.pid)?.session;
    const shares = all.filter(({ uid }) => uid === own.uid).map((one) => [one.session, one.nice]);
    expect(shares).toEqual([[session, 5]]);
    await own.remove();
  });

  it('a wall that lets something through does not start', async () => {
    const wall = await wallOf(name);
    const leaking = await openSandbox({ ...wall, pythonFolders: [...wall.pythonFolders, '/var/tmp'] });
    vi.stubEnv('TMPDIR', '/var/tmp');
    await expect(leaking.startKernel()).rejects.toThrow('the wall does not hold: read was possible');
    vi.unstubAllEnvs();
    await leaking.remove();
  });
});

it('processes are bounded by the kernel host where the user is shared', async () => {
  const sandbox = await openSandbox(await wallOf('sharing'));
  const kernel = await sandbox.startKernel({ limits: { processes: 32 } });
  const code = 'import os, time\nfor _ in range(64):\n    if os.fork() == 0: time.sleep(60)\ntime.sleep(60)';
  expect(await run(kernel, code)).toMatchObject({ kernelEnd: { reason: 'died', detail: 'more than 32 processes' } });
  await sandbox.remove();
});

describe('a kernel whose host is killed', () => {
  let parent: string;

  afterEach(() => rm(parent, { recursive: true, force: true }));

  it.each([
    { wanted: 'bwrap', user: 'root', uid: 0, isolation: 'sandbox', hasOwnUser: true },
    { wanted: 'landlock', user: 'root', uid: 0, isolation: 'confined', hasOwnUser: true },
    { wanted: 'auto', user: 'nobody', uid: 65_534, isolation: 'sandbox', hasOwnUser: false },
    { wanted: 'landlock', user: 'nobody', uid: 65_534, isolation: 'confined', hasOwnUser: false },
  ])('ends: $wanted as $user', async ({ wanted, uid, isolation, hasOwnUser }) => {
    parent = await mkdtemp(path.join(os.tmpdir(), 'everturn-host-'));
    await chmod(parent, 0o777);
    const script = path.join(import.meta.dirname, 'kernel-host.ts');
    const args = [script, wanted, await kernelPython(), parent];
    const host = spawn(process.execPath, args, { uid, gid: uid, stdio: ['ignore', 'pipe', 'inherit'] });
    const [printed] = (await once(host.stdout, 'data')) as [Buffer];
    expect(JSON.parse(printed.toString())).toMatchObject({ isolation, hasOwnUser });
    const group = await childOf(host.pid ?? 0);
    expect(await membersOf(group)).not.toEqual([]);
    host.kill('SIGKILL');
    await expect.poll(() => membersOf(group)).toEqual([]);
  });
});

interface Process {
  pid: number;
  uid: number;
  parent: number;
  group: number;
  session: number;
  nice: number;
}

/** The processes that have not ended, by proc_pid_stat(5). */
async function processes(): Promise<Process[]> {
  const pids = (await readdir('/proc')).filter((pid) => /^\d+$/.test(pid));
  const found = await Promise.all(
    pids.map(async (pid) => {
      const read = (file: string) => readFile(`/proc/${pid}/${file}`, 'utf8').catch(() => '');
      const [stat, status] = await Promise.all([read('stat'), read('status')]);
      const [state = '', ...fields] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      const [parent = 0, group = 0, session = 0] = fields.map(Number);
      const uid = Number(/^Uid:\t(\d+)/m.exec(status)?.[1] ?? -1);
      const one = { pid: Number(pid), uid, parent, group, session, nice: Number(fields[15]) };
      return stat === '' || state === 'Z' ? [] : [one];
    }),
  );
  return found.flat();
}

async function childOf(parent: number): Promise<number> {
  return (await processes()).find((one) => one.parent === parent)?.pid ?? 0;
}

async function membersOf(group: number): Promise<number[]> {
  return (await processes()).filter((one) => one.group === group).map(({ pid }) => pid);
}
