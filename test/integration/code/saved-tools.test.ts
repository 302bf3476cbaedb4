import { afterAll, beforeAll, describe, expect, it, test } from 'vitest';
import type { AgentSpec } from '../../../src/spec/agent-spec.ts';
import { newId } from '../../../src/engine/new-id.ts';
import { ApiClient, type Frame } from '../../support/api-client.ts';
import { untilHosted } from '../../support/code-server.ts';
import { answersTo, cell, responsesIn } from '../../support/code-turns.ts';
import { replaceFolders } from '../../../src/features/code/kernel/replace-folders.ts';
import type { Kernel } from '../../../src/features/code/kernel/kernel.ts';
import { savedModules } from '../../../src/features/code/saved-tools/saved-modules.ts';
import {
  SAVED_PACKAGE,
  type SavedTool,
  type SavedToolAbout,
} from '../../../src/features/code/saved-tools/saved-tool.ts';
import { endOf, openSandbox, wallOf, type TestSandbox } from '../../support/kernels.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';
import { say, textOf, use, type Script } from '../../support/scripted-model.ts';
import { onTestServer, startTestServer, type TestServer } from '../../support/test-server.ts';

/** Tools that models save from their code, and that later sessions import. */

let server: TestServer;
let root: ApiClient;
let ann: ApiClient;
let bob: ApiClient;
// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);
beforeAll(async () => {
  server = await startTestServer({
    env: {
      EVERTURN_KERNELS: '10',
      EVERTURN_KERNEL_PYTHON: await kernelPython(),
      EVERTURN_API_KEYS: 'root:admin=key-of-root,ann=key-of-ann,bob=key-of-bob',
    },
    mcp: { tools: [{ name: 'stock-of', annotations: { readOnlyHint: true }, handler: () => 'pens: 3\ncups: 5' }] },
  });
  [root, ann, bob] = ['root', 'ann', 'bob'].map((name) => new ApiClient(server.server.url, `key-of-${name}`)) as [
    ApiClient,
    ApiClient,
    ApiClient,
  ];
  await agent();
  await untilHosted(server);
});
afterAll(() => server.stop());

/** Registers an agent, of which only its code actions matter. */
async function agent(actions: object = { approvals: 'allow' }, more: Partial<AgentSpec> = {}): Promise<string> {
  const name = newId('req');
  await root.putAgent(name, { ...more, code_actions: actions, model: { name } });
  return name;
}

/** A turn of a new session, or of this one. */
async function turn(api: ApiClient, name: string, scripts: Script[], session?: string): Promise<Frame[]> {
  server.model.script(name, ...scripts, say('done'));
  return api.turn(session ?? (await api.createSession(name)), 'go').done;
}

const API = `from pydantic import BaseModel
from .impl import doubled

class Doubled(BaseModel):
    value: int

def run(number: int) -> Doubled:
    return Doubled(value=doubled(number))
`;
const TOOL = {
  category: 'numbers',
  name: 'double',
  description: 'Doubles a number.',
  api: API,
  impl: 'def doubled(number):\n    return 2 * number\n',
};

const save = (more: object = {}) => use({ name: 'save_code_tool', args: { ...TOOL, ...more } });
const IMPORT = 'from gentools.numbers.double.api import run\nprint(run(21).value)';
const shown = (events: Frame[]) => responsesIn(events).map(({ outcome, content }) => `${outcome}: ${content}`);
/** The server of the test, for code. */
const FOR_CODE = [{ type: 'truefoundry-mcp-registry' as const, name: 'test', allowed_callers: ['code' as const] }];
const MISSING = expect.stringMatching(/^failed: [^]*ModuleNotFoundError: No module named 'gentools\.numbers'/);

