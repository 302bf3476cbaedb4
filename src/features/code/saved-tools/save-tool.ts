import { z } from 'zod';
import type { OfferedTool } from '../../../models/provider.ts';
import { moduleOf, savedToolFields, savedToolName } from './saved-tool.ts';

const names = {
  category: savedToolName.describe(
    'a word for tools of one kind; for a parser, the category of the tool that it is for',
  ),
  name: savedToolName.describe('for a parser, the name of the module of that tool'),
};

export const saveInput = z.strictObject({
  ...names,
  ...savedToolFields,
  kind: savedToolFields.kind.describe(
    '`tool`: api defines run. `parser`: api defines ParseResult and parse(text) -> ParseResult, for what a tool of a ' +
      'server returns; its module then has ParseResult and run_parsed(params).',
  ),
});

export const deleteInput = z.strictObject(names);

/** Saves code as a tool, for later. */
export const SAVE_CODE_TOOL: OfferedTool = {
  name: 'save_code_tool',
  description:
    'Save working code as a tool, which you import now and in later sessions: `from gentools.<category>.<name>.api import ' +
    'run`. Put the function with its pydantic models into api, and what callers need not read into impl, which api imports ' +
    'with `from .impl import …`. To save a tool again replaces it.',
  parameters: parametersOf(saveInput),
};

export const DELETE_CODE_TOOL: OfferedTool = {
  name: 'delete_code_tool',
  description: 'Delete a tool that was saved with save_code_tool.',
  parameters: parametersOf(deleteInput),
};

/** The text for a person who decides on a call of one of these tools: the names, and all of the code. */
export function savedToolDisplay(tool: string, args: Record<string, unknown>): string {
  const text = (key: string): string => (typeof args[key] === 'string' ? args[key] : '');
  const head = `${tool} ${moduleOf({ category: text('category'), name: text('name') })}`;
  if (tool === DELETE_CODE_TOOL.name) return head;
  const kind = args.kind === 'parser' ? ' (parser)' : '';
  const impl = typeof args.impl === 'string' ? `\n\n# impl.py\n${args.impl}` : '';
  return `${head}${kind}\n${text('description')}\n\n# api.py\n${text('api')}${impl}`;
}

function parametersOf(input: z.ZodObject): OfferedTool['parameters'] {
  const { $schema: _, ...parameters } = z.toJSONSchema(input, { io: 'input' });
  return { ...parameters, additionalProperties: false };
}
