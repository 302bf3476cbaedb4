import { isJsonObject, valueAt } from '../../../lib/json.ts';
import { pythonLiteral } from './python-literals.ts';

type Schema = Record<string, unknown>;

/** A class for an object in a schema. */
export interface Model {
  name: string;
  description: string | undefined;
  properties: Property[];
  /** Whether other properties are accepted. */
  isOpen: boolean;
}

export interface Property {
  /** As in the schema. */
  name: string;
  type: string;
  isRequired: boolean;
  isNullable: boolean;
  /** The schema's default, if it is a simple value. */
  initial: string | number | boolean | null;
  description: string | undefined;
}

/** Beyond these bounds a type is `Any`. */
const MAX_DEPTH = 20;
const MAX_NODES = 2000;
const MAX_MODELS = 200;
const MAX_PROPERTIES = 300;
const MAX_BRANCHES = 20;
const MAX_VALUES = 200;
const MAX_VALUE_LENGTH = 1000;
const MAX_CLASS_NAME = 60;
const MAX_REQUIRED = 1000;
const MAX_REF_LENGTH = 1000;
/** The characters of the types and names in a module. Parts are counted again in the types that contain them. */
const MAX_TEXT = 1024 * 1024;

/** Names that the modules of tools import or define. */
const RESERVED = ['Params', 'Result', 'ParseResult', 'Model', 'Field', 'Any', 'Literal', 'None', 'True', 'False'];
const SIMPLE: Record<string, string[]> = {
  string: ['str'],
  integer: ['int'],
  // `int` is included, since an integer must not become a float.
  number: ['int', 'float'],
  boolean: ['bool'],
  null: ['None'],
};
const ANY = ['Any'];

/** The classes of one module, in the order of their dependencies, except for recursive ones. */
export class ModuleModels {
  readonly models: Model[] = [];
  readonly #names = new Set(RESERVED);
  #nodes = 0;
  #textLength = 0;

  /**
   * Adds the classes of a schema. Returns the type of its values.
   *
   * @param name the name of the class, if the schema is of objects with properties
   * @param isInput whether properties that the schema does not list are refused: see `isOpenInput`
   */
  add(schema: unknown, name: string, { isInput }: { isInput: boolean }): string {
    return new SchemaReader(this, schema, isInput).root(name);
  }

