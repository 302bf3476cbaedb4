import type { Logger } from 'pino';
import type { Config } from '../config.ts';
import type { ModelProviders } from '../models/providers.ts';
import type { AgentSpec } from '../spec/agent-spec.ts';

/** The MCP server's name in the registry, and the agent's. */
export const DEMO = 'demo';

/** The agent for first steps: on the demo model, or on a real model if a key is configured. */
export function demoAgent(model: string): AgentSpec {
  return {
    model: { name: model },
    instructions:
      'You keep short notes for the user. Use your tools to find and write them; answer in a sentence or two.',
    // Its destructive tool asks the user itself.
    mcp_servers: [{ type: 'truefoundry-mcp-registry', name: DEMO, require_approval_for_tools: ['@write'] }],
  };
}

interface DemoModelSources {
  models: Pick<ModelProviders, 'has' | 'alternatives'>;
  config: Pick<Config, 'demoModel'>;
  log: Pick<Logger, 'warn'>;
}

/**
 * Logs a warning if the provider of the demo agent's model reports that it has no such model, or lists others: the
 * first session would end with an error. The server starts without waiting for it.
 */
export async function warnOfDemoModel({ models, config: { demoModel }, log }: DemoModelSources): Promise<void> {
  const isKnown = await models.has(demoModel);
  const alternatives = models.alternatives(demoModel);
  if (isKnown && alternatives === undefined) return;
  const problem = isKnown ? 'the model provider does not list' : 'the model provider does not have';
  const advice = alternatives === undefined ? '' : ` (${alternatives})`;
  log.warn({ model: demoModel }, `${problem} the model of the demo agent: set EVERTURN_DEMO_MODEL${advice}`);
}
