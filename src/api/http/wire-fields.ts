import type { z } from 'zod';
import { memoized } from '../../lib/memoized.ts';

type CamelCase<Name> = Name extends `${infer First}_${infer Rest}` ? `${First}${Capitalize<CamelCase<Rest>>}` : Name;

/** The fields of a schema under the names that they have in core, by `Renamed` or in camel case. */
type CoreFields<Schema, Renamed, Shape = z.output<Schema>> = {
  [Name in keyof Shape as Name extends keyof Renamed ? Renamed[Name] & string : CamelCase<Name>]: Shape[Name];
};

/** The names of fields on the wire, with those that they have here. */
type Names = [wire: string, own: string][];

const rowNames = memoized(({ shape }: z.ZodObject): Names => Object.keys(shape).map((name) => [name, name]));

const coreNames = memoized((schema: z.ZodObject): Names =>
  rowNames(schema).map(([wire]) => [wire, wire.replaceAll(/_(.)/g, (_, letter: string) => letter.toUpperCase())]),
);

/** The names in log records of the fields that all events have. */
const OF_RECORD = { type: 'kind', created_at: 'at' } as const;

const recordNames = memoized((schema: z.ZodObject): Names => {
  const renamed: Record<string, string> = OF_RECORD;
  return coreNames(schema).map(([wire, own]) => [wire, renamed[wire] ?? own]);
});

/**
 * Gives fields of core the names and the order that they have in the schema: `threadId` becomes `thread_id`. A field that
 * the schema does not have is a type error unless it is named as internal, so none that is added in core is forgotten.
 * Names inside of values stay: they may be those of a user. A field that is undefined is left out.
 */
export const fieldsToWire = mapping<unknown>(coreNames);

/** The same for an event with the fields of a record: its `type` is the `kind`, its `created_at` the time `at`. */
export const recordToWire = mapping<typeof OF_RECORD>(recordNames);

function mapping<Renamed>(namesOf: (schema: z.ZodObject) => Names) {
  return <
    Schema extends z.ZodObject,
    Fields extends CoreFields<Schema, Renamed>,
    Internal extends Exclude<keyof Fields, keyof CoreFields<Schema, Renamed>> = never,
  >(
    schema: Schema,
    fields: Fields & { [Name in Exclude<keyof Fields, keyof CoreFields<Schema, Renamed> | Internal>]: never },
    ..._internal: Internal[]
  ): z.output<Schema> => named<Schema>(fields, namesOf(schema));
}

/** The fields of a row of the catalog that the schema has, in its order; those that are undefined are left out. */
export function rowToWire<Schema extends z.ZodObject>(schema: Schema, row: z.output<Schema>): z.output<Schema> {
  return named<Schema>(row, rowNames(schema));
}

function named<Schema extends z.ZodObject>(fields: Record<string, unknown>, names: Names): z.output<Schema> {
  const shown: Record<string, unknown> = {};
  for (const [wire, own] of names) {
    const value = fields[own];
    if (value !== undefined) shown[wire] = value;
  }
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the types of the callers require the fields
  return shown as z.output<Schema>;
}
