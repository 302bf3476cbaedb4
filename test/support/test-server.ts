import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Logger } from 'pino';
import { inject } from 'vitest';
import { loadConfig } from '../../src/config.ts';
import type { LiveBus } from '../../src/live/bus.ts';
import { newId } from '../../src/engine/new-id.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { startAllInOne, type RunningAllInOne } from '../../src/server/all-in-one.ts';
import type { RegisteredServer } from '../../src/mcp/registry-file.ts';
import type { Tracing } from '../../src/telemetry/tracing.ts';
import type { AgentSpec } from '../../src/spec/agent-spec.ts';
import { ApiClient, type EventReader } from './api-client.ts';
import { TestMcpServer, type TestMcpServerOptions } from './mcp-server.ts';
import { expectReplays } from './replay.ts';
import { ScriptedModel, type ChatRequest, type Script } from './scripted-model.ts';
import { installRuntime } from './temporal-runtime.ts';
import { createTestDatabase, type TestDatabase } from './test-database.ts';

/** The whole server in this process, with a scripted model and an MCP server of the test. */
export interface TestServer {
  api: ApiClient;
  model: ScriptedModel;
  mcp: TestMcpServer;
  dataDir: string;
  database: TestDatabase;
  server: RunningAllInOne;
  /**
   * Stops it and starts it again on the same data, from now on with these settings too. The start runs its housekeeping
   * first.
   */
  restart: (env?: Record<string, string>) => Promise<void>;
  /** A session with its own agent, whose model has its own scripts. */
  chat: (options?: ChatOptions) => Promise<Chat>;
  stop: () => Promise<void>;
}

interface ChatOptions {
  scripts?: Script[];
  /** The agent's spec, except for its model's name. */
  spec?: Partial<AgentSpec>;
}

export interface Chat {
  agent: string;
  sessionId: string;
  /** Path of the session. */
  path: string;
  requests: () => ChatRequest[];
  script: (...scripts: Script[]) => void;
  turn: (input: unknown, more?: object, headers?: Record<string, string>) => EventReader;
}

export interface TestServerOptions {
  env?: Record<string, string>;
  bus?: LiveBus;
  mcp?: TestMcpServerOptions;
  log?: Logger;
  tracing?: Tracing;
  /** Servers in addition to `test`. */
  servers?: Record<string, RegisteredServer>;
  /** The PostgreSQL server, if the test has its own. */
  postgresUrl?: string;
}

/** For agents that use the MCP server of the test. Its tools without annotations run without an approval. */
export const onTestServer = {
  mcp_servers: [
    {
      type: 'truefoundry-mcp-registry' as const,
      name: 'test',
      require_approval_for_tools: ['@write', '@destructive'],
    },
  ],
};

export async function startTestServer({
  env = {},
  bus,
  mcp: mcpOptions = { tools: [] },
  log: givenLog,
  tracing,
  servers = {},
  postgresUrl,
}: TestServerOptions = {}): Promise<TestServer> {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'everturn-test-'));
  const model = await ScriptedModel.start();
  const mcp = await TestMcpServer.start(mcpOptions);
  const mcpFile = path.join(dataDir, 'mcp.json');
  const database = await createTestDatabase(dataDir, postgresUrl);
  await writeFile(mcpFile, JSON.stringify({ servers: { ...servers, test: { url: mcp.url } } }));
  const variables = {
    PATH: process.env['PATH'],
    EVERTURN_PORT: '0',
    EVERTURN_DATA: dataDir,
    EVERTURN_MCP_SERVERS: mcpFile,
    EVERTURN_TASK_QUEUE: newId('req'),
    EVERTURN_SHUTDOWN_SECONDS: '1',
    // A host would build an environment of Python: see `code-server.ts`.
    EVERTURN_KERNELS: '0',
    DATABASE_URL: database.url,
    OPENAI_API_KEY: 'test-key',
    OPENAI_BASE_URL: model.url,
    TEMPORAL_ADDRESS: inject('temporalAddress'),
    TEMPORAL_NAMESPACE: inject('temporalNamespace'),
    LOG_LEVEL: process.env['TEST_LOG'] ?? 'fatal',
    EVERTURN_ENCRYPTION_KEYS: process.env['TEST_ENCRYPTION_KEYS'],
    ...env,
  };
  let config = loadConfig(variables);
  const log = givenLog ?? createLogger(config);
  await installRuntime(log);
  let server = await startAllInOne(config, log, { ...(bus && { bus }), tracing, env: variables });
  let api = new ApiClient(server.url);
  return {
    get api() {
      return api;
    },
    get server() {
      return server;
    },
    chat: (options) => openChat({ model, current: () => api }, options),
    model,
    mcp,
    dataDir,
    database,
    restart: async (more = {}) => {
      await server.stop();
      config = loadConfig(Object.assign(variables, more));
      server = await startAllInOne(config, log, { ...(bus && { bus }), tracing, env: variables });
      api = new ApiClient(server.url);
    },
    stop: async () => {
      try {
        await expectReplays(config);
      } finally {
        await server.stop();
        await model.stop();
        await mcp.stop();
        await database.close();
        await rm(dataDir, { recursive: true, force: true });
      }
    },
  };
}

async function openChat(
  { model, current }: { model: ScriptedModel; current: () => ApiClient },
  { scripts = [], spec = {} }: ChatOptions = {},
): Promise<Chat> {
  const name = newId('req');
  model.script(name, ...scripts);
  await current().putAgent(name, { ...spec, model: { ...spec.model, name } });
  const sessionId = await current().createSession(name);
  return {
    agent: name,
    sessionId,
    path: `/v1/agents/sessions/${sessionId}`,
    requests: () => model.requestsTo(name),
    script: (...more) => model.script(name, ...more),
    turn: (input, more, headers) => current().turn(sessionId, input, more, headers),
  };
}
