import { describe, expect, test } from 'vitest';
import { promptOf } from '../../agents/prompt.ts';
import { agentSpec, inFormat, type AgentSpec } from '../../spec/agent-spec.ts';
import type { ApiError } from '../http/errors.ts';
import { parsePart } from '../http/request.ts';
import { toSpec, withParams } from './agent-to-spec.ts';
import { runErrors } from './errors.ts';
import { agentRunRequest, runRequest } from './wire/request.ts';

const input = [{ type: 'message', role: 'user', content: 'hi' }];

/** The agent of `POST /v1/runs`. */
function inline(params: object, context?: unknown) {
  const request = parsePart(runRequest, { input, agent: { model: 'm', ...params }, context }, 'body');
  return toSpec(request.agent, request.context);
}

/** The agent of `POST /v1/agents/{name}/runs`. */
function registered(spec: AgentSpec, params: object, context?: unknown) {
  const request = parsePart(agentRunRequest, { input, params, context }, 'body');
  return withParams(spec, request.params ?? {}, request.context);
}

function refusalOf(work: () => unknown) {
  try {
    return work();
  } catch (error) {
    const { status, body } = runErrors.toResponse(error as ApiError);
    const { code, param } = (body as { error: { code: string; param?: string } }).error;
    return [status, code, param];
  }
}

const tool = (name: string) => ({ name, description: `does ${name}`, parameters: { type: 'object' } });
const clientTool = (name: string) => ({ name, description: `does ${name}`, input_schema: { type: 'object' } });
const off = { enabled: false };

describe('an agent of a request', () => {
  test('that names only its model has nothing that it does not ask for', () => {
    const { spec } = inline({});
    expect(spec).toEqual({
      model: { name: 'm', params: {} },
      instructions: null,
      mcp_servers: [],
      client_tools: [],
      config: {
        pause: 'wait',
        on_limit: 'fail',
        on_unknown: 'tell',
        iteration_limit: 10,
        ask_user_questions: off,
        dynamic_sub_agents: off,
        generative_ui: off,
      },
      failsWithTools: true,
      declinesQuestions: true,
      keepsCutOffCalls: true,
      actionSeconds: 86_400,
    });
    expect(inline({ on_tool_failure: 'tell' }).spec).not.toHaveProperty('failsWithTools');
    expect(inline({ action_timeout_seconds: 5 }).spec.actionSeconds).toBe(5);
  });

  test('is in the agent format', () => {
    const { spec } = inline({
      tools: [tool('a')],
      toolkits: [{ type: 'mcp', url: 'http://lab.example/mcp' }],
      response_format: { type: 'json', name: 'x', schema: {} },
    });
    const format = inFormat(spec);
    expect(agentSpec.parse(format)).toEqual(format);
  });

  test('model, parameters and limits', () => {
    const model = { name: 'p/m', params: { temperature: 1, reasoning_effort: 'low' } };
    const { spec } = inline({ model, temperature: 0, top_p: 0.5, top_k: 3, max_tokens: 9, max_turns: 2 });
    expect(spec.model).toEqual({
      name: 'p/m',
      params: { temperature: 0, reasoning_effort: 'low', top_p: 0.5, top_k: 3, max_tokens: 9 },
    });
    expect(spec.config?.iteration_limit).toBe(2);
  });

  test.each([
    [{ modalities: ['text'] }, undefined],
    [{ modalities: ['image'] }, { image_output: true }],
    [{ modalities: ['text', 'audio'] }, { modalities: ['text', 'audio'], audio: { format: 'linear16' } }],
    [{ audio: { format: 'mp3', voice: 'ash', language: 'de' } }, { audio: { format: 'mp3', voice: 'ash' } }],
  ])('what it answers with: %j', (params, options) => {
    expect(inline(params).spec.modelOptions).toEqual(options);
  });

  test.each([
    [{ enabled: false }, 'none', undefined],
    [{ enabled: false, budget_tokens: 9_000 }, 'none', undefined],
    [{ enabled: true, budget_tokens: 0 }, 'low', 0],
    [{ enabled: true, budget_tokens: 8_191 }, 'low', 8_191],
    [{ enabled: true, budget_tokens: 8_192 }, 'medium', 8_192],
    [{ enabled: true, budget_tokens: 24_576 }, 'high', 24_576],
    [{ enabled: true }, 'high', undefined],
  ])('reasoning %j', (reasoning, effort, tokens) => {
    const { spec } = inline({ reasoning });
    expect([spec.model.params?.reasoning_effort, spec.modelOptions?.reasoning_tokens]).toEqual([effort, tokens]);
  });

  test.each([
    [{ type: 'text' }, { type: 'text' }],
    [{ type: 'json', name: 'x' }, { type: 'json_object' }],
    [
      { type: 'json', name: 'x', description: 'd', schema: { type: 'object' } },
      { type: 'json_schema', json_schema: { name: 'x', description: 'd', schema: { type: 'object' } } },
    ],
    [
      { type: 'json_schema', json_schema: { name: 'x' } },
      { type: 'json_schema', json_schema: { name: 'x' } },
    ],
  ])('the response format %j', (format, expected) => {
    expect(inline({ response_format: format }).spec.response_format).toEqual(expected);
  });

  test('tools and toolkits, in order', () => {
    const { spec } = inline({
      instructions: ['Be brief.', 'Be kind.'],
      tools: [tool('a'), { type: 'function', ...tool('b') }],
      toolkits: [
        { type: 'client', name: 'kit', system_prompt: 'Use c.', tools: [tool('c')], dynamic: false },
        { type: 'mcp', server: 'lab', enable_tools: ['@read-only'], disable_tools: null, required: false },
        { type: 'mcp', url: 'https://Tools.example.com:81/mcp', require_approval_for_tools: ['@all'] },
        { type: 'mcp', url: 'https://tools.example.com/other', headers: {}, context_keys: [] },
        { type: 'mcp', url: 'https://tools.example.com/third', name: 'third' },
      ],
    });
    expect(spec.instructions).toBe('Be brief.\nBe kind.\nUse c.');
    expect(spec.client_tools).toEqual([clientTool('a'), clientTool('b'), clientTool('c')]);
    expect(spec.mcp_servers).toEqual([
      { type: 'truefoundry-mcp-registry', name: 'lab', enable_tools: ['@read-only'], require_approval_for_tools: [] },
      {
        type: 'inline',
        name: 'tools-example-com',
        url: 'https://Tools.example.com:81/mcp',
        require_approval_for_tools: ['@all'],
      },
      {
        type: 'inline',
        name: 'tools-example-com-2',
        url: 'https://tools.example.com/other',
        require_approval_for_tools: [],
      },
      { type: 'inline', name: 'third', url: 'https://tools.example.com/third', require_approval_for_tools: [] },
    ]);
  });
});

