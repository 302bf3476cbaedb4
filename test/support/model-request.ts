import type { ModelRequest } from '../../src/models/provider.ts';

/** A request to a model for an answer to `fields`, without instructions, tools and files. */
export function modelRequest(fields: Partial<ModelRequest> = {}): ModelRequest {
  return {
    model: 'm',
    params: {},
    system: '',
    instructionsLength: 0,
    skillsLength: 0,
    transcript: [],
    tools: [],
    responseFormat: undefined,
    fileContent: () => Promise.reject(new Error('there are no files')),
    ...fields,
  };
}
