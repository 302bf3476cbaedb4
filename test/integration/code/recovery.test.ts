import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import type { SessionEvent } from '../../../src/api/sessions/wire/events.ts';
import { newId } from '../../../src/engine/new-id.ts';
import { runningKernelHost } from '../../../src/server/kernel-host-record.ts';
import type { AgentSpec } from '../../../src/spec/agent-spec.ts';
import { FREE } from '../../support/code-server.ts';
import { describeFault, type Scenario } from '../../support/describe-fault.ts';
import { killDescendants } from '../../support/descendants.ts';
import { eventually } from '../../support/eventually.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { TestMcpServer } from '../../support/mcp-server.ts';
import { GATE, GATED, gatedBy, openGate } from '../../support/gated-cells.ts';
import { untilOutput } from '../../support/live-output.ts';
import { killUsersAtEnd } from '../../support/reaper.ts';
import { say, ScriptedModel, textOf, use, type ChatRequest, type Script } from '../../support/scripted-model.ts';
import { ServerProcess } from '../../support/server-process.ts';

let dataDir: string;
let model: ScriptedModel;
let server: ServerProcess;
let lab: TestMcpServer;
/** Ends the call of `slow_add` that runs. */
let endSlow: () => void = () => undefined;
/** The promises that the calls of `note` wait for, by their arguments. */
const notes = new Map<string, Promise<void>>();

// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

beforeAll(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-code-'));
  killUsersAtEnd(dataDir);
  model = await ScriptedModel.start();
  const annotations = { readOnlyHint: false, destructiveHint: false };
  const inputSchema = { type: 'object' as const, properties: { sku: { type: 'string' } }, required: ['sku'] };
  lab = await TestMcpServer.start({
    tools: [
      { name: 'add', annotations, inputSchema, handler: ({ sku }) => `added ${String(sku)}` },
      {
        name: 'note',
        annotations: { readOnlyHint: true },
        inputSchema,
        handler: async ({ sku }) => {
          await notes.get(String(sku));
          return `note of ${String(sku)}`;
        },
      },
      {
        name: 'slow_add',
        annotations,
        inputSchema,
        handler: ({ sku }) => new Promise((resolve) => (endSlow = () => resolve(`added ${String(sku)}`))),
      },
    ],
  });
  server = await ServerProcess.prepare(dataDir, {
    EVERTURN_KERNELS: '10',
    EVERTURN_KERNEL_PYTHON: await kernelPython(),
    EVERTURN_TASK_QUEUE: newId('req'),
    TEMPORAL_ADDRESS: inject('temporalAddress'),
    TEMPORAL_NAMESPACE: inject('temporalNamespace'),
    DATABASE_URL: `sqlite:${dataDir}/catalog.db`,
    OPENAI_API_KEY: 'test',
    OPENAI_BASE_URL: model.url,
    EVERTURN_SHUTDOWN_SECONDS: '1',
    EVERTURN_TOOL_HEARTBEAT_SECONDS: '3',
  });
  await server.start();
});
afterAll(async () => {
  await server.stop();
  await model.stop();
  await lab.stop();
  await rm(dataDir, { recursive: true, force: true });
});

/** The time-out of a test that restarts the server or the kernel host, in milliseconds: a loaded machine starts both slowly. */
const RESTARTS = 120_000;

const cell = (code: string) => use({ name: 'ipython', args: { code } });

type ToolResponse = Extract<SessionEvent, { type: 'tool.response' }>;

interface Session {
  path: string;
  id: string;
  say: (script: Script) => void;
  script: (...codes: string[]) => void;
  requests: () => ChatRequest[];
}

/** @param asked which calls of tools by code people decide on */
async function session(asked: string[] = [], more: Partial<AgentSpec> = {}): Promise<Session> {
  const name = newId('req');
  const tools = { allowed_callers: ['code'], require_approval_for_tools: asked };
  const servers = [{ type: 'inline', name: 'lab', url: lab.url, ...tools }];
  await server.api.putAgent(name, { model: { name }, ...FREE, mcp_servers: servers, ...more });
  const id = await server.api.createSession(name);
  const script = (...codes: string[]): void => model.script(name, ...codes.map(cell), say('done'));
  const sayFirst = (one: Script): void => model.script(name, one);
  return { path: `/v1/agents/sessions/${id}`, id, say: sayFirst, script, requests: () => model.requestsTo(name) };
}

/** The results of the cells of a turn. */
async function run(chat: Session, ...codes: string[]): Promise<ToolResponse[]> {
  return responses(chat, await begin(chat, ...codes));
}