  /** Reserves the name of a class; undefined if there are too many. */
  reserve(hint: string): string | undefined {
    if (this.#names.size >= RESERVED.length + MAX_MODELS) return undefined;
    const words = hint
      .slice(0, MAX_VALUE_LENGTH)
      .split(/[^A-Za-z0-9]+/)
      .map((word) => word.charAt(0).toUpperCase() + word.slice(1));
    const base =
      words
        .join('')
        .replace(/^(?=\d)/, 'T')
        .slice(0, MAX_CLASS_NAME) || 'Item';
    let name = base;
    for (let number = 2; this.#names.has(name); number++) name = `${base}${number}`;
    this.#names.add(name);
    return name;
  }

  /** Whether a part of a schema may be read: hostile schemas are large, and `$ref` makes them larger. */
  countNode(): boolean {
    this.#nodes += 1;
    return this.#nodes <= MAX_NODES && !this.isTooLong;
  }

  /** Counts the text of the module in advance: a few references to a long type make it long. */
  countText(texts: readonly string[]): void {
    for (const { length } of texts) this.#textLength += length;
  }

  /** Whether its text would be too long to generate. */
  get isTooLong(): boolean {
    return this.#textLength > MAX_TEXT;
  }
}

class SchemaReader {
  readonly #module: ModuleModels;
  readonly #root: unknown;
  readonly #isInput: boolean;
  /** The types of `$ref`s; undefined while a type is being resolved. */
  readonly #refs = new Map<string, string[] | undefined>();
  /** The properties of objects, cached: an object with 100,000 properties is read only once, whatever refers to it. */
  readonly #entries = new WeakMap<object, [string, unknown][]>();

  constructor(module: ModuleModels, root: unknown, isInput: boolean) {
    this.#module = module;
    this.#root = root;
    this.#isInput = isInput;
  }

  root(name: string): string {
    let schema = this.#root;
    this.#refs.set('#', [name]);
    for (let depth = 0; depth < MAX_DEPTH && isJsonObject(schema) && typeof schema['$ref'] === 'string'; depth++) {
      this.#refs.set(schema['$ref'], [name]);
      schema = this.#target(schema['$ref']);
    }
    if (isJsonObject(schema) && isJsonObject(schema['properties'])) {
      this.#addModel({ ...schema, properties: schema['properties'] }, name, 0);
      return name;
    }
    this.#refs.clear();
    return joined(this.#typeOf(schema, name, 0));
  }

  /** The types of a schema: several for a union. */
  #typeOf(schema: unknown, hint: string, depth: number): string[] {
    const types = this.#read(schema, hint, depth);
    this.#module.countText(types);
    return this.#module.isTooLong ? ANY : types;
  }

  #read(schema: unknown, hint: string, depth: number): string[] {
    if (!isJsonObject(schema) || depth > MAX_DEPTH || !this.#module.countNode()) return ANY;
    if (typeof schema['$ref'] === 'string') return this.#typeOfRef(schema['$ref'], hint, depth);
    if (Object.hasOwn(schema, 'const')) return literals([schema['const']]);
    if (Array.isArray(schema['enum'])) return literals(schema['enum']);
    if (this.#hasProperties(schema)) return this.#newModel(schema, hint, depth);
    const branches = schema['anyOf'] ?? schema['oneOf'];
    if (Array.isArray(branches)) return this.#union(branches, hint, depth);
    if (Array.isArray(schema['allOf'])) return this.#intersection(schema['allOf'], hint, depth);
    const type = schema['type'] ?? (isJsonObject(schema['items']) ? 'array' : undefined);
    const types: unknown[] = Array.isArray(type) ? type.slice(0, MAX_BRANCHES) : [type];
    return united(types.map((one) => this.#typeOfWord(one, schema, hint, depth)));
  }

  #typeOfWord(type: unknown, schema: Schema, hint: string, depth: number): string[] {
    if (type === 'array') return [`list[${joined(this.#typeOf(schema['items'], hint, depth + 1))}]`];
    if (type === 'object') {
      return [`dict[str, ${joined(this.#typeOf(schema['additionalProperties'], hint, depth + 1))}]`];
    }
    return typeof type === 'string' && Object.hasOwn(SIMPLE, type) ? (SIMPLE[type] ?? ANY) : ANY;
  }

  #union(branches: unknown[], hint: string, depth: number): string[] {
    if (branches.length === 0 || branches.length > MAX_BRANCHES) return ANY;
    return united(branches.map((branch) => this.#typeOf(branch, hint, depth + 1)));
  }

  /** The types of an `allOf`: objects are merged; other combinations are not expressed. */
  #intersection(parts: unknown[], hint: string, depth: number): string[] {
    if (parts.length === 1) return this.#typeOf(parts[0], hint, depth + 1);
    const objects = parts
      .slice(0, MAX_BRANCHES)
      .map((part) => (isJsonObject(part) && typeof part['$ref'] === 'string' ? this.#target(part['$ref']) : part));
    const isObject = (part: unknown): part is ObjectSchema => this.#hasProperties(part);
    if (parts.length > MAX_BRANCHES || !objects.every(isObject)) return ANY;
    const merged: Schema = {
      properties: Object.fromEntries(objects.flatMap(({ properties }) => this.#entriesOf(properties))),
      required: objects.flatMap(requiredOf),
      additionalProperties: true,
    };
    return this.#typeOf(merged, hint, depth + 1);
  }

  #typeOfRef(ref: string, hint: string, depth: number): string[] {
    // A type that contains itself without a class in between has no name, and cannot be expressed.
    if (this.#refs.has(ref)) return this.#refs.get(ref) ?? ANY;
    const target = this.#target(ref);
    const name = ref.split('/').at(-1) ?? hint;
    // Depth 0, since a named class ends the nesting.
    if (this.#hasProperties(target)) return this.#newModel(target, name, 0, ref);
    this.#refs.set(ref, undefined);
    const types = this.#typeOf(target, name, depth + 1);
    this.#refs.set(ref, types);
    return types;
  }

  #target(ref: string): unknown {
    if (!ref.startsWith('#') || ref.length > MAX_REF_LENGTH) return undefined;
    try {
      return valueAt(this.#root, decodeURIComponent(ref.slice(1)));
    } catch {
      return undefined;
    }
  }

  #newModel(schema: ObjectSchema, hint: string, depth: number, ref?: string): string[] {
    const name = this.#module.reserve(hint);
    if (name === undefined) return ANY;
    if (ref !== undefined) this.#refs.set(ref, [name]);
    this.#addModel(schema, name, depth);
    return [name];
  }

  #addModel(schema: ObjectSchema, name: string, depth: number): void {
    const entries = this.#entriesOf(schema.properties);
    const required = new Set(requiredOf(schema));
    const properties = entries
      .slice(0, MAX_PROPERTIES)
      .map(([key, value]) => this.#property(key, value, required.has(key), depth));
    this.#module.countText(properties.map((property) => property.name));
    const isOpen = !this.#isInput || isOpenInput(schema, entries.length);
    this.#module.models.push({ name, description: textOf(schema['description']), properties, isOpen });
  }

  /** The properties, at most one more than are used. */
  #entriesOf(properties: Record<string, unknown>): [string, unknown][] {
    const known = this.#entries.get(properties) ?? Object.entries(properties).slice(0, MAX_PROPERTIES + 1);
    this.#entries.set(properties, known);
    return known;
  }

  #hasProperties(schema: unknown): schema is ObjectSchema {
    return (
      isJsonObject(schema) && isJsonObject(schema['properties']) && this.#entriesOf(schema['properties']).length > 0
    );
  }

  #property(name: string, schema: unknown, isRequired: boolean, depth: number): Property {
    const types = this.#typeOf(schema, name, depth + 1);
    const { description, default: initial } = isJsonObject(schema) ? schema : {};
    return {
      name,
      type: joined(types),
      isRequired,
      isNullable: types.includes('None') || types.includes('Any'),
      initial: isScalar(initial) ? initial : null,
      description: textOf(description),
    };
  }
}

type ObjectSchema = Schema & { properties: Record<string, unknown> };

function requiredOf({ required }: Schema): unknown[] {
  return Array.isArray(required) ? required.slice(0, MAX_REQUIRED) : [];
}

/**
 * Whether arguments may have other properties. Unlike in JSON Schema, they may not by default: a misspelt name would be
 * ignored.
 * @param known the number of its properties
 */
function isOpenInput({ additionalProperties: others, ...schema }: ObjectSchema, known: number): boolean {
  if (others === false) return false;
  // Keywords that describe properties, which this reader ignores.
  const saysMore = ['patternProperties', 'anyOf', 'oneOf', 'allOf', 'if'].some((key) => Object.hasOwn(schema, key));
  return others !== undefined || saysMore || known === 0 || known > MAX_PROPERTIES;
}

/** Whether a value is short, and neither null nor a list or object. */
function isScalar(value: unknown): value is string | number | boolean {
  if (typeof value === 'string') return value.length <= MAX_VALUE_LENGTH;
  return typeof value === 'number' || typeof value === 'boolean';
}

/** Whether `Literal` can contain a value. */
function isExact(value: unknown): boolean {
  return isScalar(value) && (typeof value !== 'number' || Number.isSafeInteger(value));
}

function literals(values: unknown[]): string[] {
  if (values.length === 0 || values.length > MAX_VALUES) return ANY;
  const named = values.filter((value) => value !== null);
  if (!named.every(isExact)) return ANY;
  const texts = named.map(pythonLiteral);
  const literal = texts.length > 0 ? [`Literal[${[...new Set(texts)].join(', ')}]`] : [];
  return named.length < values.length ? [...literal, 'None'] : literal;
}

function united(types: string[][]): string[] {
  const all = [...new Set(types.flat())];
  return all.length === 0 || all.includes('Any') ? ANY : all;
}

function joined(types: string[]): string {
  // None comes last by convention.
  return [...types.filter((type) => type !== 'None'), ...(types.includes('None') ? ['None'] : [])].join(' | ');
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' && value.slice(0, MAX_VALUE_LENGTH).trim() !== '' ? value : undefined;
}
