import type { Tool } from '@modelcontextprotocol/client';
import { describe, expect, test } from 'vitest';
import type { McpServer } from '../spec/agent-spec.ts';
import { selectorWarnings, selectTools, type OperatorLimits, type SelectedTool } from './selectors.ts';

const HINTS = {
  bare: undefined,
  titled: { title: 'Titled' },
  reads: { readOnlyHint: true },
  readsForSure: { readOnlyHint: true, destructiveHint: true },
  writes: { readOnlyHint: false, destructiveHint: false },
  puts: { idempotentHint: true },
  opens: { openWorldHint: false },
  destroys: { destructiveHint: true },
} as const;

const tools = Object.entries(HINTS).map(([name, annotations]): Tool => ({
  name,
  inputSchema: { type: 'object' },
  ...(annotations && { annotations }),
}));

type Selectors = Pick<
  McpServer,
  'enable_tools' | 'disable_tools' | 'require_approval_for_tools' | 'preload' | 'preload_tools'
>;

const REGISTERED = { type: 'truefoundry-mcp-registry', name: 's' } as const;
const INLINE = { type: 'inline', name: 's', url: 'https://mcp.example.com/' } as const;

function select(spec: Selectors, limits?: OperatorLimits, server: McpServer = REGISTERED): SelectedTool[] {
  return selectTools({ ...server, ...spec }, tools, limits);
}

function names(spec: Selectors): string[] {
  return select(spec).map(({ tool }) => tool.name);
}

const ALL = Object.keys(HINTS);
const WRITES = ['writes', 'puts', 'opens', 'destroys'];
const ALL_BUT_READS = ['bare', 'titled', ...WRITES];

describe('enabling', () => {
  test.each<[Selectors, string[]]>([
    [{}, ALL],
    [{ enable_tools: null, disable_tools: null }, ALL],
    [{ enable_tools: ['@all'] }, ALL],
    [{ enable_tools: [] }, []],
    [{ enable_tools: ['@read-only'] }, ['reads', 'readsForSure']],
    [{ enable_tools: ['destroys', '@read-only'] }, ['reads', 'readsForSure', 'destroys']],
    [{ enable_tools: ['nothing', 'bare'] }, ['bare']],
    [{ disable_tools: ['@all'] }, []],
    [{ disable_tools: ['@read-only', 'bare'] }, ['titled', 'writes', 'puts', 'opens', 'destroys']],
    [{ enable_tools: ['reads', 'writes'], disable_tools: ['reads'] }, ['writes']],
  ])('%j', (spec, expected) => {
    expect(names(spec)).toEqual(expected);
  });
});

describe('approval', () => {
  test.each<[string[] | null | undefined, string[]]>([
    [undefined, ALL_BUT_READS],
    [null, ALL_BUT_READS],
    [[], []],
    [['@all'], ALL],
    [['@write'], ['writes', 'puts', 'opens']],
    [['@destructive'], ['destroys']],
    [['@unannotated'], ['bare', 'titled']],
    [
      ['bare', 'reads', '@destructive'],
      ['bare', 'reads', 'destroys'],
    ],
    [['@read-only'], []],
    [['bare', 'bear'], ['bare']],
    // Names of which the server has none are a mistake, which keeps the default protection.
    [['bear'], ALL_BUT_READS],
    [['bear', '@read-only'], ALL_BUT_READS],
  ])('%j', (require_approval_for_tools, expected) => {
    const approved = select({ require_approval_for_tools }).filter(({ approval }) => approval);
    expect(approved.map(({ tool }) => tool.name)).toEqual(expected);
  });

  test.each<[string[] | null | undefined, string[]]>([
    [undefined, WRITES],
    [null, WRITES],
    [['bear'], WRITES],
    [['@unannotated'], ['bare', 'titled']],
  ])('of an inline server: %j', (require_approval_for_tools, expected) => {
    const approved = select({ require_approval_for_tools }, {}, INLINE).filter(({ approval }) => approval);
    expect(approved.map(({ tool }) => tool.name)).toEqual(expected);
  });

  test('the default is no floor of the operator', () => {
    expect(select({}).filter(({ isFloor }) => isFloor)).toEqual([]);
  });
});

describe('warnings', () => {
  const warnings = (spec: Selectors) =>
    selectorWarnings({ type: 'truefoundry-mcp-registry', name: 's', ...spec }, tools);

  test('each name that is no tool of the server is one, with its list', () => {
    expect(
      warnings({
        enable_tools: ['@all', 'bare'],
        disable_tools: ['bear'],
        preload_tools: null,
        require_approval_for_tools: ['@write', 'destroy'],
      }),
    ).toEqual([
      'disable_tools names bear, which is no tool of the server',
      'require_approval_for_tools names destroy, which is no tool of the server',
    ]);
    expect(warnings({})).toEqual([]);
  });

  test('many are counted', () => {
    const found = warnings({ enable_tools: Array.from({ length: 1_000 }, (_, i) => `t${i}`) });
    expect([found.length, found.at(-1)]).toEqual([11, '990 more names in these lists are no tools of the server']);
  });
});

describe('deferred tools', () => {
  const ENABLED = { enable_tools: ['bare', 'reads', 'writes'] };
  test.each<[Selectors, string[]]>([
    [{}, []],
    [{ preload: null }, []],
    [{ preload: true, preload_tools: ['bare'] }, []],
    [{ preload: false }, ['bare', 'reads', 'writes']],
    [{ preload: false, preload_tools: null }, ['bare', 'reads', 'writes']],
    [{ preload: false, preload_tools: ['bare', 'destroys'] }, ['reads', 'writes']],
    [{ preload: false, preload_tools: ['@read-only'] }, ['bare', 'writes']],
    [{ preload: false, preload_tools: ['@all'] }, []],
  ])('%j', (spec, expected) => {
    const deferred = select({ ...ENABLED, ...spec }).filter((one) => one.deferred);
    expect(deferred.map(({ tool }) => tool.name)).toEqual(expected);
  });
});

describe("the operator's limits", () => {
  test.each<[string[], string[]]>([
    [['@all'], ['bare', 'reads', 'destroys']],
    [['@read-only'], ['reads']],
    [['destroys', 'writes'], ['destroys']],
    [[], []],
  ])('no other tools than %j', (allowed, expected) => {
    const selected = select({ enable_tools: ['bare', 'reads', 'destroys'] }, { allowed });
    expect(selected.map(({ tool }) => tool.name)).toEqual(expected);
  });

  test.each<[string[], string[], string[]]>([
    [[], [], []],
    [[], ['@unannotated'], ['bare', 'titled']],
    [[], ['@write', '@destructive', '@unannotated'], ALL_BUT_READS],
    [['@destructive'], ['reads'], ['reads', 'destroys']],
    [['@all'], [], ALL],
  ])(
    'an agent that requires approval for %j, with an operator that requires it for %j',
    (require_approval_for_tools, floor, expected) => {
      const approved = select({ require_approval_for_tools }, { floor }).filter(({ approval }) => approval);
      expect(approved.map(({ tool }) => tool.name)).toEqual(expected);
    },
  );
});

test.each<[string[], string[]]>([
  [[], ['reads', 'readsForSure', 'puts']],
  [['bare'], ['bare', 'reads', 'readsForSure', 'puts']],
  [['@all'], ALL],
])('tools may be repeated if their annotations allow it, or if they are among %j', (idempotentTools, expected) => {
  const retried = select({}, { idempotentTools }).filter(({ effect }) => effect === 'retry');
  expect(retried.map(({ tool }) => tool.name)).toEqual(expected);
});