/** Begins a turn with cells. */
async function begin(chat: Session, ...codes: string[]): Promise<string> {
  chat.script(...codes);
  return createTurn(chat, [{ type: 'user.message', content: 'go' }]);
}

/** Creates a turn, once there is a kernel host. */
async function createTurn({ path: session }: Session, input: object[]): Promise<string> {
  const body = { input, stream: false };
  return eventually(async () => {
    const created = await server.api.send('POST', `${session}/turns`, body);
    expect(created.status).toBe(200);
    return created.body.data.id;
  });
}

async function untilRunning({ path: session }: Session, turnId: string): Promise<void> {
  await eventually(async () => {
    const { data } = await server.api.get(`${session}/turns/${turnId}/timeline`);
    expect(data).toContainEqual(expect.objectContaining({ kind: 'tool_call', pending: true, attempt: 1 }));
  });
}

async function responses({ path: session }: Session, turnId: string): Promise<ToolResponse[]> {
  await eventually(async () => {
    const { data } = await server.api.get(`${session}/turns/${turnId}`);
    expect(data.state.status).toBe('done');
  });
  const events = await server.api.list<SessionEvent>(`${session}/turns/${turnId}/events`);
  return events.filter((event) => event.type === 'tool.response');
}

const call = (tool: string, sku: string) =>
  `from mcptools.lab.${tool} import run, Params\nprint(run(Params(sku="${sku}")))`;

/** The calls with this argument that have reached the server. */
const effects = (sku: string): string[] => lab.calls.flatMap((one) => (one.arguments['sku'] === sku ? one.tool : []));

/** Resolves when the code of a turn resumes after a call. */
async function untilGoneOn({ path: session }: Session, turnId: string): Promise<void> {
  await eventually(async () => {
    const { data } = await server.api.get(`${session}/turns/${turnId}/timeline`);
    expect(data).toContainEqual(expect.objectContaining({ kind: 'run_code', pending: true, attempt: 1 }));
  });
}

/** The calls that an ended turn asks about. */
async function asked({ path: session }: Session, turnId: string): Promise<object[]> {
  return eventually(async () => {
    const { data } = await server.api.get(`${session}/turns/${turnId}`);
    expect(data.state).toMatchObject({ status: 'done', output: null });
    const [required] = data.state.required_actions;
    return required.tool_calls.map(({ id }: { id: string }) => {
      const approval = { status: 'allow' };
      return { type: 'user.tool_approval', thread_id: required.thread_id, tool_call_id: id, approval };
    });
  });
}

/** A turn with answers; the results of its cells. */
async function decide(chat: Session, input: object[]): Promise<ToolResponse[]> {
  return responses(chat, await createTurn(chat, input));
}

/** Code that calls a read-only tool many times: its host runs these calls itself. */
const reads = (prefix: string, count: number): string =>
  `from mcptools.lab.note import run, Params\nfor n in range(${count}): run(Params(sku=f"${prefix}-{n}"))\nprint("all")`;

const SNAPSHOT: Partial<AgentSpec> = { code_actions: { approvals: 'allow', kernel: { state: 'snapshot' } } };

/** Called while API and worker are down. */
const whileDown: (() => void)[] = [];

