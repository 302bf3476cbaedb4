import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { codeModules, TOOLS_PACKAGE } from '../../../src/features/code/tools/code-modules.ts';
import type { CodeTool } from '../../../src/features/code/tools/tool-module.ts';
import { replaceFolders } from '../../../src/features/code/kernel/replace-folders.ts';
import { BUILDS_PYTHON, kernelPython } from '../../support/kernel-python.ts';

const PROGRAM = path.join(import.meta.dirname, '../../../src/features/code/kernel/python');

/** Runs code with the tools of a folder. The gateway is of the test: it records the calls, and answers with `ANSWER`. */
const HARNESS = `
import asyncio, json, sys
program, tools, code = sys.argv[1:]
sys.path[:0] = [program, tools]
import mcptools
from everturn_kernel import tool_calls
mcptools.__path__ = [tools + "/mcptools"]
calls = []
ANSWER = {"content": "text"}
class Gateway:
    def call(self, **content):
        calls.append(content)
        return ANSWER
    async def call_async(self, **content):
        return self.call(**content)
tool_calls.use(Gateway())
def sent():
    return json.loads(calls[-1]["arguments"])
def error_of(act):
    try:
        act()
    except Exception as error:
        return type(error).__name__
exec(code)
`;

let folder: string;

// The first test run on a machine builds it.
beforeAll(async () => void (await kernelPython()), BUILDS_PYTHON);

beforeEach(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'everturn-modules-'));
});

afterEach(() => rm(folder, { recursive: true }));

/** The value that code prints as JSON. The tool of a schema is `mcptools.lab.tool`. */
async function printed(tools: CodeTool[] | object, code: string): Promise<unknown> {
  const all = Array.isArray(tools) ? tools : [{ server: 'lab', name: 'tool', inputSchema: tools }];
  await replaceFolders(folder, [TOOLS_PACKAGE], codeModules(all as CodeTool[]).files);
  const program = Array.isArray(tools) ? code : `from mcptools.lab.tool import *\n${code}`;
  const args = ['-W', 'error', '-B', '-c', HARNESS, PROGRAM, folder, program];
  const { stdout } = await promisify(execFile)(await kernelPython(), args);
  return JSON.parse(stdout);
}

const object = (properties: object, more: object = {}) => ({ type: 'object', properties, ...more });

