import type { Logger } from 'pino';
import { Catalog } from '../catalog/catalog.ts';
import { ConfigError, isLoopback, type Config } from '../config.ts';

/**
 * Ensures that a server which other hosts can reach requires a key. Runs before the other steps, which may take
 * minutes.
 * @throws ConfigError if the server would be reachable without a key
 */
export async function requireKeysIfExposed(config: Config, log: Logger): Promise<void> {
  const { host, apiKeys, oidc } = config;
  if (isLoopback(host) || apiKeys.length > 0 || oidc) return;
  const catalog = await Catalog.open(config.database, log);
  try {
    if (await catalog.keys.any()) return;
  } finally {
    await catalog.close();
  }
  throw new ConfigError(
    `EVERTURN_HOST is ${host}, which other hosts can reach, but there are no API keys: create one with ` +
      '`everturn keys create <name>`, set EVERTURN_API_KEYS=<name>=<key>,... or EVERTURN_OIDC_ISSUER, or listen on 127.0.0.1',
  );
}
