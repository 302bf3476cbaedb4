const inputSchema = { type: 'object' };

const RESULTS: Record<string, object> = {
  initialize: {
    protocolVersion: '2025-11-25',
    capabilities: { tools: {} },
    serverInfo: { name: 'bench', version: '1' },
  },
  'tools/list': {
    tools: [
      { name: 'look', inputSchema, annotations: { readOnlyHint: true } },
      { name: 'note', inputSchema },
    ],
  },
  'tools/call': { content: [{ type: 'text', text: 'x'.repeat(2048) }] },
};

/** The result or error in the JSON-RPC response of a minimal MCP server (2025-11-25) that clients accept. */
export function mcpResult(method = ''): object {
  const result = RESULTS[method];
  return result ? { result } : { error: { code: -32601, message: 'Method not found' } };
}
