import path from 'node:path';
import { readdir, readFile } from 'node:fs/promises';
import type { AgentWithSpec } from '../catalog/agents.ts';
import { ConfigError } from '../config.ts';
import { namingUnknownKeys } from '../lib/unknown-keys.ts';
import { agentSpec, type AgentSpec } from '../spec/agent-spec.ts';
import { SchemaBudget } from '../engine/schema-budget.ts';
import type { Services } from './services.ts';

/**
 * Reads the folder of `EVERTURN_AGENTS`, whose files `<name>.json` hold one AgentSpec each.
 * @throws ConfigError that names the file and what is wrong with it
 */
export async function readAgentFiles(folder: string | undefined): Promise<Map<string, AgentSpec>> {
  if (folder === undefined) return new Map();
  let names: string[];
  try {
    names = (await readdir(folder)).filter((name) => name.endsWith('.json')).toSorted();
  } catch (error) {
    throw new ConfigError(`EVERTURN_AGENTS: the folder ${folder} cannot be read: ${String(error)}`);
  }
  const agents = new Map<string, AgentSpec>();
  for (const name of names) {
    agents.set(path.basename(name, '.json'), await readAgentFile(path.join(folder, name), 'EVERTURN_AGENTS: '));
  }
  return agents;
}

/**
 * Reads a file with one AgentSpec.
 * @param setting the setting that names the file, with which the error begins
 * @throws ConfigError that names the file and what is wrong with it
 */
export async function readAgentFile(file: string, setting = ''): Promise<AgentSpec> {
  const wrong = (what: string): ConfigError => new ConfigError(`${setting}${file}${what}`);
  let content: unknown;
  try {
    content = JSON.parse(await readFile(file, 'utf8'));
  } catch (error) {
    throw wrong(` is not JSON: ${String(error)}`);
  }
  const parsed = agentSpec.safeParse(content, { error: namingUnknownKeys });
  if (parsed.success) return parsed.data;
  const problems = parsed.error.issues.map(({ path: at, message }) => `${at.join('.') || 'the agent'}: ${message}`);
  throw wrong(`: ${problems.join('; ')}`);
}

/**
 * Registers the agents of a folder.
 * @throws ConfigError that names the first agent that cannot run on this server
 */
export async function registerAgents(
  { catalog, agentCheck }: Pick<Services, 'catalog' | 'agentCheck'>,
  agents: Map<string, AgentSpec>,
): Promise<void> {
  const now = new Date().toISOString();
  const registered: AgentWithSpec[] = [];
  for (const [name, spec] of agents) {
    // The time is that of a process that has just started, and no caller is waiting.
    const budget = new SchemaBudget({ maxMs: Infinity });
    const scope = { owner: null, budget };
    const problem = agentCheck.firstMistake(spec) ?? (await agentCheck.firstProblem(spec, scope));
    if (problem) throw new ConfigError(`EVERTURN_AGENTS: ${name}.json: ${problem.param}: ${problem.message}`);
    registered.push(await catalog.agents.put(name, spec, now));
  }
  // Now that all are registered: one may name another one, which comes after it.
  for (const agent of registered) await agentCheck.logWarnings(agent);
}
