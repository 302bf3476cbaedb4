import type { Logger } from 'pino';
import { Catalog } from '../catalog/catalog.ts';
import { ConfigError, isLoopback, type Config } from '../config.ts';

/**
 * Looks before anything is started, which may take minutes.
 * @throws ConfigError if others could reach the server and nobody would need a key.
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
    `EVERTURN_HOST is ${host}, which others can reach, but there are no API keys: make one with ` +
      '`everturn keys create <name>`, set EVERTURN_API_KEYS=<name>=<key>,... or EVERTURN_OIDC_ISSUER, or listen on 127.0.0.1',
  );
}
