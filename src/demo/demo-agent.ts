import type { AgentSpec } from '../spec/agent-spec.ts';

/** The MCP server's name in the registry, and the agent's. */
export const DEMO = 'demo';

/** An agent to try the server with: on the demo model, or on a real one if there is a key for it. */
export function demoAgent(model: string): AgentSpec {
  return {
    model: { name: model },
    instructions:
      'You keep short notes for the user. Use your tools to find and write them; answer in a sentence or two.',
    mcp_servers: [{ type: 'truefoundry-mcp-registry', name: DEMO }],
  };
}