test('a tool that is saved after an approval is imported in this session and in later ones of its subject alone', async () => {
  const name = await agent({ approvals: { code: 'allow' } });
  const session = await ann.createSession(name);
  const asked = await turn(ann, name, [save(), cell(IMPORT)], session);
  const [reference] = asked.flatMap((event) => (event.type === 'tool.approval_required' ? event.tool_calls : []));
  expect(reference?.action).toMatchObject({
    type: 'save_tool',
    display: `save_code_tool gentools.numbers.double\nDoubles a number.\n\n# api.py\n${API}\n\n# impl.py\n${TOOL.impl}`,
    suggested_rule: { action: 'save_tool' },
  });
  const events = await ann.turn(session, answersTo(asked)).done;
  expect(shown(events)).toEqual([
    'succeeded: Saved version 1. From your next code on: from gentools.numbers.double.api import run',
    'succeeded: 42',
  ]);
  expect(shown(await turn(ann, name, [cell(IMPORT)]))).toEqual(['succeeded: 42']);
  expect(shown(await turn(bob, name, [cell(IMPORT)]))).toEqual([MISSING]);
  expect(shown(await turn(ann, await agent(), [cell(IMPORT)]))).toEqual([MISSING]);
});

test('code that does not compile is reported, and is not saved', async () => {
  const name = await agent();
  const events = await turn(ann, name, [
    save({ api: 'def run(:\n    pass\n' }),
    save({ impl: 'return 1\n' }),
    save({ api: 'def ran():\n    pass\n' }),
    save({ kind: 'parser' }),
    save({ name: 'class' }),
    save({ name: '../x' }),
    save({ category: 'a/b' }),
    save({ kind: 'macro' }),
    save({ api: 'open("ran", "w")\nraise SystemExit\n' }),
    cell('import os\nprint(os.path.exists("ran"))'),
    cell(IMPORT),
  ]);
  expect(shown(events)).toEqual([
    expect.stringMatching(/^failed: Nothing was saved[^]*api\.py[^]*SyntaxError: /),
    expect.stringMatching(/^failed: Nothing was saved[^]*impl\.py[^]*SyntaxError: 'return' outside function/),
    'failed: Nothing was saved. Correct the code:\napi.py does not define run',
    expect.stringMatching(/^failed: mcptools has no tool numbers\.double now/),
    expect.stringMatching(/^failed: class is a keyword of Python/),
    expect.stringMatching(/^failed: .*name/),
    expect.stringMatching(/^failed: .*category/),
    expect.stringMatching(/^failed: .*kind/),
    'failed: Nothing was saved. Correct the code:\napi.py does not define run',
    'succeeded: False',
    MISSING,
  ]);
  expect(
    await server.database.rows.selectFrom('saved_code_tools').where('agent_name', '=', name).selectAll().execute(),
  ).toEqual([]);
});

test('a new version is imported by the same kernel, and the files cannot be changed by code', async () => {
  const name = await agent();
  const replaced = { api: 'def run(number):\n    return type("R", (), {"value": number * 3})\n', impl: undefined };
  const events = await turn(ann, name, [
    save(),
    cell(IMPORT),
    save(replaced),
    cell(IMPORT),
    cell('import gentools.numbers.double.impl'),
    cell('import gentools\nfor path in gentools.__path__:\n    open(path + "/numbers/double/api.py", "w")'),
    use({ name: 'read_file', args: { path: '/tools/gentools/numbers/double/api.py', limit: 1 } }),
    use({ name: 'delete_code_tool', args: { category: 'numbers', name: 'double' } }),
    cell(IMPORT),
    use({ name: 'delete_code_tool', args: { category: 'numbers', name: 'double' } }),
  ]);
  expect(shown(events)).toEqual([
    expect.stringContaining('Saved version 1.'),
    'succeeded: 42',
    expect.stringContaining('Saved version 2.'),
    'succeeded: 63',
    expect.stringContaining('ModuleNotFoundError'),
    expect.stringMatching(/PermissionError|Read-only file system/),
    'succeeded: def run(number):\n',
    'succeeded: Deleted gentools.numbers.double.',
    MISSING,
    'failed: there is no saved tool gentools.numbers.double',
  ]);
});