describe('instructions', () => {
  test('have the parts of the context, which are filled in once', () => {
    const context = { user: { name: '{{context.n}} $&', tags: ['x', 'y'] }, n: 7, none: null };
    const instructions = [
      'For {{context.user.name}}.',
      '{{ context.user }} {{context.user.tags.1}} {{context.n}} {{context.none}}',
      '{{other}} {{context}}',
    ];
    expect(inline({ instructions }, context).spec.instructions?.split('\n')).toEqual([
      'For {{context.n}} $&.',
      `${JSON.stringify(context.user)} y 7 null`,
      '{{other}} {{context}}',
    ]);
  });

  test.each([
    [{ instructions: ['a', '{{context.user.name}}'] }, { user: {} }, 'agent.instructions[1]'],
    [{ instructions: '{{context.a}}' }, undefined, 'agent.instructions'],
    [{ instructions: '{{context.toString}}' }, {}, 'agent.instructions'],
    [{ instructions: '{{context.}}' }, {}, 'agent.instructions'],
    [{ instructions: '{{context.a}}'.repeat(40) }, { a: 'x'.repeat(30_000) }, 'agent.instructions'],
  ])('%# are refused if the context does not have them', (params, context, param) => {
    expect(refusalOf(() => inline(params, context))).toEqual([422, 'invalid_context', param]);
  });

  test('are searched in linear time', () => {
    const spaces = `{{context.${' '.repeat(900_000)}`;
    expect(inline({ instructions: spaces }).spec.instructions).toBe(spaces);
  });

  test('of a request do not get the variables of a registered agent', () => {
    const spec: AgentSpec = {
      model: { name: 'm' },
      instructions: 'You work for {{company}}.',
      messages: [{ type: 'user.message', content: 'I am with {{company}}.' }],
      variables: { company: 'ACME', secret: 'x' },
    };
    const { spec: changed } = registered(
      spec,
      { instructions: ['Not {{secret}}, {{context.q}}.'] },
      { q: '{{secret}}' },
    );
    const { system, transcript } = promptOf({
      spec: changed,
      model: 'm',
      transcript: [],
      tools: [],
      unavailable: [],
      texts: [],
      fileContent: () => Promise.reject(new Error('no file')),
    });
    expect(system).toBe('You work for ACME.\nNot {{secret}}, {{secret}}.');
    expect(transcript).toEqual([{ role: 'user', content: [{ type: 'text', text: 'I am with ACME.' }] }]);
  });
});

