import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect } from 'vitest';
import type { z } from 'zod';
import { agentParams } from '../../../src/api/runs/wire/agent-params.ts';
import { resumeRequest } from '../../../src/api/runs/wire/resume.ts';
import { run } from '../../../src/api/runs/wire/run.ts';
import { streamEvent } from '../../../src/api/sessions/wire/events.ts';
import { actionsBody, createTurnBody } from '../../../src/api/sessions/wire/input.ts';
import { newId } from '../../../src/engine/new-id.ts';
import { loadMcpRegistry } from '../../../src/mcp/registry.ts';
import { readProviderFile } from '../../../src/models/provider-file.ts';
import { agentSpec } from '../../../src/spec/agent-spec.ts';
import type { ApiClient } from '../api-client.ts';

type Json = Record<string, unknown>;

/** The kind of a JSON block of a guide, and how it is checked. */
interface Kind {
  name: string;
  fits: (value: Json) => boolean;
  /** @throws Error if Everturn would not accept it, or would ignore a part of it */
  check: (value: Json, api: ApiClient) => void | Promise<void>;
}

const hasOnly = (value: Json, keys: string[]): boolean => Object.keys(value).every((key) => keys.includes(key));

/** The JSON of the guides. Each block is of exactly one kind, which its fields show. */
export const JSON_KINDS: Kind[] = [
  {
    name: 'an agent, or some fields of one',
    fits: (value) => hasOnly(value, Object.keys(agentSpec.shape)),
    check: async (value, api) => {
      const name = newId('req');
      await api.putAgent(name, { model: { name: 'gpt-5-mini' }, ...value });
      const { data } = await api.get<{ data: { spec: Json } }>(`/v1/agents/${name}`);
      expect(ignored(value, data.spec)).toEqual([]);
    },
  },
  {
    name: 'the input of a turn',
    fits: ({ input }) => Array.isArray(input),
    check: (value) => {
      expectAccepted(createTurnBody, value);
      expectAccepted(actionsBody, value);
    },
  },
  {
    name: 'an item of the input of a turn',
    fits: ({ type }) => String(type).startsWith('user.tool_'),
    check: (value) => expectAccepted(actionsBody, { input: [value] }),
  },
  {
    name: 'an event',
    fits: ({ type, id }) => type !== undefined && id !== undefined,
    check: (value) => expectAccepted(streamEvent, value),
  },
  {
    name: 'a file of EVERTURN_MCP_SERVERS',
    fits: ({ servers, mcpServers }) => (servers ?? mcpServers) !== undefined,
    check: (value) => inFile(value, (file) => loadMcpRegistry(file, variablesOf(value))),
  },
  {
    name: 'a file of EVERTURN_MODEL_PROVIDERS',
    fits: ({ providers }) => providers !== undefined,
    check: (value) => inFile(value, (file) => readProviderFile(file, variablesOf(value))),
  },
  {
    name: 'some fields of a provider',
    fits: ({ limits }) => limits !== undefined,
    check: (value) => {
      const providers = { own: { kind: 'openai-responses', ...value } };
      return inFile({ providers }, (file) => readProviderFile(file, {}));
    },
  },
  {
    name: 'the model of a run',
    fits: ({ metadata }) => metadata !== undefined,
    check: (value) => expectAccepted(agentParams, { model: value }),
  },
  {
    name: 'a toolkit of a run',
    fits: ({ type }) => type === 'mcp',
    check: (value) => expectAccepted(agentParams, { model: 'gpt-5-mini', toolkits: [value] }),
  },
  {
    name: 'what resumes a run',
    fits: (value) => hasOnly(value, Object.keys(resumeRequest.shape)),
    check: (value) => expectAccepted(resumeRequest, value),
  },
  {
    name: 'a sign-in that a run waits for',
    fits: ({ auth_url: url }) => url !== undefined,
    check: (value) => expectAccepted(run.shape.required_action.unwrap().shape.sign_ins.unwrap().element, value),
  },
];

function expectAccepted(schema: z.ZodType, value: Json): void {
  expect(ignored(value, schema.parse(value))).toEqual([]);
}

/** The fields of a value that are missing in what Everturn made of it. */
function ignored(given: unknown, kept: unknown, at = ''): string[] {
  if (typeof given !== 'object' || given === null || typeof kept !== 'object' || kept === null) return [];
  return Object.entries(given).flatMap(([key, value]) =>
    key in kept ? ignored(value, (kept as Json)[key], `${at}/${key}`) : [`${at}/${key}`],
  );
}

async function inFile(value: Json, read: (file: string) => Promise<unknown>): Promise<void> {
  const folder = await mkdtemp(path.join(tmpdir(), 'everturn-guide-'));
  try {
    const file = path.join(folder, 'settings.json');
    await writeFile(file, JSON.stringify(value));
    await read(file);
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** Values for the environment variables that a file names. */
function variablesOf(value: Json): Record<string, string> {
  const names = JSON.stringify(value).matchAll(/\$\{(\w+)\}|"api_key_env":"(\w+)"/g);
  return Object.fromEntries([...names].map(([, one, other]) => [one ?? other ?? '', 'some-value']));
}