test('a parser gives the module of its tool a result that is parsed', async () => {
  const name = await agent({ approvals: 'allow' }, { mcp_servers: FOR_CODE });
  const api = `from pydantic import BaseModel

class ParseResult(BaseModel):
    counts: dict[str, int]

def parse(text: str) -> ParseResult:
    return ParseResult(counts=dict(line.split(": ") for line in text.splitlines()))
`;
  const parser = { kind: 'parser', category: 'test', name: 'stock_of', description: 'Counts.', api, impl: undefined };
  const events = await turn(ann, name, [
    cell('from mcptools.test.stock_of import run, Params\nprint(run(Params()))'),
    save(parser),
    cell('from mcptools.test.stock_of import ParseResult, Params, run_parsed\nprint(run_parsed(Params()))'),
    cell('from mcptools.test.stock_of import run_parsed_async\nprint((await run_parsed_async({})).counts["cups"])'),
    use({ name: 'list_code_tools', args: { category: 'test' } }),
  ]);
  expect(shown(events).slice(0, -1)).toEqual([
    'succeeded: pens: 3\ncups: 5',
    'succeeded: Saved version 1. From your next code on: from gentools.test.stock_of.api import parse, ParseResult; ' +
      'mcptools.test.stock_of has run_parsed and ParseResult',
    "succeeded: counts={'pens': 3, 'cups': 5}",
    'succeeded: 5',
  ]);
  const { tools } = JSON.parse(responsesIn(events).at(-1)?.content ?? '') as { tools: { import: string }[] };
  expect(tools.map(({ import: line }) => line)).toEqual([
    'from gentools.test.stock_of.api import parse, ParseResult',
    'from mcptools.test.stock_of import run, run_parsed, Params',
  ]);
});

test('the tools of an agent are shared, and saved by those who may write agents', async () => {
  const name = await agent({ approvals: 'allow', saved_tools: 'agent' });
  expect(shown(await turn(ann, name, [save()]))).toEqual([
    'failed: the saved tools of this agent are shared, and ann lacks the right to write agents, which is needed to change them',
  ]);
  expect(shown(await turn(root, name, [save()]))).toEqual([expect.stringContaining('Saved version 1.')]);
  expect(shown(await turn(ann, name, [cell(IMPORT)]))).toEqual(['succeeded: 42']);
});

test('saved tools are listed before those of servers, and the prompt names their categories', async () => {
  const name = await agent({ approvals: 'allow' }, { mcp_servers: onTestServer.mcp_servers });
  await turn(ann, name, [save()]);
  const session = await ann.createSession(name);
  const events = await turn(
    ann,
    name,
    [use({ name: 'list_code_tools', args: {} }), use({ name: 'list_code_tools', args: { category: 'numbers' } })],
    session,
  );
  expect(responsesIn(events).map(({ content }) => JSON.parse(content ?? '') as unknown)).toEqual([
    { categories: [{ category: 'numbers', tools: 1, source: 'saved' }] },
    {
      tools: [
        {
          import: 'from gentools.numbers.double.api import run',
          signature: 'run(number: int) -> Doubled',
          description: 'Doubles a number.',
          path: '/tools/gentools/numbers/double/api.py',
        },
      ],
    },
  ]);
  const prompt = textOf(server.model.requestsTo(name).at(-1)?.messages[0]);
  expect(prompt).toMatch(/gentools, in these categories, with the number of tools: numbers \(1\)/);
});

