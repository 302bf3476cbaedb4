import { Catalog } from '../catalog/catalog.ts';
import { nodeSqliteDialect } from '../catalog/node-sqlite.ts';
import { ConfigError, isLoopback, type Config } from '../config.ts';

/**
 * Looks before anything is started, which may take minutes.
 * @throws ConfigError if others could reach the server and nobody would need a key.
 */
export async function checkReach(config: Config): Promise<void> {
  const { host, apiKeys } = config;
  if (isLoopback(host) || apiKeys.length > 0) return;
  const catalog = await Catalog.open(nodeSqliteDialect(config.databaseFile, config.sqliteSync));
  try {
    if (await catalog.keys.any()) return;
  } finally {
    await catalog.close();
  }
  throw new ConfigError(
    `EVERTURN_HOST is ${host}, which others can reach, but there are no API keys: make one with ` +
      '`everturn keys create <name>`, set EVERTURN_API_KEYS=<name>=<key>,... or listen on 127.0.0.1',
  );
}