describe('arguments', () => {
  it('are sent as they are given, without those that are left out', async () => {
    const schema = object(
      {
        text: { type: 'string' },
        count: { type: 'integer', default: 5 },
        ratio: { type: 'number' },
        on: { type: 'boolean' },
        note: { type: ['string', 'null'] },
        left: { type: 'string' },
      },
      { required: ['text'] },
    );
    const code = [
      'run(Params(text="é", ratio=2, on=True, note=None, left=None))',
      'print(json.dumps([sent(), Params(text="").count, calls[0]["server"], calls[0]["tool"]]))',
    ].join('\n');
    expect(await printed(schema, code)).toEqual([{ text: 'é', ratio: 2, on: true, note: null }, 5, 'lab', 'tool']);
  });

  it.each([
    ['a wrong type', 'Params(sku="a", count="two")'],
    ['a missing one', 'Params(count=1)'],
    ['one too many', 'Params(sku="a", cuont=1)'],
    ['a wrong word', 'Params(sku="a", size="huge")'],
    ['a wrong nested one', 'Params(sku="a", address={"zip": []})'],
    ['a wrong item', 'Params(sku="a", tags=[1])'],
    ['null for a required one', 'Params(sku=None)'],
    ['no number', 'Params(sku="a", weight=float("nan"))'],
    ['a dictionary with a wrong type', 'run({"sku": 1})'],
  ])('are refused with %s, before the server is called', async (_, expression) => {
    const schema = object(
      {
        sku: { type: 'string' },
        count: { type: 'integer' },
        weight: { type: 'number' },
        size: { enum: ['small', 'large'] },
        address: object({ zip: { type: 'string' } }),
        tags: { type: 'array', items: { type: 'string' } },
      },
      { required: ['sku'] },
    );
    const code = `print(json.dumps([error_of(lambda: run(${expression})), len(calls)]))`;
    expect(await printed(schema, code)).toEqual(['ValidationError', 0]);
  });

  it('have nested objects, lists, maps, unions and constants', async () => {
    const schema = object({
      address: object({ zip: { type: 'string' } }, { required: ['zip'] }),
      lines: { type: 'array', items: object({ sku: { type: 'string' } }) },
      labels: { type: 'object', additionalProperties: { type: 'integer' } },
      free: { type: 'object' },
      id: { anyOf: [{ type: 'integer' }, { type: 'string' }, { type: 'null' }] },
      kind: { const: 'order' },
      mode: { enum: ['a', 1, true, null] },
      both: { allOf: [object({ x: { type: 'integer' } }, { required: ['x'] }), object({ y: { type: 'integer' } })] },
    });
    const values = {
      address: { zip: '1' },
      lines: [{ sku: 'a' }, {}],
      labels: { a: 1 },
      free: { any: [1] },
      id: 'x',
      kind: 'order',
      mode: null,
      both: { x: 1, y: 2 },
    };
    const code = [
      `values = json.loads(${JSON.stringify(JSON.stringify(values))})`,
      'params = Params(**values)',
      'assert params.address.zip == "1" and params.lines[0].sku == "a" and params.both.y == 2',
      'run(params)',
      'bad = [("id", 1.5), ("kind", "x"), ("mode", "b"), ("labels", {"a": "x"}), ("both", {"y": 1})]',
      'print(json.dumps([sent(), [error_of(lambda: Params(**{name: value})) for name, value in bad]]))',
    ].join('\n');
    expect(await printed(schema, code)).toEqual([values, Array.from({ length: 5 }, () => 'ValidationError')]);
  });

  it('may be recursive', async () => {
    const schema = {
      ...object({ tree: { $ref: '#/$defs/Node' }, again: { $ref: '#' }, loop: { $ref: '#/$defs/loop' } }),
      $defs: {
        Node: object({ name: { type: 'string' }, children: { type: 'array', items: { $ref: '#/$defs/Node' } } }),
        loop: { anyOf: [{ type: 'array', items: { $ref: '#/$defs/loop' } }, { type: 'string' }] },
      },
    };
    const code = [
      'run({"tree": {"name": "a", "children": [{"name": "b", "children": []}]}, "again": {"tree": {"name": "c"}}, "loop": [["x"]]})',
      'wrong = error_of(lambda: Params(tree={"children": [{"name": 1}]}))',
      'print(json.dumps([sent(), wrong]))',
    ].join('\n');
    expect(await printed(schema, code)).toEqual([
      { tree: { name: 'a', children: [{ name: 'b', children: [] }] }, again: { tree: { name: 'c' } }, loop: [['x']] },
      'ValidationError',
    ]);
  });

  it('with names that Python does not allow have others, and are sent by their own', async () => {
    const names = [
      'from',
      'odd-name',
      '_id',
      'odd_name',
      'model_dump',
      'str',
      '2nd',
      '',
      'Params',
      'é',
      '__class__',
      'self',
      'a"b',
    ];
    const schema = object(Object.fromEntries(names.map((name) => [name, { type: 'string' }])));
    const code = [
      'fields = list(Params.model_fields)',
      'run(Params(**{name: name for name in fields}))',
      'by_name = sent()',
      `run(Params(**{name: name for name in json.loads(${JSON.stringify(JSON.stringify(names))})}))`,
      'print(json.dumps([fields, list(by_name), list(sent())]))',
    ].join('\n');
    const fields = ['from_', 'odd_name_2', 'id', 'odd_name', 'model_dump_', 'str_', 'field_2nd', 'field_', 'Params_'];
    expect(await printed(schema, code)).toEqual([[...fields, 'field__2', 'class__', 'self', 'a_b'], names, names]);
  });

  it('of a schema that says nothing may be anything', async () => {
    expect(await printed({}, 'run(Params(a=1, b=[2]))\nprint(json.dumps(sent()))')).toEqual({ a: 1, b: [2] });
  });

  it('are bounded', async () => {
    const code = [
      'deep = []',
      'for _ in range(100): deep = [deep]',
      'print(json.dumps([error_of(lambda: run(Params(a="x" * (1 << 20)))), error_of(lambda: run(Params(a=deep))), len(calls)]))',
    ].join('\n');
    expect(await printed({}, code)).toEqual(['ToolRunnerError', 'ToolRunnerError', 0]);
  });
});

