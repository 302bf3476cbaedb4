import { isSchemaObject, withParts, type JsonSchema } from '../lib/schema-parts.ts';

type Fields = Record<string, unknown>;

/** A listed tool that MCP and model providers accept, and what was done for that; or why the tool is left out. */
export type ReadTool = { tool: Fields; warning?: string } | { warning: string };

const HINTS = new Set(['readOnlyHint', 'destructiveHint', 'idempotentHint', 'openWorldHint']);
const MAX_SHOWN_NAME = 64;

/**
 * Reads one tool of a server's list, so that an odd one does not spoil the others. Fields that are not of their type are
 * dropped: a hint that is none leaves its tool unannotated. A tool that runs only as a task is left out.
 */
export function readTool(listed: unknown): ReadTool {
  if (!isFields(listed) || typeof listed['name'] !== 'string' || listed['name'] === '') {
    return { warning: 'a tool without a name was left out' };
  }
  const { name, title, description, annotations, execution } = listed;
  const shown = JSON.stringify(name.slice(0, MAX_SHOWN_NAME));
  if (isFields(execution) && execution['taskSupport'] === 'required') {
    return { warning: `the tool ${shown} was left out: it runs only as a task, which is not supported` };
  }
  const { schema, isRepaired } = acceptedSchema(listed['inputSchema']);
  const hints = isFields(annotations)
    ? Object.entries(annotations).filter(
        ([key, value]) => (HINTS.has(key) && typeof value === 'boolean') || (key === 'title' && isText(value)),
      )
    : [];
  return {
    tool: {
      name,
      ...(isText(title) && { title }),
      ...(isText(description) && { description }),
      inputSchema: schema,
      ...(hints.length > 0 && { annotations: Object.fromEntries(hints) }),
    },
    ...(isRepaired && {
      warning: `the schema of the tool ${shown} was repaired: model providers reject it as it is, and so every call of the agent`,
    }),
  };
}

/** At the top, providers reject these: OpenAI all of them, Anthropic the first three. */
const NOT_AT_TOP = new Set(['anyOf', 'oneOf', 'allOf', 'not', 'enum']);

/** The schema of a tool's arguments as providers accept it; `isRepaired` if it has lost something. */
function acceptedSchema(listed: unknown): { schema: JsonSchema; isRepaired: boolean } {
  const given = isSchemaObject(listed) ? listed : {};
  const repair = { isRepaired: false };
  const { type, properties, ...rest } = repaired(given, repair);
  if (Object.hasOwn(given, 'type') && type !== 'object') repair.isRepaired = true;
  const branches = ['anyOf', 'oneOf', 'allOf'].flatMap((key) => (Array.isArray(rest[key]) ? rest[key] : []));
  const ofBranches = branches.flatMap((branch: unknown) =>
    isSchemaObject(branch) && isSchemaObject(branch['properties']) ? Object.entries(branch['properties']) : [],
  );
  const kept = Object.entries(rest).filter(([key]) => !NOT_AT_TOP.has(key));
  if (kept.length < Object.keys(rest).length) repair.isRepaired = true;
  const own = isSchemaObject(properties) ? Object.entries(properties) : [];
  const schema = {
    ...Object.fromEntries(kept),
    type: 'object',
    properties: ofBranches.length > 0 ? Object.fromEntries([...ofBranches, ...own]) : (properties ?? {}),
  };
  return { schema, isRepaired: repair.isRepaired };
}

/** A schema without keywords that have no meaning, and in which each array says what its items are. */
function repaired(schema: JsonSchema, repair: { isRepaired: boolean }): JsonSchema {
  const fitting = Object.entries(schema).filter(([key, value]) => FORMS.get(key)?.(value) ?? true);
  let made = schema;
  if (fitting.length < Object.keys(schema).length) {
    repair.isRepaired = true;
    made = Object.fromEntries(fitting);
  }
  // A list of items, as in draft-07, is no schema for providers.
  if (Array.isArray(made['items'])) {
    const { items, additionalItems = {}, ...others } = made;
    made = { ...others, prefixItems: items, items: isSchema(additionalItems) ? additionalItems : {} };
  } else if (isArrayType(made['type']) && made['items'] === undefined) {
    made = { ...made, items: {} };
  }
  return withParts(made, (part) => {
    if (isSchemaObject(part)) return repaired(part, repair);
    if (typeof part === 'boolean') return part;
    repair.isRepaired = true;
    return true;
  });
}

const TYPES = new Set<unknown>(['object', 'array', 'string', 'number', 'integer', 'boolean', 'null']);

const isType = (value: unknown) => TYPES.has(value);
const isText = (value: unknown) => typeof value === 'string';
const isNumber = (value: unknown) => typeof value === 'number';
const isFilledList = (value: unknown) => Array.isArray(value) && value.length > 0;
const isSchema = (value: unknown) => typeof value === 'boolean' || isSchemaObject(value);

/** The forms of the keywords whose values providers check. A server may use any name, so none may be inherited. */
const FORMS = new Map<string, (value: unknown) => boolean>([
  ...forms(isText, ['$schema', '$id', '$ref', 'title', 'description', 'format', 'pattern']),
  ...forms(isNumber, ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf']),
  ...forms(isNumber, ['minLength', 'maxLength', 'minItems', 'maxItems', 'minProperties', 'maxProperties']),
  ...forms(isFilledList, ['enum', 'anyOf', 'oneOf', 'allOf', 'prefixItems']),
  ...forms(isSchemaObject, ['properties', 'patternProperties', '$defs', 'definitions']),
  ['type', (value) => (Array.isArray(value) ? value.length > 0 && value.every(isType) : isType(value))],
  ['required', (value) => Array.isArray(value) && value.every(isText)],
  ['items', (value) => isSchema(value) || isFilledList(value)],
  ['additionalProperties', isSchema],
]);

function forms<T>(form: T, keywords: string[]): [string, T][] {
  return keywords.map((keyword) => [keyword, form]);
}

function isArrayType(type: unknown): boolean {
  return type === 'array' || (Array.isArray(type) && type.includes('array'));
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null;
}
