import path from 'node:path';
import { tryAgent, type TriedPart } from '../agents/try-agent.ts';
import { LOCAL } from '../auth/api-keys.ts';
import { Catalog } from '../features/catalog.ts';
import { ConfigError, isLoopback, loadConfig, type Config } from '../config.ts';
import { DEMO } from '../demo/demo-agent.ts';
import { Cipher } from '../encryption/cipher.ts';
import { openDataDir } from '../lib/data-dir.ts';
import { StartupError } from '../lib/errors.ts';
import { NO_GRANTS } from '../features/sign-in/grants.ts';
import { ProgramRecords } from '../mcp/program-records.ts';
import { loadMcpRegistry } from '../mcp/registry.ts';
import { openEmbeddings } from '../models/embeddings.ts';
import { modelAccess, openProviders } from '../models/open-providers.ts';
import { readAgentFile } from '../server/agent-files.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';
import { createLogger } from '../telemetry/logger.ts';
import { Metrics } from '../telemetry/metrics.ts';
import { printable } from './turn-report-text.ts';
import { untilInterrupted } from './until-interrupted.ts';

interface CheckedAgent {
  agent: string;
  checks: TriedPart[];
}

interface FoundAgents {
  specs: Map<string, AgentSpec>;
  /** As far as it can be determined without a server. */
  isKeyless: boolean;
}

const PAGE = 100;

/**
 * Prints the results of trying the models and MCP servers of agents: of all registered ones, of the one with a name, or of
 * that in a file, as a server with these settings would use them.
 * @throws ConfigError if there is no such agent, StartupError if something that was tried cannot be used
 */
export async function checkAgents(which: string | undefined, { json }: { json?: boolean }): Promise<void> {
  const config = loadConfig();
  // The results are in the output.
  const log = createLogger({ logLevel: 'silent' });
  const access = await modelAccess(config);
  if (!access) {
    throw new ConfigError('no model provider is set: set OPENAI_API_KEY, OPENAI_BASE_URL or EVERTURN_MODEL_PROVIDERS');
  }
  const registry = await loadMcpRegistry(config.mcpServersFile);
  for (const warning of registry.warnings) process.stderr.write(`${warning}\n`);
  const { specs, isKeyless } = await findAgents(which, config);
  const metrics = new Metrics();
  const models = openProviders(access, {
    ...config.model,
    metrics,
    log,
    shared: undefined,
    onResponse: () => undefined,
  });
  const embeddings = openEmbeddings(config, access, models);
  await openDataDir(config.dataDir);
  const programs = await ProgramRecords.open(config.dataDir, log);
  const allowPrivateUrls = () => config.allowPrivateUrls ?? isKeyless;
  const options = {
    models,
    embeddings,
    registry,
    pool: { ...config.mcp, allowPrivateUrls, grants: NO_GRANTS, programs, log },
    subjectId: LOCAL.subject.subjectId,
    // As a server assumes.
    hasPublicUrl: config.publicUrl !== undefined || isLoopback(config.host),
    signal: untilInterrupted(),
  };
  const check = async ([agent, spec]: [string, AgentSpec]): Promise<CheckedAgent> => {
    const checked = { agent, checks: await tryAgent(spec, options) };
    if (!json) process.stdout.write(textOf(checked));
    return checked;
  };
  const checked = await Promise.all([...specs].map(check));
  if (json) process.stdout.write(`${JSON.stringify(checked, undefined, 2)}\n`);
  const failed = checked.filter(({ checks }) => checks.some(({ status }) => status === 'failed'));
  if (failed.length === 0) return;
  throw new StartupError(`checks have failed for these agents: ${failed.map(({ agent }) => agent).join(', ')}`);
}

/** @throws ConfigError */
async function findAgents(which: string | undefined, config: Config): Promise<FoundAgents> {
  const isUnconfigured = config.apiKeys.length === 0 && !config.oidc;
  if (which?.endsWith('.json')) {
    const spec = await readAgentFile(which);
    return { specs: new Map([[path.basename(which, '.json'), spec]]), isKeyless: isUnconfigured };
  }
  const cipher = new Cipher(config.encryptionKeys);
  await using catalog = await Catalog.openExisting(config.database, createLogger(config), cipher);
  const specs = which === undefined ? await allAgents(catalog) : await oneAgent(which, catalog);
  return { specs, isKeyless: isUnconfigured && !(await catalog.keys.any()) };
}

/** @throws ConfigError */
async function oneAgent(name: string, { agents }: Catalog): Promise<Map<string, AgentSpec>> {
  const agent = await agents.get(name);
  if (agent) return new Map([[name, agent.spec]]);
  throw new ConfigError(
    `no agent is registered under the name ${JSON.stringify(name)}; a file has a name that ends with .json`,
  );
}

/** Without the demo, which uses a server that runs only in a server. */
async function allAgents({ agents }: Catalog): Promise<Map<string, AgentSpec>> {
  const specs = new Map<string, AgentSpec>();
  let after: string | undefined;
  for (;;) {
    const rows = await agents.list('asc', after, PAGE);
    for (const { name, spec_hash: hash } of rows) if (name !== DEMO) specs.set(name, await agents.spec(hash));
    after = rows.at(-1)?.name;
    if (rows.length < PAGE) return specs;
  }
}

const KINDS = { model: 'model', mcp_server: 'MCP server' };
const STATES = { ok: 'ok', sign_in_required: 'needs a sign-in', failed: 'failed' };

function textOf({ agent, checks }: CheckedAgent): string {
  const rows = checks.map(({ type, name, address, status, reason, seconds }) => {
    const place = address === null ? '' : ` at ${address}`;
    const why = reason === null ? '' : `: ${reason}`;
    return `  ${STATES[status].padEnd(15)}  ${seconds.toFixed(1).padStart(5)} s  ${KINDS[type]} ${name}${place}${why}`;
  });
  return [agent, ...rows].map((line) => `${printable(line)}\n`).join('');
}