const apiAndWorkerKilled: Record<string, Scenario> = {
  'while code waits for a person: the answer resumes it with its variables': async () => {
    const chat = await session(['@all']);
    const turn = await begin(chat, `x = 5\n${call('add', 'w-1')}\nprint(x)`);
    const answers = await asked(chat, turn);
    return async () => {
      expect(effects('w-1')).toEqual([]);
      const results = await decide(chat, answers);
      expect(results.at(-1)).toMatchObject({
        outcome: 'succeeded',
        content: 'added w-1\n5',
        execution: { exit: 'ok' },
      });
      expect(effects('w-1')).toEqual(['add']);
    };
  },

  'after code is interrupted: its turn continues, and variables are kept': async () => {
    const chat = await session();
    await run(chat, 'x = 1');
    const turn = await begin(chat, 'print("begun", flush=True)\n!true\nimport time; time.sleep(600)');
    await untilGoneOn(chat, turn);
    const { body } = await server.api.send('POST', `${chat.path}/sandbox/interrupt`, {});
    expect(body).toEqual({ data: { interrupted: true } });
    return async () => {
      const [, interrupted] = await responses(chat, turn);
      expect(interrupted).toMatchObject({ outcome: 'failed', execution: { exit: 'interrupted' } });
      expect(interrupted?.content).toMatch(/^begun\n/);
      expect(await run(chat, 'x')).toMatchObject([{ content: '1', execution: { generation: 1 } }]);
    };
  },

  'during a cell: readers of the next server get its output before it ends': async () => {
    const chat = await session([], GATED);
    chat.say(gatedBy(`print("first")\n${GATE('a')}\nprint("second")\n${GATE('b')}\nprint("third")`, 'a', 'b'));
    const turn = await begin(chat);
    const follow = () => server.api.stream(`${chat.path}/turns/${turn}/subscribe?view=full`, {});
    await untilOutput(follow(), 'first\n');
    return async () => {
      const reader = follow();
      await untilOutput(reader, 'first\n');
      await openGate(server.api, chat.path, reader, 'a');
      await untilOutput(reader, 'first\nsecond\n');
      await openGate(server.api, chat.path, reader, 'b');
      const response = (await reader.done).find(
        (event) => event.type === 'tool.response' && event.execution?.exit === 'ok',
      );
      expect(response).toMatchObject({ outcome: 'succeeded', content: 'first\nsecond\nthird' });
    };
  },

  'during a call of code: the code is told that its outcome is unknown': async () => {
    const chat = await session();
    const caught = call('slow_add', 's-1').replace('\n', '\ntry:\n  ');
    const turn = await begin(chat, `${caught}\nexcept Exception as error:\n  print(type(error).__name__)`);
    await eventually(async () => expect(effects('s-1')).toEqual(['slow_add']));
    whileDown.push(() => endSlow());
    return async () => {
      const [inner, cellResult] = await responses(chat, turn);
      expect(inner).toMatchObject({ outcome: 'unknown_outcome' });
      expect(cellResult).toMatchObject({ outcome: 'succeeded', content: 'UnknownOutcomeError' });
      expect(effects('s-1')).toEqual(['slow_add']);
    };
  },

  'during a cell: it ends, and its whole output is in the log': async () => {
    const chat = await session();
    await run(chat, 'x = 1');
    const turn = await begin(chat, 'import time\nfor i in range(40):\n  print(i)\n  time.sleep(0.2)\nx += 1');
    await untilRunning(chat, turn);
    return async () => {
      const [response] = await responses(chat, turn);
      const expected = Array.from({ length: 40 }, (_, i) => String(i)).join('\n');
      expect(response).toMatchObject({ outcome: 'succeeded', content: expected, execution: { generation: 1 } });
      // The host that the killed server has left is adopted, with the variables.
      expect(await run(chat, 'x')).toMatchObject([{ content: '2', execution: { generation: 1 } }]);
    };
  },

  // The last one that begins: after five seconds, the host leaves the call that is held to the turn, which repeats it.
  'while a host runs calls itself: the log has each of them once': async () => {
    const chat = await session();
    const gate = Promise.withResolvers<void>();
    notes.set('v-60', gate.promise);
    const turn = await begin(chat, reads('v', 120));
    await eventually(async () => expect(effects('v-60')).not.toEqual([]));
    whileDown.push(() => gate.resolve());
    return async () => {
      const results = await responses(chat, turn);
      expect(results.pop()).toMatchObject({ outcome: 'succeeded', content: 'all', execution: { tool_calls: 120 } });
      expect(results.map(({ content }) => content)).toEqual(Array.from({ length: 120 }, (_, n) => `note of v-${n}`));
      expect(results.flatMap((_, n) => [...new Set(effects(`v-${n}`))])).toHaveLength(120);
    };
  },
};

describeFault('kill -9 of API and worker', {
  fault: async () => {
    await server.kill();
    for (const happen of whileDown) happen();
    await server.start();
  },
  scenarios: apiAndWorkerKilled,
});

