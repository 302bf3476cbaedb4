import { expect, test } from 'vitest';
import { agentSpec, inFormat, type AgentSpec } from './agent-spec.ts';

const withMatch = (match: object): object => ({
  model: { name: 'm' },
  config: { decision_policies: [{ match, decision: 'allow' }] },
});

test.each([{}, { server: null }, { tool: null, arguments: {} }])('a policy whose match is %j is rejected', (match) => {
  const { error } = agentSpec.safeParse(withMatch(match));
  expect(error?.issues.map(({ path, message }) => [path.join('.'), message])).toEqual([
    ['config.decision_policies.0.match', 'must say which calls it fits; {"tool": "*"} fits all'],
  ]);
});

test('a policy with a misspelt condition has one problem', () => {
  const { error } = agentSpec.safeParse(withMatch({ tols: 'get_*' }));
  expect(error?.issues.map(({ code }) => code)).toEqual(['unrecognized_keys']);
});

test.each([{ tool: '*' }, { server: 'crm' }, { annotations: '@write' }, { arguments: { '/id': {} }, tool: null }])(
  'a policy whose match is %j is accepted',
  (match) => {
    expect(agentSpec.parse(withMatch(match))).toEqual(withMatch(match));
  },
);

test('the fields that the public SDKs send are accepted and kept', () => {
  const spec = {
    model: { name: 'm', params: { cache_control: { type: 'ephemeral', ttl: '1h' } } },
    skills: [
      { type: 'git', url: 'https://github.com/acme/skills', path: 'refunds', name: 'refunds', ref: 'main' },
      { type: 'truefoundry-skills-registry', fqn: 'acme/refunds:1', preload: false },
    ],
    config: { sandbox: { enabled: false, file_downloads: true, network_policy: { auth_inject: [{ match: {} }] } } },
  };
  expect(agentSpec.parse(spec)).toEqual(spec);
});

test('a stored agent is shown without the keys that the format does not have', () => {
  const format: AgentSpec = {
    model: { name: 'm' },
    config: {
      sandbox: { enabled: false, file_downloads: true },
      context_management: { compaction: { enabled: true } },
    },
  };
  const stored = structuredClone(format);
  Object.assign(stored, { delegates: [], callsInSequence: true });
  Object.assign(stored.config?.sandbox ?? {}, { image: 'small' });
  Object.assign(stored.config?.context_management?.compaction ?? {}, { older: 1, newer: 2 });
  const before = structuredClone(stored);
  expect(inFormat(stored)).toEqual(format);
  expect(stored).toEqual(before);
});
