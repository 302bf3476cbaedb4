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