test('a person may change the code before it is saved, which is then what is stored', async () => {
  const name = await agent({});
  const session = await ann.createSession(name);
  const asked = await turn(ann, name, [save()], session);
  const args = { ...TOOL, api: 'def run(number):\n    return number\n', impl: null };
  const answers = answersTo(asked, { status: 'allow', arguments: args });
  expect(shown(await ann.turn(session, answers).done)).toEqual([expect.stringContaining('Saved version 1.')]);
  const { body } = await ann.send('GET', `/v1/agents/${name}/code-tools/numbers/double`);
  expect(body.data).toEqual({
    category: 'numbers',
    name: 'double',
    kind: 'tool',
    description: 'Doubles a number.',
    version: 1,
    created_by: { subject_id: 'ann', subject_type: 'user', subject_slug: 'ann' },
    updated_at: expect.any(String),
    api: args.api,
  });
  const other = await turn(ann, name, [save({ name: 'other' })], session);
  const denied = await ann.turn(session, answersTo(other, { status: 'deny', reason: 'too early' })).done;
  expect(responsesIn(denied)).toMatchObject([{ outcome: 'denied' }]);
  expect((await ann.get(`/v1/agents/${name}/code-tools`)).data).toHaveLength(1);
});

test('sources that are hostile to a compiler are a failed result, and the session continues', async () => {
  const name = await agent();
  const events = await turn(ann, name, [
    save({ api: `def run():\n    return ${'-'.repeat(200_000)}1\n` }),
    save({ api: `def run():\n    return ${'('.repeat(100_000)}\n` }),
    save({ api: 'def run():\n    return "\0"\n' }),
    save({ api: 'é'.repeat(200_000) }),
    cell('print(1)'),
  ]);
  expect(shown(events)).toEqual([
    expect.stringMatching(/^failed: Nothing was saved/),
    expect.stringMatching(/^failed: Nothing was saved/),
    'failed: api must be Unicode without null characters',
    'failed: api may have 262144 bytes, and has 400000',
    'succeeded: 1',
  ]);
});

test('an agent without saved tools is not offered them, and a draft is told that it has none', async () => {
  const offered = async (actions: object): Promise<string[]> => {
    const name = await agent(actions);
    await turn(ann, name, []);
    return server.model.requestsTo(name)[0]?.tools?.map(({ function: { name: one } }) => one) ?? [];
  };
  const ofSaved = ['save_code_tool', 'delete_code_tool', 'list_code_tools'];
  expect(await offered({})).toEqual(expect.arrayContaining(ofSaved));
  const without = await offered({ saved_tools: 'none' });
  for (const one of ofSaved) expect(without).not.toContain(one);
  const model = newId('req');
  const agent_spec = { model: { name: model }, code_actions: { approvals: 'allow' } };
  const { body } = await ann.send('POST', '/v1/agents/draft-sessions', { agent_spec });
  expect(shown(await turn(ann, model, [save()], body.data.id))).toEqual([
    'failed: only an agent that is registered has saved tools: keep the code as a file of the workspace',
  ]);
});

test('a folder of the workspace is not taken for the package of saved tools', async () => {
  const name = await agent();
  const path = 'gentools/numbers/double/api.py';
  const events = await turn(ann, name, [
    use({ name: 'write_file', args: { path, content: 'def run(number):\n    raise ValueError\n' } }),
    save(),
    cell(IMPORT),
  ]);
  expect(shown(events).at(-1)).toBe('succeeded: 42');
});