describe('a result', () => {
  const outputSchema = object(
    { order: object({ id: { type: 'integer' } }, { required: ['id'] }), note: { type: 'string' } },
    { required: ['order'] },
  );
  const tools = [{ server: 'lab', name: 'tool', inputSchema: {}, outputSchema }];

  it('with a schema has attributes', async () => {
    const code = [
      'from mcptools.lab.tool import *',
      'ANSWER["structured"] = {"order": {"id": 7, "more": 1}, "other": 2}',
      'result = run(Params())',
      'awaited = asyncio.run(run_async(Params()))',
      'print(json.dumps([type(result).__name__, result.order.id, result.note, awaited.order.id]))',
    ].join('\n');
    expect(await printed(tools, code)).toEqual(['Result', 7, null, 7]);
  });

  it.each(['{"order": {}}', 'None'])('that does not match its schema raises: %s', async (structured) => {
    const code = `from mcptools.lab.tool import *\nANSWER["structured"] = ${structured}\nprint(json.dumps(error_of(lambda: run(Params()))))`;
    expect(await printed(tools, code)).toBe('ToolRunnerError');
  });

  it('without a schema is text', async () => {
    expect(await printed({}, 'print(json.dumps(run(Params())))')).toBe('text');
  });

  it('may be of a schema without properties, or of one by reference', async () => {
    const list = { type: 'array', items: object({ id: { type: 'integer' } }) };
    const byReference = { $ref: '#/$defs/Order', $defs: { Order: object({ next: { $ref: '#/$defs/Order' } }) } };
    const code = [
      'from mcptools.lab import one, two',
      'ANSWER["structured"] = [{"id": 1}]',
      'first = one.run(one.Params())[0].id',
      'ANSWER["structured"] = {"next": {}}',
      'print(json.dumps([first, type(two.run(two.Params()).next).__name__]))',
    ].join('\n');
    const two = [
      { server: 'lab', name: 'one', inputSchema: {}, outputSchema: list },
      { server: 'lab', name: 'two', inputSchema: {}, outputSchema: byReference },
    ];
    expect(await printed(two, code)).toEqual([1, 'Result']);
  });
});

/** Schemas of a hostile server, each of which must give a module that can be imported. */
const HOSTILE: Record<string, object> = {
  'a description that ends the docstring': { description: `"""\nimport os; raise SystemExit("out")\n"""` },
  'a description that ends in a backslash': { description: 'x\\' },
  'a description with odd characters': { description: '\0\r\n\u2028\u202E\uD800\f\x85"' },
  'a property name that is code': object({
    'x: int = 1\n    raise SystemExit("out")': { type: 'string', description: '"""\\' },
  }),
  'an enum that is code': object({ x: { enum: ['"] = __import__("os").abort() #', '\\', '\uD800', '\n'] } }),
  'a default that is code': object({ x: { type: 'string', default: '"); raise SystemExit("out"); (' } }),
  'a definition whose name is code': {
    ...object({ x: { $ref: '#/$defs/a: 1~1%0Aimport os' } }),
    $defs: { 'a: 1/\nimport os': object({ y: { type: 'string' } }) },
  },
  'references to nothing': object({
    a: { $ref: '#/nowhere' },
    b: { $ref: 'https://x.org' },
    c: { $ref: '#/%' },
    d: { $ref: 1 },
  }),
  'references in a circle': {
    ...object({ a: { $ref: '#/$defs/a' } }),
    $defs: { a: { $ref: '#/$defs/b' }, b: { $ref: '#/$defs/a' } },
  },
  'a root that refers to itself': { $ref: '#' },
  'names of prototypes': JSON.parse(
    '{"type":"object","properties":{"__proto__":{"type":"string"},"constructor":{"type":"__proto__"}},"required":["__proto__"]}',
  ) as object,
  'types that are none': object({
    a: { type: 'x' },
    b: { type: {} },
    c: { type: [[], 'string'] },
    d: true,
    e: null,
    f: [],
  }),
  'words that are no lists': { type: 'object', properties: { a: { enum: {}, anyOf: 1, allOf: 'x' } }, required: {} },
  'empty lists': object({ a: { enum: [] }, b: { anyOf: [] }, c: { allOf: [] }, d: { type: [] } }),
  'deep nesting': Array.from({ length: 500 }).reduce<object>((inner) => object({ a: inner }), {}),
  'many properties': object(Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`p${i}`, { type: 'string' }]))),
  'a large enum': object({ x: { enum: Array.from({ length: 100_000 }, (_, i) => `v${i}`) } }),
  'definitions that multiply': {
    ...object({ a: { $ref: '#/$defs/d0' } }),
    $defs: Object.fromEntries(
      Array.from({ length: 300 }, (_, i) => [
        `d${i}`,
        {
          anyOf: [
            { $ref: `#/$defs/d${i + 1}` },
            object({ x: { $ref: `#/$defs/d${i + 1}` }, y: { $ref: '#/$defs/d0' } }),
          ],
        },
      ]),
    ),
  },
  'large texts': object(
    Object.fromEntries(Array.from({ length: 300 }, (_, i) => [`p${i}`, { description: '"'.repeat(10_000) }])),
  ),
  'fields that hide names': object(
    Object.fromEntries(
      ['int', 'str', 'list', 'dict', 'Any', 'Literal', 'Field', 'Model', 'A', 'a', 'None', 'bool', 'frozenset'].map(
        (name) => [
          name,
          { anyOf: [object({ [name]: { type: 'integer' } }), { type: 'array', items: { type: 'string' } }] },
        ],
      ),
    ),
  ),
};

