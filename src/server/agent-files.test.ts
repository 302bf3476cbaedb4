import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { RegisteredVersion } from '../engine/agent-check.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { readAgentFiles, registerAgents } from './agent-files.ts';
import type { Services } from './services.ts';

/** A server that has no agents yet. It rejects the model `x/m`, and warns of sub-agents that it does not have. */
function emptyServer() {
  const names = new Set<string>();
  const logged: unknown[] = [];
  const put = (name: string, spec: AgentSpec) => {
    names.add(name);
    return Promise.resolve({ name, version: 1, spec });
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- only what the registration uses
  const services = {
    catalog: { agents: { put } },
    agentCheck: {
      firstMistake: ({ model }: AgentSpec) =>
        model.name === 'x/m' ? { code: 'invalid_agent', message: 'is wrong', param: 'model.name' } : undefined,
      firstProblem: () => Promise.resolve(undefined),
      logWarnings: ({ name, version, spec }: RegisteredVersion) => {
        const warnings = (spec.agents ?? []).filter((one) => !names.has(one));
        if (warnings.length > 0) logged.push({ agent: name, version, warnings });
        return Promise.resolve();
      },
    },
  } as unknown as Services;
  return { services, names, logged };
}

async function filesOf(agents: Record<string, object>): Promise<Map<string, AgentSpec>> {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-agent-files-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  for (const [name, spec] of Object.entries(agents)) {
    await writeFile(path.join(folder, `${name}.json`), JSON.stringify(spec));
  }
  return readAgentFiles(folder);
}

test('warnings of agents in files are logged, and an agent may name one of another file that comes later', async () => {
  const { services, names, logged } = emptyServer();
  const model = { name: 'm' };
  await registerAgents(services, await filesOf({ a: { model, agents: ['b', 'ghost'] }, b: { model, agents: ['a'] } }));
  expect([...names]).toEqual(['a', 'b']);
  expect(logged).toEqual([{ agent: 'a', version: 1, warnings: ['ghost'] }]);
});

test('an agent in a file that would not be accepted stops the start, with the name of its file', async () => {
  const { services, names } = emptyServer();
  const registered = registerAgents(services, await filesOf({ wrong: { model: { name: 'x/m' } } }));
  await expect(registered).rejects.toThrow('EVERTURN_AGENTS: wrong.json: model.name: is wrong');
  expect(names.size).toBe(0);
});

test('an unknown key of an agent in a file is reported with the file, the place and the nearest known key', async () => {
  await expect(filesOf({ desk: { model: { name: 'm' }, config: { retention_day: 3 } } })).rejects.toThrow(
    /^EVERTURN_AGENTS: .*\/desk\.json: config: unknown key "retention_day": do you mean "retention_days"\?$/,
  );
});