test('clients save, list, read and delete tools, which code imports', async () => {
  const name = await agent();
  const path = `/v1/agents/${name}/code-tools`;
  const one = `${path}/numbers/double`;
  const { description, api, impl } = TOOL;
  const body = { description, api, impl };
  const send = async (...request: Parameters<ApiClient['send']>) => {
    const { status, body: answer } = await ann.send(...request);
    return [status, answer?.error?.code ?? answer?.data?.version];
  };
  const key = { 'Idempotency-Key': newId('req') };
  expect(await send('PUT', one, body, key)).toEqual([201, 1]);
  expect(await send('PUT', one, body, key)).toEqual([201, 1]);
  expect(await send('PUT', one, { ...body, api: `${api}# 2\n` }, key)).toEqual([422, 'idempotency_key_reused']);
  expect(await send('PUT', one, (await ann.get(one)).data)).toEqual([200, 2]);
  expect(await send('PUT', one, { ...body, name: 'other' })).toEqual([422, 'invalid_code_tool']);
  expect((await ann.get(path)).data).toEqual([
    expect.objectContaining({ category: 'numbers', name: 'double', version: 2, kind: 'tool' }),
  ]);
  expect(JSON.stringify(await ann.get(path))).not.toContain('doubled');
  expect((await ann.get(one)).data).toMatchObject({ api, impl, created_by: { subject_id: 'ann' } });
  expect((await bob.get(path)).data).toEqual([]);
  expect((await bob.send('GET', one)).body.error.code).toBe('code_tool_not_found');
  const session = await ann.createSession(name);
  expect(shown(await turn(ann, name, [cell(IMPORT)], session))).toEqual(['succeeded: 42']);
  const listed = await ann.get(`/v1/agents/sessions/${session}/code-tools?source=true&query=doubles`);
  expect(listed.data).toEqual([
    {
      source: 'saved',
      category: 'numbers',
      name: 'double',
      original_name: 'double',
      import: 'from gentools.numbers.double.api import run',
      signature: 'run(number: int) -> Doubled',
      description: 'Doubles a number.',
      path: '/tools/gentools/numbers/double/api.py',
      has_result_schema: false,
      asks: false,
      code: api,
    },
  ]);
  const refused = ['invalid_code_tool', 'invalid_code_tool', 'invalid_code_tool'];
  const wrong = [`${path}/numbers/class`, `${path}/numbers/..%2Fx`, `${path}/Numbers/x`];
  expect(await Promise.all(wrong.map(async (one) => (await send('PUT', one, body))[1]))).toEqual(refused);
  expect(await send('PUT', one, { ...body, more: 1 })).toEqual([400, 'invalid_request']);
  expect(await send('PUT', one, { ...body, kind: 'macro' })).toEqual([400, 'invalid_request']);
  expect(await send('DELETE', one)).toEqual([204, undefined]);
  expect(await send('DELETE', one)).toEqual([404, 'code_tool_not_found']);
  expect(await send('GET', '/v1/agents/none/code-tools')).toEqual([404, 'agent_not_found']);
  const none = await agent({ saved_tools: 'none' });
  expect(await send('PUT', `/v1/agents/${none}/code-tools/a/b`, body)).toEqual([422, 'invalid_code_tool']);
  const shared = `/v1/agents/${await agent({ saved_tools: 'agent' })}/code-tools/a/b`;
  expect(await send('PUT', shared, body)).toEqual([403, 'forbidden']);
  expect((await root.send('PUT', shared, body)).status).toBe(201);
  expect(await send('GET', shared)).toEqual([200, 1]);
  expect(await send('DELETE', shared)).toEqual([403, 'forbidden']);
});

test('an error in the code of a client is an exception where that is imported, and stops no other tool', async () => {
  const name = await agent({ approvals: 'allow' }, { mcp_servers: FOR_CODE });
  const path = `/v1/agents/${name}/code-tools`;
  const { description, api, impl } = TOOL;
  const put = (place: string, body: object) => ann.send('PUT', `${path}/${place}`, { description, ...body });
  expect((await put('numbers/double', { api, impl })).status).toBe(201);
  expect((await put('numbers/half', { api: 'def run(:\n    pass\n' })).status).toBe(201);
  expect((await put('numbers/none', { api: 'x = 1\n' })).status).toBe(201);
  expect((await put('test/stock_of', { kind: 'parser', api: 'def parse(:\n    pass\n' })).status).toBe(201);
  const stock = 'from mcptools.test.stock_of import run, run_parsed, Params\nprint(run(Params()))';
  const events = await turn(ann, name, [
    cell('from gentools.numbers.half.api import run'),
    cell('from gentools.numbers.none.api import run'),
    cell(`${stock}\nrun_parsed(Params())`),
    cell(IMPORT),
  ]);
  const wrong = (file: string) => String.raw`File \S*/gentools/${file}/api\.py:1\n[^]*SyntaxError: `;
  expect(shown(events)).toEqual([
    expect.stringMatching(new RegExp(`^failed: [^]*${wrong('numbers/half')}`)),
    expect.stringMatching(/^failed: [^]*ImportError: cannot import name 'run' from 'gentools\.numbers\.none\.api'/),
    expect.stringMatching(new RegExp(`^failed: pens: 3\ncups: 5\n[^]*${wrong('test/stock_of')}`)),
    'succeeded: 42',
  ]);
});

