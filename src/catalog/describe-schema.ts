import { sql, type QueryExecutorProvider, type RawBuilder } from 'kysely';
import type { Database } from './database.ts';

/**
 * Describes the tables of the connected database, those of the migrator excepted: a line for each column, key and index,
 * sorted. The lines differ between SQLite and PostgreSQL, not between catalogs on the same kind of database. A migration
 * that adds a column or an index adds a line and changes no other.
 */
export async function describeSchema(db: QueryExecutorProvider, kind: Database['kind']): Promise<string[]> {
  const { rows } = await LINES[kind].execute(db);
  return rows.map(({ line }) => line).toSorted();
}

const ON_SQLITE = sql<{ line: string }>`
  with tables as (select name from sqlite_master where type = 'table' and name not like 'sqlite_%' and name not like 'kysely_%')
  select 'column ' || tables.name || '.' || c.name || ' ' || c.type || iif(c."notnull", ' not null', '')
      || coalesce(' default ' || c.dflt_value, '') || iif(c.pk > 0, ' key ' || c.pk, '') as line
    from tables, pragma_table_info(tables.name) c
  union all
  select 'unique ' || tables.name || ' ' || (select group_concat(name) from pragma_index_info(i.name))
    from tables, pragma_index_list(tables.name) i where i.origin = 'u'
  union all
  select 'reference ' || tables.name || '.' || f."from" || ' ' || f."table" || '.' || f."to" || ' ' || f.on_delete
    from tables, pragma_foreign_key_list(tables.name) f
  union all
  select 'index ' || sql from sqlite_master where type = 'index' and sql is not null`;

const ON_POSTGRES = sql<{ line: string }>`
  with tables as (
    select oid, relname as name from pg_class
      where relnamespace = (select oid from pg_namespace where nspname = current_schema()) and relkind in ('r', 'p')
        and relname not like 'kysely_%'
  )
  select 'column ' || tables.name || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
      || coalesce(' collate ' || l.collname, '') || case when a.attnotnull then ' not null' else '' end
      || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '') as line
    from tables
      join pg_attribute a on a.attrelid = tables.oid and a.attnum > 0 and not a.attisdropped
      left join pg_collation l on l.oid = a.attcollation
      left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
  union all
  select 'constraint ' || tables.name || ' ' || pg_get_constraintdef(c.oid)
    from tables join pg_constraint c on c.conrelid = tables.oid and c.contype in ('p', 'u', 'f', 'c')
  union all
  -- Without the name of the schema, which is not the same in every database.
  select 'index ' || regexp_replace(pg_get_indexdef(i.indexrelid), ' ON [^ ]+[.]', ' ON ')
    from tables join pg_index i on i.indrelid = tables.oid`;

const LINES: Record<Database['kind'], RawBuilder<{ line: string }>> = { sqlite: ON_SQLITE, postgres: ON_POSTGRES };