describe('a registered agent', () => {
  const spec: AgentSpec = {
    model: { name: 'm', params: { temperature: 1, top_k: 2 }, fallbacks: ['n'] },
    instructions: 'Be brief.',
    mcp_servers: [{ type: 'truefoundry-mcp-registry', name: 'lab' }],
    client_tools: [{ ...clientTool('a') }],
    response_format: { type: 'json_object' },
    skills: [{ name: 'refunds' }],
    config: { iteration_limit: 3, on_limit: 'answer', ask_user_questions: { enabled: true }, on_unknown: 'ask' },
  };

  test('keeps all that the request does not change', () => {
    const { config, ...kept } = registered(spec, {}).spec;
    const { config: own, ...rest } = spec;
    expect(kept).toEqual({
      ...rest,
      checksJson: true,
      failsWithTools: true,
      declinesQuestions: true,
      keepsCutOffCalls: true,
      actionSeconds: 86_400,
    });
    expect(config).toEqual({
      ...own,
      pause: 'wait',
      on_limit: 'fail',
      on_unknown: 'tell',
      dynamic_sub_agents: off,
      generative_ui: off,
    });
    expect(registered({ model: { name: 'm' } }, {}).spec.config?.iteration_limit).toBe(10);
  });

  test('each field replaces its own; instructions, tools and toolkits are added', () => {
    const changed = registered(spec, {
      model: 'other',
      temperature: 0,
      max_turns: 5,
      instructions: 'In German.',
      response_format: { type: 'text' },
      tools: [tool('b')],
      toolkits: [{ type: 'mcp', server: 'shop' }],
    }).spec;
    expect(changed).toMatchObject({
      model: { name: 'other', params: { temperature: 0, top_k: 2 }, fallbacks: ['n'] },
      instructions: 'Be brief.\nIn German.',
      response_format: { type: 'text' },
      config: { iteration_limit: 5 },
      mcp_servers: [{ name: 'lab' }, { name: 'shop', require_approval_for_tools: [] }],
      client_tools: [{ name: 'a' }, { name: 'b' }],
    });
  });

  test('a part at fault is named if the request has it', () => {
    const { pathOf } = registered(spec, {
      model: 'other',
      tools: [tool('b')],
      toolkits: [
        { type: 'client', name: 'kit', tools: [] },
        { type: 'mcp', server: 'shop' },
      ],
    });
    expect(
      ['model.name', 'model.fallbacks.0', 'mcp_servers.0.name', 'mcp_servers.1.name', 'client_tools', 'skills.0'].map(
        pathOf,
      ),
    ).toEqual(['params.model', 'params.model', undefined, 'params.toolkits[1].server', 'params.tools', undefined]);
    const inlined = inline({ toolkits: [{ type: 'mcp', url: 'http://x.example' }], response_format: { type: 'text' } });
    expect(['mcp_servers.0.name', 'mcp_servers.0', 'response_format.json_schema'].map(inlined.pathOf)).toEqual([
      'agent.toolkits[0].name',
      'agent.toolkits[0]',
      'agent.response_format',
    ]);
    expect(registered(spec, {}).pathOf('model.name')).toBeUndefined();
    expect(inline({ seed: 1 }).pathOf('modelOptions.seed')).toBe('agent.seed');
  });

  test('a tool of the request must not have the name of one of the agent', () => {
    expect(refusalOf(() => registered(spec, { tools: [tool('b'), tool('a')] }))).toEqual([
      422,
      'duplicate_tool_name',
      'params.tools[1].name',
    ]);
  });
});

test.each<[object, string]>([
  [{ tools: [tool('a'), tool('a')] }, 'agent.tools[1].name'],
  [
    { tools: [tool('a')], toolkits: [{ type: 'client', name: 'k', tools: [tool('b'), tool('a')] }] },
    'agent.toolkits[0].tools[1].name',
  ],
  [{ tools: [tool('read_tool_response')] }, 'agent.tools[0].name'],
  [{ tools: [tool('ask_user_question')] }, 'agent.tools[0].name'],
])('two tools of one name: %#', (params, param) => {
  expect(refusalOf(() => inline(params))).toEqual([422, 'duplicate_tool_name', param]);
});

const lab = { type: 'mcp', server: 'lab' };

