import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';

/** Opens the catalog of a scenario that has it on SQLite. */
export function openCatalog(folder: string): DatabaseSync {
  return new DatabaseSync(path.join(folder, 'catalog.db'), { timeout: 5_000 });
}

/** Whether the whole log of a turn is in the catalog of a scenario, on SQLite. */
export function isArchived(folder: string, turnId: string): boolean {
  const database = openCatalog(folder);
  const row = database.prepare('SELECT archived FROM turns WHERE id = ?').get(turnId);
  database.close();
  return row?.['archived'] === 1;
}
