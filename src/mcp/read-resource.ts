import type { Tool } from '@modelcontextprotocol/client';

/** The length of a URI that a model can use: in results, longer ones are cut. */
export const MAX_URI_LENGTH = 2_048;

/**
 * Reads what a result only links to. It is listed as one more tool of each server that has resources, and so selected,
 * approved and called like its others. A server's own tool of this name replaces it.
 */
export const READ_RESOURCE: Tool = {
  name: 'read_resource',
  description: 'Reads a resource of this server by its URI. Results of its tools name resources as [name: URI].',
  inputSchema: {
    type: 'object',
    properties: { uri: { type: 'string', minLength: 1, maxLength: MAX_URI_LENGTH } },
    required: ['uri'],
    additionalProperties: false,
  },
  annotations: { readOnlyHint: true },
};

/** The resource to read, or why the arguments name none, for the model. */
export function resourceOf({ uri }: Record<string, unknown>): { uri: string } | { problem: string } {
  const isUri = typeof uri === 'string' && uri !== '' && uri.length <= MAX_URI_LENGTH;
  return isUri ? { uri } : { problem: `uri must be a text of 1 to ${MAX_URI_LENGTH} characters` };
}