test('the web search of the provider is no tool of the client, and has a name of its own', () => {
  const location = { city: 'Bonn', region: null };
  const search = { type: 'web_search', max_uses: 1, allowed_domains: null, user_location: location };
  const { spec, pathOf } = inline({ tools: [tool('a'), search] });
  expect(spec.client_tools).toMatchObject([{ name: 'a' }]);
  expect(spec.webSearch).toEqual({ max_uses: 1, user_location: { city: 'Bonn' } });
  expect([pathOf('webSearch'), pathOf('webSearch.max_uses')]).toEqual(['agent.tools[1]', 'agent.tools[1].max_uses']);
  expect(inline({ tools: [tool('a')] }).spec).not.toHaveProperty('webSearch');
  const refused = (tools: object[]) => refusalOf(() => inline({ tools }));
  expect(refused([search, tool('web_search')])).toEqual([422, 'duplicate_tool_name', 'agent.tools[1].name']);
  expect(refused([search, search])).toEqual([422, 'duplicate_tool_name', 'agent.tools[1]']);
});

test.each<[object, string]>([
  [{ max_turns: 0 }, 'agent.max_turns'],
  [{ max_turn: 3 }, 'agent'],
  [{ model: null }, 'agent.model'],
  [{ model: { name: 'm', params: { heat: 1 } } }, 'agent.model.params'],
  [
    { model: { name: 'm', metadata: { pricing: { output_cost_per_text_token: -1 } } } },
    'agent.model.metadata.pricing.output_cost_per_text_token',
  ],
  [{ tools: [{ ...tool('a'), execute: 1 }] }, 'agent.tools[0]'],
  [{ tools: [tool('a b')] }, 'agent.tools[0].name'],
  [{ toolkits: [{ type: 'mcp' }] }, 'agent.toolkits[0].server'],
  [{ toolkits: [{ ...lab, url: 'http://x.example' }] }, 'agent.toolkits[0].server'],
  [{ toolkits: [{ ...lab, name: 'x' }] }, 'agent.toolkits[0].name'],
  [{ toolkits: [{ type: 'mcp', url: 'file:///etc' }] }, 'agent.toolkits[0].url'],
  [
    { toolkits: [{ type: 'client', name: 'k', tools: Array.from({ length: 129 }, (_, i) => tool(`t${i}`)) }] },
    'agent.toolkits[0].tools',
  ],
  [
    {
      tools: Array.from({ length: 128 }, (_, i) => tool(`t${i}`)),
      toolkits: [{ type: 'client', name: 'k', tools: [tool('a')] }],
    },
    'agent.tools',
  ],
  [{ instructions: ['x'.repeat(600_000), 'x'.repeat(600_000)] }, 'agent.instructions'],
])('%# does not fit the schema', (params, param) => {
  expect(refusalOf(() => inline(params))).toEqual([400, 'invalid_request', param]);
});

describe('the bodies', () => {
  const agent = { model: 'm' };
  const inlineBody = (body: object) => parsePart(runRequest, { input, agent, ...body }, 'body');
  const namedBody = (body: object) => parsePart(agentRunRequest, { input, ...body }, 'body');

  test('take null for unset', () => {
    const nothing = { stream: null, metadata: null, wait_seconds: null, context: null };
    expect(inlineBody(nothing)).toMatchObject(nothing);
    expect(namedBody({ agent: null, params: null, context: { a: 1 } })).toMatchObject({ context: { a: 1 } });
  });

  test.each<[string, () => unknown, string]>([
    ['no agent', () => inlineBody({ agent: undefined }), 'agent'],
    ['an agent beside its name', () => namedBody({ agent }), 'agent'],
    ['an unknown param', () => namedBody({ params: { turns: 1 } }), 'params'],
    ['no input', () => inlineBody({ input: undefined }), 'input'],
    ['a long wait', () => inlineBody({ wait_seconds: 3_601 }), 'wait_seconds'],
    [
      'much metadata',
      () => inlineBody({ metadata: Object.fromEntries(Array.from({ length: 17 }, (_, i) => [i, ''])) }),
      'metadata',
    ],
    ['long metadata', () => inlineBody({ metadata: { a: 'x'.repeat(513) } }), 'metadata.a'],
  ])('%s is refused', (_, work, param) => {
    expect(refusalOf(work)).toEqual([400, 'invalid_request', param]);
  });

  test('names and metadata have no NUL, which PostgreSQL cannot store', () => {
    expect(inlineBody({ metadata: { 'a\0': 'b\0' } }).metadata).toEqual({ a: 'b' });
    expect(inlineBody({ agent: { ...agent, name: 'x\0' } }).agent.name).toBe('x');
  });
});
