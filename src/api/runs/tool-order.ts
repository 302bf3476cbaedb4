import type { AgentSpec, ToolSource } from '../../spec/agent-spec.ts';
import type { AgentChanges } from './wire/agent-params.ts';

/**
 * The order in which a model is offered the tools of a run: those of its agent, those of the request, then its toolkits.
 * `servers` are those of the MCP toolkits, in their order. Undefined if the request adds none to the agent's.
 */
export function toolOrder(
  { client_tools: ownTools, mcp_servers: ownServers }: AgentSpec,
  { tools, toolkits }: AgentChanges,
  servers: { server: { name: string } }[],
): ToolSource[] | undefined {
  const named = ({ name }: { name: string }): ToolSource => ({ tool: name });
  const ofServer = ({ name }: { name: string }): ToolSource => ({ server: name });
  const rest = [...servers];
  let toolkit = 0;
  const added = [
    ...(tools ?? []).flatMap((tool) => (tool.type === 'web_search' ? [] : [named(tool)])),
    ...(toolkits ?? []).flatMap((one) =>
      one.type === 'client' ? [{ toolkit: toolkit++ }] : rest.splice(0, 1).map(({ server }) => ofServer(server)),
    ),
  ];
  return added.length > 0 ? [...(ownTools ?? []).map(named), ...(ownServers ?? []).map(ofServer), ...added] : undefined;
}
