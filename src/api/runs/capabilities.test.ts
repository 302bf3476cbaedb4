import { expect, test } from 'vitest';
import { agentSpec, type AgentSpec } from '../../spec/agent-spec.ts';
import { withParams } from './agent-to-spec.ts';
import { agentChanges } from './wire/agent-params.ts';

/** The changes of a request whose model lacks a capability. */
function without(capability: string, params: object = {}) {
  const capabilities = { text_output: true, [capability]: false };
  return agentChanges.parse({ model: { name: 'm', metadata: { capabilities } }, ...params });
}

const read = (changes: ReturnType<typeof without>, spec: AgentSpec = { model: { name: 'm' } }) =>
  withParams(spec, changes, {});

const tools = [{ name: 'a', description: 'does a', parameters: {} }];

test.each<[string, object, string]>([
  ['function_calling', { tools }, 'tools[0]'],
  ['function_calling', { toolkits: [{ type: 'mcp', server: 'lab' }] }, 'toolkits[0]'],
  ['structured_output', { response_format: { type: 'json', name: 'x' } }, 'response_format'],
  ['reasoning', { reasoning: { enabled: true } }, 'reasoning'],
  ['audio_output', { modalities: ['text', 'audio'] }, 'modalities[1]'],
  ['image_output', { modalities: ['image'] }, 'modalities[0]'],
  ['audio_output', { audio: { voice: 'ash' } }, 'audio'],
])('a model without %s cannot do what needs it: %j', (capability, params, place) => {
  const refused = { code: 'feature_not_available', param: `params.${place}` };
  expect(() => read(without(capability, params))).toThrow(expect.objectContaining(refused));
  expect(() => read(without('citation', params))).not.toThrow();
});

test.each(['function_calling', 'structured_output'])('nor can it be that of an agent that needs %s', (capability) => {
  const own = agentSpec.parse({
    model: { name: 'm' },
    response_format: { type: 'json_object' },
    client_tools: [{ name: 'a', input_schema: {} }],
  });
  const param = `params.model.metadata.capabilities.${capability}`;
  expect(() => read(without(capability), own)).toThrow(expect.objectContaining({ param }));
});

test('an agent that does not reason needs no reasoning', () => {
  const { missing } = read(without('reasoning', { reasoning: { enabled: false } }));
  expect(missing).toEqual(new Set(['reasoning']));
});