test('an agent that acts in code has the built-in skills as files, unless it disables them', async () => {
  const skill = (name: string) => use({ name: 'read_file', args: { path: `/skills/${name}/SKILL.md`, limit: 2 } });
  const skills = [{ name: 'task-planning', enabled: false }];
  const name = await agent({ approvals: 'allow' }, { skills });
  const events = await turn(ann, name, [skill('saving-tools'), skill('output-parsers'), skill('task-planning')]);
  expect(shown(events)).toEqual([
    'succeeded: ---\nname: saving-tools\n',
    'succeeded: ---\nname: output-parsers\n',
    expect.stringContaining('"/skills/task-planning/SKILL.md" does not exist'),
  ]);
  const prompt = textOf(server.model.requestsTo(name)[0]?.messages[0]);
  expect(prompt).toContain('- saving-tools: How working code becomes a tool');
  expect(prompt).not.toContain('task-planning');
  const wrong = await root.send('PUT', `/v1/agents/${name}`, {
    model: { name },
    skills: [{ name: 'x', enabled: false }],
  });
  expect(wrong).toMatchObject({ status: 422, body: { error: { code: 'invalid_agent', param: 'skills.0' } } });
});

describe.each(['sandbox', 'confined'] as const)('saved tools behind the wall %s', (wall) => {
  let sandbox: TestSandbox;
  let kernel: Kernel;
  beforeAll(async () => {
    sandbox = await openSandbox(await wallOf(wall));
    kernel = await sandbox.startKernel();
  });
  afterAll(() => sandbox.remove());

  const ran = async (code: string, modules: string): Promise<string> => {
    const options = { timeoutMs: 30_000, modules, onOutput: () => {} };
    const { parts } = await endOf(kernel.run({ id: newId('req'), code }, options));
    return parts.map(({ text }) => text).join('');
  };

  async function write(tools: (SavedTool & { hash: string })[]): Promise<string> {
    const stored = tools.map((tool) => ({ ...tool, signature: '', version: 1 })) as unknown as SavedToolAbout[];
    const store = {
      list: () => Promise.resolve(stored),
      get: (_: unknown, { name }: { name: string }) =>
        Promise.resolve(stored.find((one) => one.name === name) as (SavedToolAbout & SavedTool) | undefined),
    };
    const modules = await savedModules(store, { agentName: 'helper' });
    await replaceFolders(sandbox.folders.tools, [SAVED_PACKAGE], await modules.files());
    return modules.hash;
  }

  const tool = (api: string, hash: string) => ({ ...TOOL, kind: 'tool' as const, api, impl: null, hash });

  it('are imported, cannot be changed, and are loaded again when they have changed', async () => {
    const first = await write([tool('def run():\n    return "one"\n', '1')]);
    const print = 'from gentools.numbers.double.api import run\nprint(run())';
    expect(await ran(print, first)).toBe('one\n');
    const change = 'import gentools.numbers.double.api as api\nopen(api.__file__, "a")';
    expect(await ran(change, first)).toMatch(/PermissionError|Read-only file system/);
    const second = await write([tool('def run():\n    return "two"\n', '2')]);
    expect(second).not.toBe(first);
    expect(await ran(print, second)).toBe('two\n');
    expect(await ran(print, await write([]))).toContain("No module named 'gentools.numbers'");
  });
});
