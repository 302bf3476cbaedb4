import { isDeepStrictEqual } from 'node:util';
import { isJsonObject, valueAt } from '../lib/json.ts';
import { withParts, type JsonSchema } from '../lib/schema-parts.ts';
import { isFields, type Fields } from './fields.ts';

/** A listed tool that MCP and model providers accept, and what was done for that; or why the tool is left out. */
type ReadTool = { tool: Fields; warning?: string } | { warning: string };

const HINTS = new Set(['readOnlyHint', 'destructiveHint', 'idempotentHint', 'openWorldHint']);
const MAX_SHOWN_NAME = 64;

/** The field of `_meta` with the schema that the server lists. The server's own `_meta` is not read. */
const LISTED = 'io.everturn/listed-schema';

/** The field for the schema of structured results: in the SDK's own field, it would be compiled for each call. */
const RESULT = 'io.everturn/result-schema';
const MAX_RESULT_SCHEMA_LENGTH = 64 * 1024;

/**
 * Reads one tool of a server's list, so that an odd one does not spoil the others. Fields of a wrong type are dropped:
 * an invalid hint leaves its tool unannotated. A tool that runs only as a task is left out.
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
  const input = isJsonObject(listed['inputSchema']) ? listed['inputSchema'] : {};
  const { schema, isRepaired } = acceptedSchema(input);
  // Arguments are objects, whatever type a server lists.
  const own = { ...input, type: 'object' };
  const result = resultSchema(listed['outputSchema']);
  const meta = {
    ...(!isDeepStrictEqual(schema, { properties: {}, ...own }) && { [LISTED]: own }),
    ...(result && { [RESULT]: result }),
  };
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
      ...(Object.keys(meta).length > 0 && { _meta: meta }),
    },
    ...(isRepaired && {
      warning: `the schema of the tool ${shown} was repaired: model providers reject it as it is, and so every call of the agent`,
    }),
  };
}

/** The schema of a tool as its server lists it, if it is not the one that models are offered. */
export function listedSchemaOf({ _meta }: { _meta?: Fields | undefined }): { listedSchema?: object } {
  const listed = _meta?.[LISTED];
  return isJsonObject(listed) ? { listedSchema: listed } : {};
}

function resultSchema(listed: unknown): JsonSchema | undefined {
  return isJsonObject(listed) && JSON.stringify(listed).length <= MAX_RESULT_SCHEMA_LENGTH ? listed : undefined;
}

/** The schema of the structured results of a tool, if its server lists one. */
export function resultSchemaOf({ _meta }: { _meta?: Fields | undefined }): { resultSchema?: object } {
  const listed = _meta?.[RESULT];
  return isJsonObject(listed) ? { resultSchema: listed } : {};
}

const BRANCHES = ['anyOf', 'oneOf', 'allOf'];
/** At the top, providers reject these: OpenAI all of them, Anthropic the branches. */
const NOT_AT_TOP = new Set([...BRANCHES, 'not', 'enum']);
const CLOSING = new Set(['additionalProperties', 'unevaluatedProperties']);

/** The schema of a tool's arguments as providers accept it; `isRepaired` if it has lost something. */
function acceptedSchema(listed: JsonSchema): { schema: JsonSchema; isRepaired: boolean } {
  const repair = { isRepaired: false };
  const whole = repaired(listed, repair);
  const { type, properties, ...rest } = whole;
  if (Object.hasOwn(listed, 'type') && type !== 'object') repair.isRepaired = true;
  const { ofBranches, isComplete } = branchProperties(whole);
  const kept = Object.entries(rest).filter(([key]) => !NOT_AT_TOP.has(key));
  if (kept.length < Object.keys(rest).length) repair.isRepaired = true;
  const own = isJsonObject(properties) ? Object.entries(properties) : [];
  const schema = {
    ...Object.fromEntries(isComplete ? kept : kept.filter(([key, value]) => !CLOSING.has(key) || value !== false)),
    type: 'object',
    properties: ofBranches.length > 0 ? Object.fromEntries([...ofBranches, ...own]) : (properties ?? {}),
  };
  return { schema, isRepaired: repair.isRepaired };
}

/**
 * The properties that the branches of a schema define. A property that several define differently is any of these.
 * `isComplete`: false if a reference in a branch leads nowhere.
 */
function branchProperties(root: JsonSchema): { ofBranches: [string, unknown][]; isComplete: boolean } {
  const branchesOf = (schema: JsonSchema) =>
    BRANCHES.map((key) => schema[key])
      .filter(Array.isArray)
      .flat();
  const variants = new Map<string, Map<string, unknown>>();
  let isComplete = true;
  // It grows in the loop. Each schema is read once, so references may form cycles, and take no more time than the text.
  const found = new Set<unknown>(branchesOf(root));
  for (const branch of found) {
    if (!isJsonObject(branch)) continue;
    const { $ref, properties } = branch;
    for (const [name, property] of isJsonObject(properties) ? Object.entries(properties) : []) {
      const ofName = variants.get(name) ?? new Map<string, unknown>();
      variants.set(name, ofName.set(JSON.stringify(property), property));
    }
    for (const one of branchesOf(branch)) found.add(one);
    if (typeof $ref !== 'string') continue;
    const target = $ref.startsWith('#/') ? valueAt(root, $ref.slice(1)) : undefined;
    if (target === undefined) isComplete = false;
    found.add(target);
  }
  const ofBranches = [...variants].map(([name, ofName]): [string, unknown] => {
    const [first, ...others] = ofName.values();
    return [name, others.length > 0 ? { anyOf: [first, ...others] } : first];
  });
  return { ofBranches, isComplete };
}

/** A schema without keywords that have no meaning, and in which each array has a schema of its items. */
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
    if (isJsonObject(part)) return repaired(part, repair);
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
const isSchema = (value: unknown) => typeof value === 'boolean' || isJsonObject(value);

/** The forms of the keywords whose values providers check. A server may use any name, so none may be inherited. */
const FORMS = new Map<string, (value: unknown) => boolean>([
  ...forms(isText, ['$schema', '$id', '$ref', 'title', 'description', 'format', 'pattern']),
  ...forms(isNumber, ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf']),
  ...forms(isNumber, ['minLength', 'maxLength', 'minItems', 'maxItems', 'minProperties', 'maxProperties']),
  ...forms(isFilledList, ['enum', 'anyOf', 'oneOf', 'allOf', 'prefixItems']),
  ...forms(isJsonObject, ['properties', 'patternProperties', '$defs', 'definitions']),
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
