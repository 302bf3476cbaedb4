import { sql, type ColumnDefinitionBuilder, type CreateTableBuilder, type Kysely, type SqlBool } from 'kysely';

const TYPES = ['text', 'integer', 'bigint', 'double precision'] as const;

const CONSTRAINT = /^constraint (\w+) (primary key|unique) \((.+)\)$/;

/**
 * Creates tables, in their order, from what SQL has in the parentheses of `create table`. On PostgreSQL, text compares
 * bytewise: see `BytewiseQueryCompiler`. A definition is one of a column, with a type of `TYPES` and any constraints, or
 * a named primary key or unique constraint; it has commas only between parentheses.
 */
export async function createTables({ schema }: Kysely<unknown>, tables: Record<string, string>): Promise<void> {
  for (const [name, definitions] of Object.entries(tables)) {
    let table: CreateTableBuilder<string, string> = schema.createTable(name);
    for (const definition of partsOf(definitions)) {
      const [, constraint, kind, columns = ''] = CONSTRAINT.exec(definition) ?? [];
      if (constraint === undefined) table = table.addColumn(...columnOf(definition));
      else if (kind === 'unique') table = table.addUniqueConstraint(constraint, columns.split(', '));
      else table = table.addPrimaryKeyConstraint(constraint, columns.split(', '));
    }
    await table.execute();
  }
}

/** Adds columns to a table, each by a statement of its own. */
export async function addColumns({ schema }: Kysely<unknown>, table: string, columns: string): Promise<void> {
  for (const column of partsOf(columns))
    await schema
      .alterTable(table)
      .addColumn(...columnOf(column))
      .execute();
}

/** `where`: the condition of a partial index, in SQL. */
export type Index = [name: string, table: string, columns: string[], { isUnique?: true; where?: string }?];

export async function createIndexes({ schema }: Kysely<unknown>, indexes: Index[]): Promise<void> {
  for (const [name, table, columns, { isUnique, where } = {}] of indexes) {
    let index = schema.createIndex(name).on(table).columns(columns);
    if (isUnique) index = index.unique();
    if (where) index = index.where(sql.raw<SqlBool>(where));
    await index.execute();
  }
}

function partsOf(definitions: string): string[] {
  // Not at commas between parentheses.
  return definitions.split(/,(?![^(]*\))/).map((definition) => definition.trim());
}

function columnOf(definition: string) {
  const [name = '', ...words] = definition.split(' ');
  const typed = words.join(' ');
  const type = TYPES.find((one) => `${typed} `.startsWith(`${one} `));
  if (!type) throw new Error(`${definition} has no type`);
  const constraints = typed.slice(type.length).trim();
  const constrain = (column: ColumnDefinitionBuilder) =>
    constraints ? column.modifyEnd(sql.raw(constraints)) : column;
  return [name, type, constrain] as const;
}