describe('a hostile server', () => {
  it('gets modules that can be imported, and that do nothing else', async () => {
    const tools = Object.entries(HOSTILE).flatMap(([name, schema]) => [
      {
        server: name,
        name: 'input',
        description: 'description' in schema ? String(schema.description) : '',
        inputSchema: schema,
      },
      { server: name, name: 'output', inputSchema: {}, outputSchema: schema },
    ]);
    const code = [
      'import importlib, mcptools.__index__ as index',
      'failed = {}',
      'for module in index.TOOLS:',
      '    try:',
      '        loaded = importlib.import_module(module)',
      '        loaded.Params.model_rebuild()',
      '        loaded.Params.model_json_schema()',
      '    except BaseException as error:',
      '        failed[module] = repr(error)',
      'print(json.dumps([failed, len(index.TOOLS)]))',
    ].join('\n');
    expect(await printed(tools, code)).toEqual([{}, tools.length]);
    const sizes = [...codeModules(tools).files.values()].map(({ length }) => length);
    expect(Math.max(...sizes)).toBeLessThanOrEqual(256 * 1024);
  });

  it('cannot take the name of another tool or server, or one of a package', async () => {
    const servers = ['lab', 'Lab', 'lab_2', '__init__', '__path__', '../x', 'class', '1', ''];
    const names = ['add', 'ADD', '__init__', 'odd-name.v2', 'odd_name_v2', '..', '/etc/passwd', 'None', 'é'];
    const tools = servers.flatMap((server) => names.map((name) => ({ server, name, inputSchema: {} })));
    const code = [
      'import importlib, mcptools.__index__ as index',
      'print(json.dumps(sorted([importlib.import_module(module)._TOOL == names, module] for module, names in index.TOOLS.items())))',
    ].join('\n');
    const found = (await printed(tools, code)) as [boolean, string][];
    expect(found).toHaveLength(tools.length);
    expect(found.every(([isSame]) => isSame)).toBe(true);
    expect(await readdir(folder)).toEqual(['mcptools']);
  });
});

describe('writing', () => {
  it('replaces all modules, and leaves other packages', async () => {
    const add = { server: 'lab', name: 'add', inputSchema: {} };
    await replaceFolders(folder, [TOOLS_PACKAGE], codeModules([add, { ...add, name: 'old' }]).files);
    await replaceFolders(folder, [TOOLS_PACKAGE], codeModules([add]).files);
    expect(await readdir(folder)).toEqual(['mcptools']);
    expect((await readdir(path.join(folder, 'mcptools/lab'))).sort()).toEqual(['__init__.py', 'add.py']);
    expect(await readFile(path.join(folder, 'mcptools/lab/add.py'), 'utf8')).toContain('class Params(Model)');
  });

  it('lets other users read, whatever the umask', async () => {
    const before = process.umask(0o077);
    await replaceFolders(folder, [TOOLS_PACKAGE], codeModules([{ server: 'lab', name: 'add', inputSchema: {} }]).files);
    process.umask(before);
    const modes = ['mcptools', 'mcptools/lab', 'mcptools/lab/add.py', 'mcptools/__index__.py'].map(async (file) =>
      ((await stat(path.join(folder, file))).mode & 0o777).toString(8),
    );
    expect(await Promise.all(modes)).toEqual(['755', '755', '644', '644']);
  });
});