const hostKilled: Record<string, Scenario> = {
  'during a cell: its outcome is unknown, and the next cell has a new kernel': async () => {
    const chat = await session();
    await run(chat, 'open("kept", "w").write("text"); x = 1');
    const turn = await begin(chat, 'import time; time.sleep(600)');
    await untilRunning(chat, turn);
    return async () => {
      const [lost] = await responses(chat, turn);
      expect(lost).toMatchObject({ outcome: 'unknown_outcome', execution: { exit: 'lost' } });
      const [after] = await run(chat, '(open("kept").read(), "x" in globals())');
      expect(after).toMatchObject({
        outcome: 'succeeded',
        content: "('text', False)",
        execution: { generation: 2 },
      });
    };
  },

  'between two cells: the next one is not executed': async () => {
    const chat = await session();
    await run(chat, 'x = 1');
    return async () => {
      const [stale, next] = await run(chat, 'open("ran", "w")', 'import os; os.path.exists("ran")');
      expect(stale).toMatchObject({ outcome: 'failed', execution: { exit: 'stale', generation: 2 } });
      expect(stale?.content).toContain('(host_lost)');
      expect(next).toMatchObject({ outcome: 'succeeded', content: 'False' });
    };
  },

  'while code waits: what is allowed then is not executed': async () => {
    const chat = await session(['@all']);
    const turn = await begin(chat, call('add', 'h-1'));
    const answers = await asked(chat, turn);
    return async () => {
      const [inner, cellResult] = await decide(chat, answers);
      expect(inner).toMatchObject({ outcome: 'cancelled', thread_id: expect.stringMatching(/^code_/) });
      expect(cellResult).toMatchObject({ outcome: 'failed', thread_id: 'main', execution: { exit: 'lost' } });
      expect(effects('h-1')).toEqual([]);
      expect(await run(chat, '"ran"')).toMatchObject([{ outcome: 'succeeded' }]);
    };
  },

  'after a call of code: its effect is known, that of the rest is not': async () => {
    const chat = await session();
    const turn = await begin(
      chat,
      `open("kept", "w").write("text")\n${call('add', 'e-1')}\nimport time; time.sleep(600)`,
    );
    await untilGoneOn(chat, turn);
    return async () => {
      const [inner, lost] = await responses(chat, turn);
      expect(inner).toMatchObject({ outcome: 'succeeded', content: 'added e-1' });
      expect(lost).toMatchObject({ outcome: 'unknown_outcome', execution: { exit: 'lost' } });
      expect(effects('e-1')).toEqual(['add']);
      expect(chat.requests().at(-1)?.messages.map(textOf).at(-1)).toBe(lost?.content);
      const [after] = await run(chat, 'open("kept").read()');
      expect(after).toMatchObject({ outcome: 'succeeded', content: "'text'", execution: { generation: 2 } });
    };
  },

  'during a cell of an agent whose variables are stored: the next one has those of the last that has succeeded':
    async () => {
      const chat = await session([], SNAPSHOT);
      await run(chat, 'x = 1');
      const turn = await begin(chat, 'x = 2; import time; time.sleep(600)');
      await untilRunning(chat, turn);
      return async () => {
        const [lost] = await responses(chat, turn);
        expect(lost).toMatchObject({ outcome: 'unknown_outcome', execution: { exit: 'lost' } });
        const [next] = await run(chat, 'x');
        expect(next?.content).toMatch(/^1\n\[everturn\] the kernel was restarted \(host_lost\)/);
      };
    },

  'and a client resets its kernel: the variables that were stored are gone': async () => {
    const chat = await session([], SNAPSHOT);
    await run(chat, 'x = 1');
    return async () => {
      await eventually(async () => {
        const { status } = await server.api.send('POST', `${chat.path}/sandbox/reset`, {});
        expect(status).toBe(200);
      });
      const [stale, next] = await run(chat, '0', '"x" in globals()');
      expect(stale).toMatchObject({ execution: { exit: 'stale' } });
      expect(next).toMatchObject({ content: 'False' });
    };
  },

  // The last one that begins: after five seconds, the host leaves the call that is held to the turn, which repeats it.
  'while it runs calls itself: the log has those once that it has returned': async () => {
    const chat = await session();
    const gate = Promise.withResolvers<void>();
    notes.set('u-60', gate.promise);
    const turn = await begin(chat, reads('u', 61));
    await eventually(async () => expect(effects('u-60')).not.toEqual([]));
    return async () => {
      gate.resolve();
      const results = await responses(chat, turn);
      // Failed if the host has left the last call to the turn: the code did not go on then.
      const outcome = expect.stringMatching(/^(unknown_outcome|failed)$/);
      expect(results.pop()).toMatchObject({ outcome, execution: { exit: 'lost' } });
      expect(results.length).toBeGreaterThan(0);
      const returned = results.slice(0, 60).map(({ content }) => content);
      expect(returned).toEqual(returned.map((_, n) => `note of u-${n}`));
      expect(await run(chat, '"ran"')).toMatchObject([{ outcome: 'succeeded' }]);
    };
  },
};

