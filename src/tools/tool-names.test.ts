import { fc } from '../../test/support/fast-check.ts';
import { describe, expect, test } from 'vitest';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { toolNames } from './tool-names.ts';

function specOf(servers: string[]): AgentSpec {
  return {
    model: { name: 'm' },
    mcp_servers: servers.map((name) => ({ type: 'truefoundry-mcp-registry', name })),
  };
}

const OWN = new Set(['ask_user_question', 'open_door']);

describe('a tool is called', () => {
  test.each([
    ['by its own name, if its server is the only one', ['crm'], 'crm', 'find', 'find'],
    ['with its server, if there are several', ['crm', 'erp'], 'crm', 'find', 'crm__find'],
    ['with its server, if its name is taken by a system tool', ['crm'], 'crm', 'open_door', 'crm__open_door'],
    ['in characters that providers accept', ['crm'], 'crm', 'größe.ändern', 'gr_e_ndern_b7ac527a'],
    ['with its server in such characters', ['org/crm', 'erp'], 'org/crm', 'find', 'org_crm_85223cbd__find'],
    ['by a digest, if no character of its name is accepted', ['crm'], 'crm', '日本', '_cf2abf0c'],
  ])('%s', (_, servers, server, tool, name) => {
    expect(toolNames(specOf(servers), OWN)(server, tool)).toBe(name);
  });

  test('by a name of at most 64 characters, distinct from others with the same beginning', () => {
    const name = toolNames(specOf(['crm']), OWN);
    const [one, other] = [name('crm', `${'x'.repeat(64)}1`), name('crm', `${'x'.repeat(64)}2`)];
    expect([one?.length, other?.length]).toEqual([64, 64]);
    expect(one).not.toBe(other);
    expect(name('crm', 'x'.repeat(64))).toBe('x'.repeat(64));
  });
});

test('no two tools of an agent have the same name, however server and tool names are split', () => {
  const word = fc.string({ unit: fc.constantFrom('a', '_', '.'), minLength: 1, maxLength: 3 });
  const tools = fc.uniqueArray(fc.tuple(word, word), {
    selector: ([server, tool]) => `${server}\n${tool}`,
    minLength: 2,
    maxLength: 30,
  });
  fc.assert(
    fc.property(tools, (pairs) => {
      const servers = [...new Set(pairs.map(([server]) => server)), 'another'];
      const name = toolNames(specOf(servers), OWN);
      const names = pairs.map(([server, tool]) => name(server, tool));
      expect(new Set(names).size).toBe(names.length);
      for (const one of names) expect(one).toMatch(/^[a-zA-Z0-9_-]{1,64}$/);
    }),
  );
});
