import { describe, expect, it, test } from 'vitest';
import { cpuStopwatch } from '../../../lib/timeout.ts';
import { codeModules } from './code-modules.ts';
import { toolModule } from './tool-module.ts';

/** In milliseconds of processor time: hundreds of times what it takes, which without bounds is seconds or the memory. */
const MAX_MS = 1_000;

const schema = {
  type: 'object',
  properties: {
    sku: { type: 'string', description: 'What is ordered.' },
    count: { type: 'integer', default: 1 },
    gift: { type: 'object', properties: { note: { type: ['string', 'null'] } }, required: ['note'] },
  },
  required: ['sku'],
};
const CREATE = { server: 'Orders', name: 'create-order', description: 'Creates an order.', inputSchema: schema };

test('a tool is a module with the models of its arguments and result', () => {
  const outputSchema = { type: 'object', properties: { id: { type: 'integer' } }, required: ['id'] };
  const { files } = codeModules([{ ...CREATE, outputSchema }]);
  expect([...files.keys()]).toEqual([
    'mcptools/orders/__init__.py',
    'mcptools/orders/create_order.py',
    'mcptools/__index__.py',
  ]);
  expect(files.get('mcptools/orders/create_order.py')).toBe(`"""Creates an order."""

from __future__ import annotations

from typing import Any, Literal

from everturn_kernel.tool_calls import Model, call, call_async
from pydantic import Field


class Gift(Model):
    model_config = {"extra": "forbid"}
    note: str | None


class Params(Model):
    model_config = {"extra": "forbid"}
    __optional__ = frozenset({"count", "gift"})
    sku: str = Field(description="What is ordered.")
    count: int | None = 1
    gift: Gift | None = None


class Result(Model):
    model_config = {"extra": "allow"}
    id: int


_TOOL = ("Orders", "create-order")
_MODELS = (Params, Result)


def run(params: Params) -> Result:
    """Calls the tool, and waits for its result."""
    return call(_TOOL, _MODELS, params)


async def run_async(params: Params) -> Result:
    """Calls the tool together with other tasks, and awaits its result."""
    return await call_async(_TOOL, _MODELS, params)
`);
  expect(files.get('mcptools/__index__.py')).toContain(
    '    ("Orders", "create-order"): "mcptools.orders.create_order",\n',
  );
  expect(toolModule({ ...CREATE, outputSchema }).signature).toBe(
    'run(Params(sku: str, count: int | None = 1, gift: Gift | None = None)) -> Result',
  );
});

test('the hash changes with a schema, and not with the order of the tools', () => {
  const other = { ...CREATE, name: 'cancel' };
  const { hash } = codeModules([CREATE, other]);
  expect(codeModules([other, CREATE]).hash).toBe(hash);
  expect(codeModules([CREATE, { ...other, inputSchema: {} }]).hash).not.toBe(hash);
});

test('a tool whose name is longer than kernels accept has no module', () => {
  const { files } = codeModules([{ ...CREATE, name: 'x'.repeat(1025) }]);
  expect([...files.keys()]).toEqual(['mcptools/__index__.py']);
});

test('the package of a server that is not available says why', () => {
  const { files } = codeModules([CREATE], [{ server: 'Lab', reason: 'it says "no"\nto all' }]);
  const text = String.raw`The tools of Lab are not available now: it says \"no\"\nto all`;
  expect(files.get('mcptools/lab/__init__.py')).toBe(`raise ImportError("${text}")\n`);
});

test('a server whose name in Python is another one does not take the place of that', () => {
  const { files } = codeModules([CREATE], [{ server: 'orders', reason: 'it is gone' }]);
  expect(files.get('mcptools/orders/__init__.py')).not.toContain('it is gone');
});

test('the schemas of a hostile server take bounded time', () => {
  const branches = Array.from({ length: 20 }, () => ({ $ref: '#/$defs/a' }));
  const $defs = { a: { anyOf: branches.map(() => ({ allOf: [{ type: 'array', items: { anyOf: branches } }] })) } };
  const properties = Object.fromEntries(
    Array.from({ length: 300 }, (_, i) => [`p${i}`, { anyOf: branches, items: $defs.a }]),
  );
  const nested = Array.from({ length: 40 }).reduce<object>(
    (inner) => ({ anyOf: Array.from({ length: 20 }, () => inner) }),
    {},
  );
  const tools = [
    { ...CREATE, name: 'a', inputSchema: { type: 'object', properties, $defs } },
    // 20 ** 40 paths.
    { ...CREATE, name: 'b', inputSchema: { type: 'object', properties: { nested } } },
  ];
  const { files } = codeModules(tools);
  expect(files.get('mcptools/orders/b.py')).toContain('nested: Any = None');
});

describe('a hostile schema takes bounded time and memory', () => {
  /** References with different texts, which all lead to `#/$defs/aaaaaaaaaaa`. */
  const aliases = Array.from({ length: 2_000 }, (_, i) => {
    const name = Array.from({ length: 11 }, (_, bit) => (i & (1 << bit) ? '%61' : 'a')).join('');
    return { $ref: `#/$defs/${name}` };
  });
  const many = Object.fromEntries(Array.from({ length: 50_000 }, (_, i) => [`p${i}`, {}]));
  const values = Array.from({ length: 200 }, (_, i) => `${i}`.padEnd(1_000, '"'));
  const inGroups = (nodes: object[]) =>
    Object.fromEntries(
      Array.from({ length: 200 }, (_, i) => [
        `g${i}`,
        {
          type: 'object',
          properties: Object.fromEntries(nodes.slice(i * 10, i * 10 + 10).map((node, j) => [j, node])),
        },
      ]),
    );

  it.each<[string, object, object]>([
    ['long types by many names', { enum: values }, inGroups(aliases)],
    ['a long type by one name', { enum: values }, inGroups(aliases.map(() => aliases[0] ?? {}))],
    ['lists of a long type', { enum: values }, inGroups(aliases.map((node) => ({ type: 'array', items: node })))],
    ['many properties by many names', { type: 'object', properties: many }, inGroups(aliases)],
    ['many values', { enum: Array.from({ length: 100_000 }, (_, i) => i) }, inGroups(aliases)],
    ['long names of properties', { type: 'object', properties: { ['x'.repeat(500_000)]: {} } }, inGroups(aliases)],
    [
      'merged objects with many properties',
      { type: 'object', properties: many },
      inGroups(aliases.map(() => ({ allOf: aliases.slice(0, 20) }))),
    ],
    [
      'required properties without number',
      { type: 'object', properties: { a: {} }, required: Array.from({ length: 300_000 }, (_, i) => `r${i}`) },
      inGroups(aliases),
    ],
  ])('%s', (_, target, properties) => {
    const inputSchema = { type: 'object', properties, $defs: { aaaaaaaaaaa: target } };
    const used = cpuStopwatch();
    const { files } = codeModules([{ ...CREATE, inputSchema }]);
    expect(used()).toBeLessThan(MAX_MS);
    expect(files.get('mcptools/orders/create_order.py')).toContain('def run(params: Params) -> str:');
  });
});