describeFault('kill -9 of the kernel host', {
  fault: async () => void process.kill((await runningKernelHost(dataDir))?.pid ?? 0, 'SIGKILL'),
  scenarios: hostKilled,
});

const kernelsKilled: Record<string, Scenario> = {
  'while their code waits: what is allowed then is not executed': async () => {
    const chat = await session(['@all']);
    await run(chat, 'x = 1');
    const turn = await begin(chat, call('add', 'k-1'));
    const answers = await asked(chat, turn);
    return async () => {
      const [inner, cellResult] = await decide(chat, answers);
      expect(inner).toMatchObject({ outcome: 'cancelled', thread_id: expect.stringMatching(/^code_/) });
      expect(cellResult).toMatchObject({ outcome: 'failed', thread_id: 'main', execution: { exit: 'lost' } });
      expect(cellResult?.content).toContain('(died)');
      expect(effects('k-1')).toEqual([]);
      expect(await run(chat, '"x" in globals()')).toMatchObject([{ content: 'False', execution: { generation: 2 } }]);
    };
  },

  'with a command: the command has a result, and the code is lost': async () => {
    const chat = await session();
    const turn = await begin(chat, 'x = 1\n!sleep 600');
    await untilGoneOn(chat, turn);
    return async () => {
      const [command, cellResult] = await responses(chat, turn);
      // The command may not have started.
      expect(command).toMatchObject({ thread_id: expect.stringMatching(/^code_/), tool_call_id: 'call_1' });
      // The host may have given the kernel the result of the command before it saw the end of the kernel.
      const exit = expect.stringMatching(/^(lost|died)$/);
      expect(cellResult).toMatchObject({ outcome: 'failed', thread_id: 'main', execution: { exit } });
      expect(await run(chat, '"x" in globals()')).toMatchObject([{ outcome: 'succeeded', content: 'False' }]);
    };
  },

  'whose variables are stored, but for a lock: the next cell does not run': async () => {
    const chat = await session([], SNAPSHOT);
    await run(chat, 'import threading; x = 1; lock = threading.Lock()');
    return async () => {
      const [stale, next] = await run(chat, 'open("ran", "w")', 'import os; (x, os.path.exists("ran"))');
      expect(stale).toMatchObject({ outcome: 'failed', execution: { exit: 'stale', generation: 2 } });
      expect(stale?.content).toContain('last cell that has succeeded: threading, x; lost: lock. Define again');
      expect(next).toMatchObject({ outcome: 'succeeded', content: '(1, False)' });
    };
  },
};

describeFault('kill -9 of kernels', {
  fault: async () => {
    const host = await runningKernelHost(dataDir);
    expect(await killDescendants(host?.pid ?? 0)).toBeGreaterThan(0);
  },
  scenarios: kernelsKilled,
});

test.each(['SIGKILL', 'SIGTERM'] as const)(
  '%s of the kernel host between two cells of an agent whose variables are stored: the next one runs with them',
  async (signal) => {
    const chat = await session([], SNAPSHOT);
    await run(chat, 'x = [1]\ndef more(): x.append(len(x) + 1)');
    await run(chat, 'more()');
    const host = await runningKernelHost(dataDir);
    process.kill(host?.pid ?? 0, signal);
    const turn = await begin(chat, 'more(); x');
    const [next] = await responses(chat, turn);
    expect(next).toMatchObject({ outcome: 'succeeded', execution: { exit: 'ok', generation: 2 } });
    expect(next?.content).toBe(
      '[1, 2, 3]\n[everturn] the kernel was restarted (host_lost), and variables were restored as they were after the ' +
        'last cell that has succeeded: x, more',
    );
    const events = await server.api.list<SessionEvent>(`${chat.path}/turns/${turn}/events?view=full`);
    const restart = { previous_generation: 1, reason: 'host_lost', restored: ['x', 'more'], lost: [], lost_count: 0 };
    expect(events).toContainEqual(expect.objectContaining({ type: 'kernel.restarted', ...restart }));
  },
  RESTARTS,
);

/** The file is empty where the kernel has autogroups and does not use them. */
const AUTOGROUP = '/proc/self/autogroup';
const hasAutogroups = existsSync(AUTOGROUP) && readFileSync(AUTOGROUP, 'utf8') !== '';

test.runIf(hasAutogroups)('the session of a kernel host leaves the processors to the server', async () => {
  await run(await session(), '1');
  const host = await runningKernelHost(dataDir);
  expect(readFileSync(`/proc/${host?.pid}/autogroup`, 'utf8')).toMatch(/ nice 5$/m);
});
